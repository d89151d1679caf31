"""global_batch = micro_batch × gradient_accumulation × data-parallel ranks, in whole numbers."""

from __future__ import annotations

import pytest

from constraints import batch_divides_over_ranks as constraint
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan


# Two ranks, batch 8: 8 = 1 × 4 × 2 = 2 × 2 × 2 = 4 × 1 × 2.
@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_accepts(micro_batch: int) -> None:
    found = job()
    assert constraint.because(found, plan(found, micro_batch=micro_batch)) is None


def test_rejects() -> None:
    """8 is no multiple of 3 × 2 = 6."""
    found = job(choices={"micro_batch": [1, 3]})
    assert constraint.because(found, plan(found, micro_batch=3)) == (
        "a global batch of 8 is no multiple of micro_batch 3 × 2 data-parallel ranks = 6"
    )


def test_the_boundary_is_the_whole_batch_at_once() -> None:
    """4 × 2 = 8 takes all at once; 8 × 2 = 16 is twice the batch, of which 8 is no multiple."""
    found = job(choices={"micro_batch": [4, 8]})
    assert constraint.because(found, plan(found, micro_batch=4)) is None
    assert constraint.because(found, plan(found, micro_batch=8)) == (
        "a global batch of 8 is no multiple of micro_batch 8 × 2 data-parallel ranks = 16"
    )


def test_a_batch_below_the_ranks_never_divides() -> None:
    """One sequence cannot be shared by two ranks."""
    found = job(training={"global_batch": 1})
    assert constraint.because(found, plan(found)) == (
        "a global batch of 1 is no multiple of micro_batch 1 × 2 data-parallel ranks = 2"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Of the micro-batches 1 to 5, 8 is a multiple of 2, 4 and 8 but not of 6 and 10."""
    one = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "checkpoint_interval": 0,
           "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip
    assert verdicts(constraint, job(choices={"micro_batch": [1, 2, 3, 4, 5], **one})) == (3, 2)
