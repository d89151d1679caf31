"""Legal layouts, and what a pipeline stage holds, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.job import Job
from planner.layouts import STAGES, WHOLE, chunks_under_way, layouts, stage_layers, stage_rank, stages
from planner.plan import Layout
from tests.jobs import job

MODEL = {"parameters": 200_000_000, "layers": 6, "vocabulary": 8000, "heads": 8}


def megatron(gpus: int = 8, model: Any = MODEL, nodes: int = 1, runtime: str = "megatron") -> Job:
    """A job whose runtime has every degree."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": gpus, "nodes": nodes, "interconnect": "200 Gbit/s"}
    return job(model=model, cluster=cluster, training={"runtime": runtime})


@pytest.mark.parametrize(
    ("layers", "pipeline", "expected"),
    [
        (8, 4, [(0, 2), (2, 2), (6, 2)]),
        # two stages have no inner one; the first of them holds the odd layer
        (6, 2, [(0, 3), (0, 0), (3, 3)]),
        (5, 2, [(0, 3), (0, 0), (3, 2)]),
        # 2 2 2 1
        (7, 4, [(0, 2), (2, 2), (6, 1)]),
        # 2 1 1 1: the inner stage starts after the first
        (5, 4, [(0, 2), (2, 1), (4, 1)]),
        # 70 + 2 over 12 are 6 each: 5 6 … 6 5
        (70, 12, [(0, 5), (5, 6), (65, 5)]),
        # 6 + 2 over 4: 1 2 2 1
        (6, 4, [(0, 1), (1, 2), (5, 1)]),
        (6, 6, [(0, 1), (1, 1), (5, 1)]),
    ],
)
def test_layers_of_the_stages(layers: int, pipeline: int, expected: list[tuple[int, int]]) -> None:
    found = [stage_layers(layers, Layout(pipeline=pipeline), stage) for stage in STAGES]
    assert found == expected


def test_without_a_pipeline_one_stage_holds_everything() -> None:
    """Beside layouts with a pipeline the whole model is called the first stage."""
    found = {stage: stage_layers(7, Layout(), stage) for stage in (WHOLE, *STAGES)}
    assert found == {WHOLE: (0, 7), "first": (0, 7), "inner": (0, 0), "last": (0, 0)}


@pytest.mark.parametrize("pipeline", range(2, 13))
@pytest.mark.parametrize("layers", [12, 13, 17, 22, 23, 32, 70, 80])
def test_stages_cover_the_layers(layers: int, pipeline: int) -> None:
    """No stage between the ends holds more than the second one, none less than one layer fewer."""
    first, inner, last = (stage_layers(layers, Layout(pipeline=pipeline), stage)[1] for stage in STAGES)
    between = layers - first - last
    assert first > 0 and last > 0
    assert (inner - 1) * (pipeline - 2) <= between <= inner * (pipeline - 2)


def test_ranks_of_the_stages() -> None:
    assert [stage_rank(Layout(pipeline=5), stage) for stage in (WHOLE, *STAGES)] == [0, 0, 1, 4]


@pytest.mark.parametrize(
    ("layout", "micro_batches", "expected"),
    [
        # no pipeline: the micro-batch that runs
        (Layout(), 16, [1]),
        # stage r of p holds p - r: 4, 3, 1
        (Layout(pipeline=4), 16, [4, 3, 1]),
        # never more than there are
        (Layout(pipeline=4), 2, [2, 2, 1]),
        # 2 chunks each: 2·3 + 4 + 1 = 11, 2·2 + 4 + 1 = 9, 0 + 4 + 1 = 5
        (Layout(pipeline=4, virtual_stages=2), 16, [11, 9, 5]),
        # 2 micro-batches are 4 chunks
        (Layout(pipeline=4, virtual_stages=2), 2, [4, 4, 4]),
        # no pipeline with chunks: all chunks of one micro-batch
        (Layout(virtual_stages=3), 16, [3]),
    ],
)
def test_chunks_under_way(layout: Layout, micro_batches: int, expected: list[int]) -> None:
    names = STAGES if layout.pipeline > 1 else (WHOLE,)
    assert [chunks_under_way(layout, stage, micro_batches) for stage in names] == expected


def test_every_rank_is_used() -> None:
    found = layouts(megatron())
    assert all(layout.ranks == 8 for layout in found)
    assert len(set(found)) == len(found)
    assert Layout(data=8) in found
    assert Layout(tensor=2, pipeline=2, sequence=2) in found


