"""Stage 0 accumulates gradients in the precision of the model; the other stages in what is asked for."""

from __future__ import annotations

import pytest

from constraints import accumulation_dtype_suits_the_stage as constraint
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan


@pytest.mark.parametrize(("stage", "dtype"), [(0, "bf16"), (1, "bf16"), (1, "fp32"), (3, "fp32")])
def test_accepts(stage: int, dtype: str) -> None:
    found = job()
    assert constraint.because(found, plan(found, zero_stage=stage, gradient_accumulation_dtype=dtype)) is None


def test_rejects() -> None:
    found = job()
    assert constraint.because(found, plan(found, zero_stage=0, gradient_accumulation_dtype="fp32")) == (
        "zero_stage 0 accumulates gradients in bf16, the plan asks for fp32"
    )


def test_other_runtimes_ask_for_nothing() -> None:
    assert len(constraint.require(job())) == 1
    assert constraint.require(job(training={"runtime": "megatron"})) == ()


def test_fp32_training_accumulates_in_its_own_precision_at_every_stage() -> None:
    found = job(training={"precision": "fp32"})
    assert constraint.because(found, plan(found, zero_stage=0, gradient_accumulation_dtype="fp32")) is None
    assert constraint.because(found, plan(found, zero_stage=0, gradient_accumulation_dtype="bf16")) == (
        "zero_stage 0 accumulates gradients in fp32, the plan asks for bf16"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Two stages times two dtypes; stage 0 with fp32 is the one pair that is rejected."""
    one = {"optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
           "checkpoint_count": 0, **PLAIN}  # fmt: skip
    assert verdicts(constraint, job(choices={"zero_stage": [0, 1], **one})) == (3, 1)
