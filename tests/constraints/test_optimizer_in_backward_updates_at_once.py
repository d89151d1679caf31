"""Gradients applied in backward belong to one micro-batch and are not clipped."""

from __future__ import annotations

import pytest

from constraints import optimizer_in_backward_updates_at_once as constraint
from planner.job import Job
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

ONE = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "checkpoint_interval": 0,
       "checkpoint_count": 0, "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip
BOTH = ["after_backward", "in_backward"]


def found(clipping: float = 0, **choices: object) -> Job:
    """A job that leaves open when the optimizer runs: a global batch of 8 on two ranks."""
    return job(training={"gradient_clipping": clipping}, choices={**ONE, "optimizer_update": BOTH, **choices})


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_accepts_anything_after_backward(micro_batch: int) -> None:
    one = found(clipping=1)
    assert constraint.because(one, plan(one, optimizer_update="after_backward", micro_batch=micro_batch)) is None


def test_accepts_a_single_micro_batch() -> None:
    """8 = 4 sequences × 2 ranks."""
    one = found()
    assert constraint.because(one, plan(one, optimizer_update="in_backward", micro_batch=4)) is None


def test_rejects_a_second_micro_batch() -> None:
    """8 = 2 sequences × 2 ranks × 2."""
    one = found()
    assert constraint.because(one, plan(one, optimizer_update="in_backward", micro_batch=2)) == (
        "gradients applied in backward cannot be added up over 2 micro-batches"
    )


def test_rejects_clipping() -> None:
    one = found(clipping=0.5)
    assert constraint.because(one, plan(one, optimizer_update="in_backward", micro_batch=4)) == (
        "gradients applied in backward cannot be clipped to 0.5"
    )


def test_it_is_taken_only_where_the_job_names_it() -> None:
    """It changes the update where gradients would have been clipped."""
    one = {name: value for name, value in ONE.items() if name != "optimizer_update"}
    plain = job(choices={**one, "micro_batch": 4}, training={"gradient_clipping": 0})
    assert verdicts(constraint, plain) == (1, 0)


def test_rules_agree_with_the_sentence() -> None:
    """Micro-batches 1, 2, 4, 8 by two orders: without clipping 1 and 2 have more than one, with it all are out."""
    assert verdicts(constraint, found(micro_batch=[1, 2, 4, 8])) == (6, 2)
    assert verdicts(constraint, found(clipping=1, micro_batch=[1, 2, 4, 8])) == (4, 4)
