"""A runtime has some values of a choice and not others."""

from __future__ import annotations

import pytest

from constraints import techniques_exist_in_the_runtime as constraint
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

ONE = {"parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0, "checkpoint_count": 0,
       "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip


@pytest.mark.parametrize(("runtime", "stage"), [("ddp", 0), ("fsdp2", 3), ("deepspeed", 2)])
def test_accepts_what_the_runtime_has(runtime: str, stage: int) -> None:
    found = job(training={"runtime": runtime})
    assert constraint.because(found, plan(found, zero_stage=stage)) is None


def test_rejects_what_it_has_not() -> None:
    found = job(training={"runtime": "fsdp2"})
    assert constraint.because(found, plan(found, zero_stage=1)) == "fsdp2 has zero_stage 2 or 3, the plan has 1"
    found = job(training={"runtime": "ddp"})
    assert constraint.because(found, plan(found, zero_stage=0, optimizer_offload="cpu")) == (
        "ddp has optimizer_offload none, the plan has cpu"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Four stages by three places of the states: fsdp2 has two of twelve, deepspeed all."""
    assert verdicts(constraint, job(training={"runtime": "fsdp2"}, choices=ONE)) == (2, 10)
    assert verdicts(constraint, job(choices=ONE)) == (12, 0)
