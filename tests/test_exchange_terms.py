"""What ranks exchange, term by term: groups that leave a node, experts, blocks of a layer, and what is paid when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.architecture.shape import Attention, FeedForward, LayerKind
from planner.cluster import Group, collective_seconds
from planner.exchange import (
    data_group,
    exchange_terms,
    expert_seconds,
    node_group,
    pipeline_seconds,
    sequence_seconds,
    tensor_seconds,
)
from planner.job import Job
from planner.plan import Layout, Plan
from planner.share import Share, share
from planner.terms import TimeTerm
from tests.jobs import job, plan

# A group whose members stand too far apart leaves its node of four, and NVLink for Ethernet.
TWO_NODES = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "10 Gbit/s"}
OUTLOOK = "high"  # not the one that is meant where none is named
STREAM = 512 * 2  # a micro-batch's tokens x bytes; times the width
# How often each window is paid in these tests.
WINDOWS = {"forward": 7, "backward": 5, "last_backward": 3}


def divided(layout: Layout, **training: object) -> tuple[Job, Share, LayerKind]:
    """The small job on two nodes with one layout, its first stage, and its kind of layer."""
    one = job(cluster=TWO_NODES, training={"runtime": "megatron", **training}).with_choices({"layout": (layout,)})
    return one, share(one, layout, "first" if layout.pipeline > 1 else "whole"), one.layer_kinds[0]


def seconds(one: Job, operation: str, size: float, group: Group) -> float:
    return collective_seconds(one.cluster, operation, size, group, OUTLOOK)


def picoseconds(seconds: float) -> int:
    return round(seconds * 1e12)


def terms(one: Job) -> dict[tuple[str, str, str], TimeTerm]:
    """The terms by name, window and lane, in picoseconds."""
    windows = {name: (lambda job, values, times=times: times) for name, times in WINDOWS.items()}
    found = list(exchange_terms(one, windows, picoseconds, OUTLOOK))  # type: ignore[arg-type]
    assert len({(term.name, term.window, term.lane) for term in found}) == len(found)
    return {(term.name, term.window, term.lane): term for term in found}


def values(one: Job, **measures: int) -> dict[str, object]:
    """The plainest plan with one sequence to a micro-batch, and the measures of recomputed layers."""
    chosen: Plan = plan(one, micro_batch=1)
    return {"layout": chosen["layout"], "micro_batch": 1, **measures}


# ── one layer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_neighbours_are_tensor_parallel() -> None:
    """Four neighbours fill a node: nothing of their exchange passes the network."""
    for whole_stream, parts in (True, ("all_reduce",)), (False, ("all_gather", "reduce_scatter")):
        one, part, kind = divided(Layout(tensor=4, data=2, whole_stream=whole_stream))
        expected = 2 * sum(seconds(one, name, STREAM * one.architecture.hidden, Group(4)) for name in parts)
        assert tensor_seconds(part, kind, 512, "forward", OUTLOOK) == pytest.approx(expected)


def test_context_parallel_ranks_stand_as_far_apart_as_tensor_parallel_ones_are_many() -> None:
    """3 key and value heads over 2 ranks: 2 on the fuller one, of width 64 + 32, of a sequence in four parts."""
    layout = Layout(tensor=2, sequence=4)
    one, part, kind = divided(layout)
    uneven = replace(kind, attention=Attention(heads=6, kv_heads=3, head_dim=64, value_dim=32))
    gathered, scattered = (
        seconds(one, name, 128 * 4 * 2 * (64 + 32) * 2, Group(4, 2)) for name in ("all_gather", "reduce_scatter")
    )
    assert sequence_seconds(part, uneven, 128, "forward", OUTLOOK) == pytest.approx(gathered)
    assert sequence_seconds(part, uneven, 128, "backward", OUTLOOK) == pytest.approx(gathered + scattered)
    assert sequence_seconds(part, replace(kind, attention=None), 128, "forward", OUTLOOK) == 0.0


def test_a_single_key_head_is_on_every_rank() -> None:
    one, part, kind = divided(Layout(tensor=2, sequence=4))
    single = replace(kind, attention=Attention(heads=8, kv_heads=1, head_dim=64))
    gathered = seconds(one, "all_gather", 128 * 4 * (64 + 64) * 2, Group(4, 2))
    assert sequence_seconds(part, single, 128, "forward", OUTLOOK) == pytest.approx(gathered)


@pytest.mark.parametrize("whole_stream", [False, True])
def test_tokens_go_to_their_experts_and_back(whole_stream: bool) -> None:
    """Three experts to a token; of a divided stream each of two tensor-parallel ranks sends half of the tokens."""
    one, part, kind = divided(Layout(tensor=2, expert=4, data=4, whole_stream=whole_stream))
    mixed = replace(kind, feed_forward=FeedForward(width=64, gated=True, experts=8, experts_per_token=3))
    rows = 512 * 3 if whole_stream else 256 * 3
    once = seconds(one, "all_to_all", rows * one.architecture.hidden * 2, Group(4, 2))
    assert once > 0
    assert expert_seconds(part, mixed, 512, "forward", OUTLOOK) == pytest.approx(2 * once)
    assert expert_seconds(part, replace(kind, feed_forward=None), 512, "forward", OUTLOOK) == 0.0


@pytest.mark.parametrize("whole_stream", [False, True])
def test_stages_send_a_ranks_part_of_the_stream(whole_stream: bool) -> None:
    """Two stages of four ranks: the next one is four away, on the other node."""
    one, part, _ = divided(Layout(tensor=2, pipeline=2, data=2, whole_stream=whole_stream))
    size = STREAM * one.architecture.hidden / (1 if whole_stream else 2)
    expected = seconds(one, "send_receive", size, Group(2, 4))
    assert pipeline_seconds(part, 512, OUTLOOK) == pytest.approx(expected)
    alone = divided(Layout(data=8))[1]
    assert pipeline_seconds(alone, 512, OUTLOOK) == 0.0


@pytest.mark.parametrize(
    ("changes", "blocks"),
    [
        ({}, 2),
        ({"parallel": True}, 1),  # attention and feed-forward are added up together
        ({"feed_forward": None}, 1),
        ({"attention": None}, 1),
        ({"cross_attention": Attention(8, 8, 64, cross=True)}, 3),
    ],
)
def test_each_block_that_ranks_add_up_is_an_exchange(changes: dict[str, object], blocks: int) -> None:
    one, part, kind = divided(Layout(tensor=4, data=2, whole_stream=True))
    once = seconds(one, "all_reduce", STREAM * one.architecture.hidden, Group(4))
    changed = replace(kind, **changes)  # type: ignore[arg-type]
    assert tensor_seconds(part, changed, 512, "forward", OUTLOOK) == pytest.approx(blocks * once)


def test_states_are_shared_past_the_tensor_parallel_ranks() -> None:
    """Two nodes of four, two tensor-parallel ranks: two of the four that share states are in one node."""
    layout = Layout(tensor=2, data=4)
    one, _, _ = divided(layout)
    assert data_group(layout) == Group(4, 2)
    assert node_group(one, layout) == Group(2, 2)


# ── a step ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_all_layers_exchange_in_every_window_and_recomputed_ones_again() -> None:
    """Four layers; of three recomputed ones the forward's exchange comes once more in each backward."""
    one, part, kind = divided(Layout(tensor=4, data=2))
    found, name = terms(one), "tensor-parallel exchange"
    assert list(found) == [(name, window, "compute") for window in WINDOWS]
    there, back = (tensor_seconds(part, kind, 512, way, OUTLOOK) for way in ("forward", "backward"))
    assert found[name, "forward", "compute"].measures == ()
    assert found[name, "forward", "compute"].value(values(one)) == picoseconds(7 * 4 * there)  # type: ignore[arg-type]
    for window, times in ("backward", 5), ("last_backward", 3):
        term = found[name, window, "compute"]
        assert (term.scope, term.measures) == (("layout", "micro_batch"), ("recomputed_layers",))
        expected = picoseconds(times * 4 * back) + 3 * picoseconds(times * there)
        assert term.value(values(one, recomputed_layers=3)) == expected  # type: ignore[arg-type]


