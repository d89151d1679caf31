"""Step time: windows of a pipeline, copies, hybrid sharding, and gathers that nothing runs beside."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

from planner.cluster import Group, collective_seconds, host_link_seconds
from planner.compute import clock, ends_seconds, layers_seconds
from planner.job import Job
from planner.plan import Layout
from planner.share import share
from planner.space import job_space
from planner.step_time import COPIES, SLOWDOWN, bubble, microseconds, time_terms
from tests.jobs import job, plan

EIGHT = {"gpu": "a100-sxm-80gb", "gpus_per_node": 8}
LARGE = {"parameters": 60_000_000_000, "layers": 40, "vocabulary": 8000}


def amounts(one: Job, **choices: Any) -> dict[tuple[str, str, str], int]:
    """Microseconds by name, window and lane of a plan, equal lines added."""
    values = job_space(one).complete(plan(one, **choices))
    found: dict[tuple[str, str, str], int] = {}
    for term in time_terms(one, "typical"):
        key = (term.name, term.window, term.lane)
        found[key] = found.get(key, 0) + term.value(values)
    return found


def test_a_bubble_waits_for_layers_not_for_the_ends() -> None:
    """2 stages, 8 micro-batches: 9 times the layers of the last stage, 8 times its head."""
    layout = Layout(pipeline=2)
    one = job(training={"runtime": "megatron"}).with_choices({"layout": (layout,)})
    last = share(one, layout, "last")
    layers, ends = (part(last, 512, "forward", "typical") for part in (layers_seconds, ends_seconds))
    found = amounts(one, micro_batch=1)
    assert found["compute", "forward", "compute_last"] == microseconds(9 * layers + 8 * ends)
    assert bubble({"layout": layout}) == 1


def test_recomputation_is_a_forward_of_every_checkpointed_layer() -> None:
    one = job()
    again = clock(share(one, Layout(data=2))).layer(one.layer_kinds[0], 512, "recompute", "typical")
    found = amounts(one, micro_batch=1, checkpoint_interval=1, checkpoint_count=3)
    # 4 micro-batches on each of 2 ranks: three backward passes but the last
    assert found["recompute", "backward", "compute"] == 3 * microseconds(3 * again)


def test_fully_shard_copies_around_its_collectives() -> None:
    """Forward copies 4 bytes an element of the layers out of the gathered buffer at 0.79 of 2039 GB/s."""
    one = job(training={"runtime": "fsdp2"})
    whole = share(one, Layout(data=2))
    gpu, parameters = one.cluster.gpu, whole.parameters - whole.root
    once = 4 * parameters / (gpu.memory_bandwidth * gpu.memory_efficiency.typical)
    found = amounts(one, micro_batch=4, zero_stage=3)
    assert found[COPIES, "forward", "serial"] == pytest.approx(microseconds(once), abs=1)
    assert found[SLOWDOWN, "forward", "compute"] > 0


def test_nothing_runs_beside_the_gather_of_the_root() -> None:
    """Embedding, last norm and head are gathered at once for the first operation, 2 bytes an element."""
    one = job(training={"runtime": "fsdp2"})
    alone = collective_seconds(one.cluster, "all_gather", 2 * share(one, Layout(data=2)).root, Group(2))
    found = amounts(one, micro_batch=4, zero_stage=3)
    assert found["parameter gather of the root", "optimizer_step", "serial"] == microseconds(alone)


def test_hybrid_sharding_all_reduces_between_the_copies() -> None:
    """8 ranks, 4 to a copy: what a rank holds after the reduce-scatter is summed over 2 ranks."""
    one = job(cluster=EIGHT, training={"runtime": "fsdp2"})
    whole = amounts(one.with_choices({"layout": (Layout(data=8, shard=4),)}), micro_batch=1, zero_stage=3)
    size = 4 * one.architecture.parameters
    messages = -(-one.trainable_parameters // share(one, Layout(data=8)).largest_layer)
    scatter = collective_seconds(one.cluster, "reduce_scatter", size / messages, Group(4))
    between = collective_seconds(one.cluster, "all_reduce", size / messages / 4, Group(2, 4))
    key = ("gradient reduce-scatter", "last_backward", "communication")
    assert whole[key] == microseconds(messages * (scatter + between))


def test_layers_wait_for_gathers_that_are_not_made_ahead() -> None:
    """A layer of 1.5e9 elements is beyond 1e9 live parameters: serial, and gathered again for recomputation."""
    one = job(model=LARGE, cluster=EIGHT)
    found = amounts(one, micro_batch=1, zero_stage=3, checkpoint_interval=1, checkpoint_count=40)
    assert found["parameter gather in forward", "forward", "serial"] > 0
    assert found["parameter gather in backward, once more", "last_backward", "serial"] > 0
    assert (SLOWDOWN, "forward", "compute") not in found
    small = amounts(job(cluster=EIGHT), micro_batch=1, zero_stage=3, checkpoint_interval=1, checkpoint_count=4)
    assert small["parameter gather in forward", "forward", "communication"] > 0
    assert ("parameter gather in backward, once more", "last_backward", "serial") not in small


def test_the_host_works_for_every_rank_of_a_gather() -> None:
    """DeepSpeed cuts each of 8 ranks' pieces out: 8 x 15 us a gather."""
    one = job(cluster=EIGHT)
    part = share(one, Layout(data=8))
    found = amounts(one, micro_batch=1, zero_stage=3)["parameter gather in forward", "forward", "communication"]
    messages = -(-part.parameters // one.prefetch_bucket_size)
    alone = collective_seconds(one.cluster, "all_gather", 2 * part.parameters / messages, Group(8))
    assert found == microseconds(messages * (alone + 8 * 15e-6))


def test_the_host_of_fully_shard_updates_tensor_by_tensor() -> None:
    one = job(training={"runtime": "fsdp2"})
    tensors = len(share(one, Layout(data=2)).sizes)
    assert amounts(one, zero_stage=3)["optimizer", "optimizer_step", "serial"] == microseconds(tensors * 300e-6)


def test_pages_of_an_optimizer_come_back_for_its_step() -> None:
    """2.032 bytes of each parameter over the host link, waited for; other optimizers have none."""
    name = "pages of the optimizer to the GPU and back"
    one, other = (job(training={"runtime": "ddp", "optimizer": key}) for key in ("paged-adamw-8bit", "adamw-8bit"))
    size = ceil(2.032 * one.architecture.parameters)
    expected = microseconds(host_link_seconds(one.cluster, size, "to_gpu", one.cluster.gpus_per_node))
    found = amounts(one, layout=Layout(data=one.cluster.gpus))
    assert found[name, "optimizer_step", "serial"] == pytest.approx(expected, abs=2)
    assert not [term for term in time_terms(other, "typical") if term.name == name]