def test_tensor_parallelism_divides_the_heads_inside_a_node() -> None:
    """8 heads in nodes of 4: 1, 2, 4."""
    assert {layout.tensor for layout in layouts(megatron(4, nodes=2))} == {1, 2, 4}
    assert {layout.tensor for layout in layouts(megatron(model={**MODEL, "heads": 6}))} == {1, 2}


def test_a_pipeline_has_at_most_as_many_stages_as_layers() -> None:
    """Of the divisors of 8 GPUs, 8 is more than 6 layers."""
    assert {layout.pipeline for layout in layouts(megatron())} == {1, 2, 4}


def test_expert_parallelism_divides_the_experts_and_lies_inside_the_data_parallel_ranks() -> None:
    """8 experts over 1, 2, 4, 8; with 2 tensor-parallel ranks 4 remain."""
    found = layouts(megatron(model="dense_then_experts/config.json"))
    assert {layout.expert for layout in found} == {1, 2, 4, 8}
    assert {layout.expert for layout in found if layout.tensor == 2} == {1, 2, 4}
    assert {layout.expert for layout in layouts(megatron())} == {1}


def test_degrees_that_a_runtime_does_not_open_stay_at_one() -> None:
    assert layouts(megatron(runtime="deepspeed")) == (Layout(data=8),)
    assert layouts(megatron(runtime="fsdp2")) == (Layout(data=8),)
    assert {layout.sequence for layout in layouts(megatron(runtime="megatron-deepspeed"))} == {1}


def test_degrees_on_request_are_taken_where_the_job_names_them() -> None:
    found = megatron(runtime="fsdp2").with_choices({"tensor_parallel": (1, 2)})
    assert layouts(found) == (Layout(data=8), Layout(tensor=2, data=4))


def test_a_runtime_that_keeps_the_stream_whole_says_so_for_every_divided_layout() -> None:
    found = layouts(megatron(runtime="megatron-deepspeed"))
    assert {(layout.tensor > 1, layout.whole_stream) for layout in found} == {(False, False), (True, True)}


def test_pinned_layouts_are_taken_as_they_are() -> None:
    pinned = (Layout(tensor=3, data=7),)
    assert layouts(megatron().with_choices({"layout": pinned})) == pinned


def test_stages_are_told_apart_only_where_there_is_a_pipeline() -> None:
    found = megatron()
    assert stages(found) == STAGES
    assert stages(found.with_choices({"pipeline_parallel": (1,)})) == (WHOLE,)
    assert stages(megatron(runtime="deepspeed")) == (WHOLE,)


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        # 8 heads in nodes of 8: 3 divides neither, 16 is more than there are GPUs
        ({"tensor_parallel": (3,)}, "choices.tensor_parallel: tensor_parallel 3: no such layout of 8 GPUs"),
        # 8 stages divide the GPUs and exceed 6 layers
        ({"pipeline_parallel": (8,)}, "choices.pipeline_parallel: pipeline_parallel 8: no such layout of 8 GPUs"),
        # 4 × 4 is more than 8
        ({"tensor_parallel": (4,), "pipeline_parallel": (4, 6)},
         "choices.tensor_parallel: tensor_parallel 4, pipeline_parallel 4 or 6: no such layout of 8 GPUs"),
        ({"expert_parallel": (2,)}, "choices.expert_parallel: expert_parallel 2: no such layout of 8 GPUs"),
    ],
)  # fmt: skip
def test_degrees_that_no_layout_has(choices: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError) as caught:
        layouts(megatron().with_choices(choices))
    assert str(caught.value) == (
        f"{expected}; expected degrees that divide the GPUs, the model's heads, experts and tokens, "
        "and a layer for each stage"
    )


def test_hybrid_sharding_divides_states_inside_a_node() -> None:
    """Two nodes of 2: all 4 ranks share the states, or the 2 of each node with a replica on the other."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 2, "nodes": 2, "interconnect": "200 Gbit/s"}
    found = layouts(job(cluster=cluster, training={"runtime": "fsdp2"}))
    assert [(layout.data, layout.shards, layout.replicas) for layout in found] == [(4, 4, 1), (4, 2, 2)]
    one_node = layouts(job(cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 4}, training={"runtime": "fsdp2"}))
    assert [(layout.shards, layout.replicas) for layout in one_node] == [(4, 1)]