def test_keys_and_values_pass_beside_the_layers() -> None:
    one, part, kind = divided(Layout(sequence=4, data=2))
    found = terms(one)
    assert list(found) == [("sequence-parallel exchange", window, "communication") for window in WINDOWS]
    once = sequence_seconds(part, kind, 128, "forward", OUTLOOK)
    assert found["sequence-parallel exchange", "forward", "communication"].value(values(one)) == picoseconds(28 * once)  # type: ignore[arg-type]


def test_layers_wait_for_experts() -> None:
    one = job(model="mixtral-8x7b", cluster=TWO_NODES, training={"runtime": "megatron"})
    layout = Layout(expert=8, data=8)
    one = one.with_choices({"layout": (layout,)})
    term = terms(one)["expert-parallel exchange", "forward", "compute"]
    once = expert_seconds(share(one, layout), one.layer_kinds[0], 512, "forward", OUTLOOK)
    assert once > 0
    assert term.value(values(one)) == picoseconds(7 * 32 * once)  # type: ignore[arg-type]


def test_each_stage_has_its_lane() -> None:
    """Three stages' worth of terms; a pipeline of two has no inner stage, which then takes no time."""
    one, part, kind = divided(Layout(tensor=2, pipeline=2, data=2))
    found = terms(one)
    names = ("tensor-parallel exchange", "pipeline exchange")
    lanes = ("compute", "compute_inner", "compute_last")
    assert list(found) == [(name, window, lane) for lane in lanes for window in WINDOWS for name in names]
    message, layer = pipeline_seconds(part, 512, OUTLOOK), tensor_seconds(part, kind, 512, "forward", OUTLOOK)
    for lane, times in ("compute", 7), ("compute_inner", 0), ("compute_last", 7):
        sent = found["pipeline exchange", "forward", lane]
        assert (sent.scope, sent.measures) == (("layout", "micro_batch"), ())
        assert sent.value(values(one)) == picoseconds(times * message)  # type: ignore[arg-type]
        exchanged = found["tensor-parallel exchange", "forward", lane]
        assert exchanged.value(values(one)) == picoseconds(times * 2 * layer)  # type: ignore[arg-type]
    assert found["tensor-parallel exchange", "backward", "compute_last"].measures == ("recomputed_layers@last",)


