"""An interleaved pipeline: micro-batches in rounds of as many as there are stages."""

from __future__ import annotations

from typing import Any

import pytest

from constraints import interleaved_pipeline_takes_whole_rounds as constraint
from planner.layouts import layouts
from planner.plan import layout_of
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

MODEL = {"parameters": 200_000_000, "layers": 8, "vocabulary": 8000, "heads": 8}
SPLIT = {"tensor_parallel": 1, "pipeline_parallel": 4, "sequence_parallel": 1, "virtual_stages": 2}


def interleaved(batch: int, **choices: Any) -> Any:
    """Eight layers on four stages of two chunks each, one data-parallel rank."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}
    training = {"runtime": "megatron", "global_batch": batch}
    return job(model=MODEL, cluster=cluster, training=training, choices={**SPLIT, **choices})


@pytest.mark.parametrize("batch", [4, 8, 12])
def test_accepts_whole_rounds(batch: int) -> None:
    found = interleaved(batch)
    assert constraint.because(found, plan(found, micro_batch=1)) is None


def test_rejects_a_part_of_a_round() -> None:
    """8 sequences in micro-batches of 4 are two micro-batches, and a round takes four."""
    found = interleaved(8)
    assert constraint.because(found, plan(found, micro_batch=4)) == (
        "2 micro-batches are no multiple of the 4 stages of a pipeline with 2 model chunks each"
    )


def test_is_not_asked_without_chunks() -> None:
    assert constraint.require(interleaved(8, virtual_stages=1)) == ()
    assert constraint.require(job()) == ()


def test_rules_agree_with_the_sentence() -> None:
    """Batch 24 in micro-batches of 1, 2, 3, 6: 24, 12, 8 and 4 of them, of 4 and 8: 6 and 3."""
    one = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "checkpoint_interval": 0,
           "checkpoint_count": 0, "gradient_accumulation_dtype": "fp32", **PLAIN}  # fmt: skip
    assert verdicts(constraint, interleaved(24, micro_batch=[1, 2, 3, 4, 6, 8], **one)) == (4, 2)


def test_chunks_are_planned_where_every_stage_has_as_many_layers() -> None:
    """8 layers: 2 stages take 1, 2 or 4 chunks, 4 stages 1 or 2; without a pipeline there are none."""
    found = layouts(interleaved(8, pipeline_parallel=[1, 2, 4], virtual_stages=[1, 2, 4, 8]))
    pairs = {(layout.pipeline, layout.virtual_stages) for layout in found}
    assert pairs == {(1, 1), (2, 1), (2, 2), (2, 4), (4, 1), (4, 2)}


def test_without_pins_chunks_are_open() -> None:
    """Interleaving is planned by itself under Megatron."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}
    free = job(model=MODEL, cluster=cluster, training={"runtime": "megatron"})
    assert {layout_of({"layout": layout}).virtual_stages for layout in layouts(free)} == {1, 2, 4}
