"""One rank's share of a pipeline stage, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.job import Job
from planner.layouts import STAGES, WHOLE, stages
from planner.plan import Layout
from planner.quantities import BY_NAME
from planner.share import Share, measure_name, share
from planner.space import job_space
from tests.jobs import job

MODEL = {"parameters": 200_000_000, "layers": 6, "vocabulary": 8000, "heads": 8}
EXPERTS = "dense_then_experts/config.json"  # two dense layers, then three of 8 experts, tables of 8000 × 512, untied
CLUSTER = {"gpu": "a100-sxm-80gb", "gpus_per_node": 8}


def found(model: Any = MODEL, **training: Any) -> Job:
    """A job with every degree."""
    return job(model=model, cluster=CLUSTER, training={"runtime": "megatron", **training})


def parts(one: Job, layout: Layout) -> dict[str, Share]:
    """The share of each stage."""
    return {stage: share(one, layout, stage) for stage in STAGES}


@pytest.mark.parametrize(("pipeline", "inner"), [(1, 0), (2, 0), (3, 1), (6, 4)])
def test_the_stages_add_up_to_the_model(pipeline: int, inner: int) -> None:
    """6 layers in equal stages; the inner ones are alike."""
    one = found()
    held = parts(one, Layout(pipeline=pipeline))
    assert held["inner"].exists == (inner > 0)
    total = held["first"].parameters + inner * held["inner"].parameters + held["last"].parameters
    assert total == one.architecture.parameters


def test_the_ends_hold_the_tables() -> None:
    """Two dense layers, three with experts, in two stages: 3 and 2. Table and head 8000 × 512, a norm of 512."""
    one = found(EXPERTS)
    dense, experts = (kind.parameters for kind, _ in one.kind_counts)
    held = parts(one, Layout(pipeline=2, data=4))
    assert held["first"].parameters == 8000 * 512 + 2 * dense + experts
    assert held["last"].parameters == 2 * experts + 512 + 8000 * 512
    assert (held["first"].head, held["last"].head) == (0, 8000 * 512)
    assert (held["first"].embedding, held["last"].embedding) == (8000 * 512, 0)
    assert (held["first"].root, held["last"].root) == (8000 * 512, 512 + 8000 * 512)


def test_layer_kinds_of_a_stage() -> None:
    one = found(EXPERTS)
    (dense, _), (experts, _) = one.kind_counts
    held = parts(one, Layout(pipeline=2, data=4))
    assert held["first"].kind_counts == ((dense, 2), (experts, 1))
    assert held["last"].kind_counts == ((experts, 2),)
    assert held["inner"].kind_counts == ()
    assert share(one, Layout(data=8)).kind_counts == one.kind_counts


def test_a_tied_embedding_stands_on_both_ends() -> None:
    """llama-3.2-1b: 128256 × 2048, tied, 16 layers."""
    one = found("llama-3.2-1b")
    table, norm = 128256 * 2048, 2048
    layer = one.layer_kinds[0].parameters
    held = parts(one, Layout(pipeline=4, data=2))
    assert held["first"].parameters == table + 4 * layer
    assert held["inner"].parameters == 4 * layer
    assert held["last"].parameters == 4 * layer + norm + table
    # the two gradients and their sum are of one rank only where it has both uses of the table
    assert [held[stage].tied_gradient for stage in STAGES] == [0, 0, 0]
    assert share(one, Layout(data=8)).tied_gradient == table


def test_tensor_parallel_ranks_hold_half_of_the_matrices() -> None:
    one = found()
    tensors = [*one.architecture.outside, *(tensor for kind in one.layer_kinds for tensor in kind.tensors)]
    whole = sum(tensor.elements for tensor in tensors if tensor.role in ("norm", "other"))
    held = share(one, Layout(tensor=2, data=4))
    assert 2 * (held.parameters - whole) == one.architecture.parameters - whole
    assert 2 * held.largest_tensor == one.architecture.largest_tensor
    assert held.head * 2 == 8000 * one.architecture.hidden


def test_experts_count_once_for_each_copy() -> None:
    """8 experts of 3·512·512 in 3 layers over 4 ranks: 2 each; a copy of the states spans 8 ranks, 2 for each expert.

    A rank's part of the dense states is an eighth of them, of its experts' a half: (dense + 4 · own experts) / 8.
    """
    one = found(EXPERTS)
    whole, held = share(one, Layout(data=8)), share(one, Layout(expert=4, data=8))
    assert whole.experts() == 3 * 8 * 3 * 512 * 512
    assert held.experts() == whole.experts() // 4
    assert held.parameters == whole.parameters - 3 * whole.experts() // 4
    assert BY_NAME["trainable"].elements(held, {}) == held.trainable
    assert BY_NAME["trainable"].per_copy(held, {}) == held.trainable + 3 * held.experts() == whole.trainable
    assert BY_NAME["partition"].elements(held, {}) == -(-whole.trainable // 8)


def test_a_stage_that_is_not_there_holds_nothing() -> None:
    held = share(found(), Layout(pipeline=2, data=4), "inner")
    assert (held.exists, held.is_first, held.is_last) == (False, False, False)
    assert (held.parameters, held.trainable, held.head, held.largest_layer, held.counted) == (0, 0, 0, 0, ())


def test_without_a_pipeline_the_first_stage_is_the_model() -> None:
    """Where other layouts of a job have stages, a layout without them is all in the first."""
    one = found()
    assert stages(one) == STAGES
    first, whole = share(one, Layout(data=8), "first"), share(one, Layout(data=8), WHOLE)
    assert (first.is_first, first.is_last) == (whole.is_first, whole.is_last) == (True, True)
    assert first.parameters == whole.parameters == one.architecture.parameters
    assert not share(one, Layout(data=8), "last").exists


def test_only_adapters_of_the_stage_are_trained() -> None:
    one = found(method={"lora": {"rank": 4}})
    held = parts(one, Layout(pipeline=2, data=4))
    assert held["first"].trainable + held["last"].trainable == one.trainable_parameters
    assert held["first"].trained_root == held["last"].trained_root == 0


def test_what_waits_is_counted_by_chunks() -> None:
    """Four stages, two chunks each: stage 0 holds 11 chunks of half a stage, ten of them other micro-batches'."""
    one = found()
    held = share(one, Layout(pipeline=4, data=2, virtual_stages=2), "first")
    assert held.under_way(100, micro_batches=16) == 11 * 50
    assert held.others_under_way(100, micro_batches=16) == 10 * 50
    assert held.under_way(3, micro_batches=16) == 17  # 16.5
    alone = share(one, Layout(data=8))
    assert (alone.under_way(100, 16), alone.others_under_way(100, 16)) == (100, 0)


def test_measures_have_names_of_their_own_at_each_stage() -> None:
    one = found(EXPERTS)
    names = [measure.name for measure in job_space(one).measures]
    assert names == [
        measure_name(name, stage)
        for stage in STAGES
        for name in ("recomputed_layers", "recomputed_layers_2", "checkpoints")
    ]
    assert len(set(names)) == 9
    assert set(share(one, Layout(pipeline=2, data=4), "last").recomputed) <= set(names)