def test_a_layout_without_the_degree_pays_nothing() -> None:
    one, _, _ = divided(Layout(tensor=2, data=4))
    both = one.with_choices({"layout": (Layout(tensor=2, data=4), Layout(data=8))})
    term = terms(both)["tensor-parallel exchange", "forward", "compute"]
    assert term.value({"layout": Layout(data=8), "micro_batch": 1}) == 0
    assert term.value({"layout": Layout(tensor=2, data=4), "micro_batch": 1}) > 0


def test_beside_the_layers_the_fullest_stage_is_counted() -> None:
    """Four layers over three stages, the ends with one less: 2 on the inner one; recomputed ones exchange again."""
    layout = Layout(pipeline=3, sequence=2, data=1)
    one = job(cluster={**TWO_NODES, "gpus_per_node": 3}, training={"runtime": "megatron"})
    one = one.with_choices({"layout": (layout,)})
    part, kind = share(one, layout, "first"), one.layer_kinds[0]
    assert [lane for name, _, lane in terms(one) if name == "sequence-parallel exchange"] == ["communication"] * 3
    forward, backward = (sequence_seconds(part, kind, 256, way, OUTLOOK) for way in ("forward", "backward"))
    told = terms(one)["sequence-parallel exchange", "forward", "communication"]
    assert told.value(values(one)) == picoseconds(7 * 2 * forward)  # type: ignore[arg-type]
    told = terms(one)["sequence-parallel exchange", "backward", "communication"]
    assert told.measures == ("recomputed_layers@first", "recomputed_layers@inner", "recomputed_layers@last")
    again = dict(zip(told.measures, (1, 2, 1), strict=True))
    expected = picoseconds(5 * 2 * backward) + 2 * picoseconds(5 * forward)
    assert told.value(values(one, **again)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(("chunks", "hidden"), [(1, (0, 0, 0)), (2, (8, 7, 0))])
def test_messages_pass_while_another_chunk_is_computed(chunks: int, hidden: tuple[int, ...]) -> None:
    """Eight micro-batches of one sequence: but for what fills and drains the pipeline, and the last backward.

    A window that holds 7 messages of a layout without chunks waits for all of them.
    """
    layouts = (Layout(pipeline=2, data=1, virtual_stages=chunks), Layout(pipeline=2, data=1, virtual_stages=2))
    one = job(cluster={**TWO_NODES, "gpus_per_node": 1}, training={"runtime": "megatron"})
    one = one.with_choices({"layout": tuple(dict.fromkeys(layouts))})
    chosen = {"layout": layouts[0], "micro_batch": 1}
    message = pipeline_seconds(share(one, layouts[0], "first"), 512, OUTLOOK)
    for window, beside in zip(WINDOWS, hidden, strict=True):
        told = terms(one)["pipeline exchange", window, "communication"]
        assert told.value(chosen) == picoseconds(beside * message)
        told = terms(one)["pipeline exchange", window, "compute"]
        assert told.value(chosen) == picoseconds((WINDOWS[window] - beside) * message)
