"""What ranks exchange: volumes by degree, and the groups that carry them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cluster import Group, collective_seconds
from planner.compute import clock
from planner.exchange import (
    data_group,
    expert_seconds,
    pipeline_seconds,
    replica_group,
    sequence_seconds,
    tensor_seconds,
)
from planner.job import Job
from planner.plan import Layout
from planner.share import Share, share
from tests.jobs import job, plan

EIGHT = {"gpu": "a100-sxm-80gb", "gpus_per_node": 8}


def found(layout: Layout, cluster: dict[str, Any] = EIGHT, **training: Any) -> tuple[Job, Share, int]:
    """A job of eight GPUs with one layout, the share of its first stage, and the tokens of a micro-batch of one."""
    stage = "first" if layout.pipeline > 1 else "whole"
    one = job(cluster=cluster, training={"runtime": "megatron", **training}).with_choices({"layout": (layout,)})
    return one, share(one, layout, stage), one.tokens(plan(one, micro_batch=1))


def seconds(job: Job, operation: str, size: float, group: Group) -> float:
    return collective_seconds(job.cluster, operation, size, group, "typical")


def gather_and_scatter(one: Job, width: int = 2) -> tuple[float, float]:
    """Seconds of a block's two collectives between two ranks: 512 tokens of the hidden width, the gather in `width`."""
    elements = 512 * one.architecture.hidden
    gather = seconds(one, "all_gather", elements * width, Group(2))
    return gather, seconds(one, "reduce_scatter", elements * 2, Group(2))


@pytest.mark.parametrize(("runtime", "gathers"), [("nanotron", 2), ("fsdp2", 1)])
def test_a_divided_stream_is_gathered_and_scattered(runtime: str, gathers: int) -> None:
    """Each of 2 blocks: gather and scatter; backward gathers the input once more where it was not kept."""
    one, part, tokens = found(Layout(tensor=2, data=4), runtime=runtime)
    gather, scatter = gather_and_scatter(one)
    kind = one.layer_kinds[0]
    assert tensor_seconds(part, kind, tokens, "forward", "typical") == pytest.approx(2 * (gather + scatter))
    assert tensor_seconds(part, kind, tokens, "backward", "typical") == pytest.approx(2 * (gathers * gather + scatter))


def test_megatron_gathers_again_and_scatters_beside_products() -> None:
    """Each of 2 blocks waits for one gather; the others take a quarter of their time from A100's products."""
    one, part, tokens = found(Layout(tensor=2, data=4))
    gather, scatter = gather_and_scatter(one)
    expected = 2 * gather + 0.25 * 2 * (gather + scatter)
    assert tensor_seconds(part, one.layer_kinds[0], tokens, "backward", "typical") == pytest.approx(expected)


def test_what_is_longer_than_the_products_is_waited_for() -> None:
    cards = {"gpu": "l40s-48gb", "gpus_per_node": 8}
    one, part, tokens = found(Layout(tensor=8, whole_stream=True), cards)
    kind = one.layer_kinds[0]
    reduce = 2 * seconds(one, "all_reduce", 512 * one.architecture.hidden * 2, Group(8))
    products = clock(part).layer(kind, tokens, "backward", "typical") / 2
    assert reduce - products > 0.4 * reduce  # over PCIe; more than what beside them costs
    assert tensor_seconds(part, kind, tokens, "backward", "typical") == pytest.approx(reduce - products)


@pytest.mark.parametrize(("scaling", "width"), [("tensor", 1), ("row", 2)])
def test_narrow_products_with_one_scale_gather_narrow_activations(scaling: str, width: int) -> None:
    training = {"precision": "fp8", "fp8_scaling": scaling, "runtime": "fsdp2"}
    one, part, tokens = found(Layout(tensor=2, data=4), {**EIGHT, "gpu": "h100-sxm-80gb"}, **training)
    gather, scatter = gather_and_scatter(one, width)
    expected = pytest.approx(2 * (gather + scatter))
    assert tensor_seconds(part, one.layer_kinds[0], tokens, "forward", "typical") == expected


def test_a_whole_stream_is_all_reduced() -> None:
    layout = Layout(tensor=2, data=4, whole_stream=True)
    one, part, tokens = found(layout)
    size = 512 * one.architecture.hidden * 2
    expected = 2 * seconds(one, "all_reduce", size, Group(2))
    assert tensor_seconds(part, one.layer_kinds[0], tokens, "forward", "typical") == pytest.approx(expected)


@pytest.mark.parametrize(("runtime", "exposed"), [("fsdp2", 0.67), ("megatron", 0.15)])
def test_products_hide_some_of_an_exchange_in_pieces(runtime: str, exposed: float) -> None:
    """A third by torch's asynchronous tensor parallelism, most by Transformer Engine's userbuffers."""
    layout = Layout(tensor=2, data=4)
    one, part, tokens = found(layout, runtime=runtime)
    other, overlapped, _ = found(layout, runtime=runtime, tensor_overlap=True)
    plain = tensor_seconds(part, one.layer_kinds[0], tokens, "forward", "typical")
    again = tensor_seconds(overlapped, other.layer_kinds[0], tokens, "forward", "typical")
    assert again == pytest.approx(exposed * plain)


def test_context_parallel_ranks_pass_keys_and_values_on() -> None:
    layout = Layout(sequence=2, data=4)
    one, part, tokens = found(layout)
    attention = one.layer_kinds[0].attention
    assert attention is not None
    size = 512 * attention.kv_heads * 2 * attention.head_dim * 2  # a whole sequence's keys and values
    gather, back = (seconds(one, name, size, Group(2)) for name in ("all_gather", "reduce_scatter"))
    kind = one.layer_kinds[0]
    assert sequence_seconds(part, kind, tokens, "forward", "typical") == pytest.approx(gather)
    assert sequence_seconds(part, kind, tokens, "backward", "typical") == pytest.approx(gather + back)


def test_a_dense_layer_has_no_experts_to_reach() -> None:
    layout = Layout(expert=2, data=8)
    one, part, tokens = found(layout)
    assert expert_seconds(part, one.layer_kinds[0], tokens, "forward", "typical") == 0.0


def test_a_stage_sends_its_output_once_for_each_chunk() -> None:
    layout = Layout(pipeline=2, data=4, virtual_stages=2)
    one, part, tokens = found(layout)
    size = 512 * one.architecture.hidden * 2
    expected = 2 * seconds(one, "send_receive", size, Group(2, 4))
    assert pipeline_seconds(part, tokens, "typical") == pytest.approx(expected)


def test_groups_of_hybrid_sharding() -> None:
    """16 data-parallel ranks of 2 tensor-parallel ones, 8 to a copy: 2 copies, 16 ranks apart."""
    layout = Layout(tensor=2, data=16, shard=8)
    assert data_group(layout) == Group(8, 2)
    assert (layout.replicas, replica_group(layout)) == (2, Group(2, 16))
    assert Layout(data=16).replicas == 1
