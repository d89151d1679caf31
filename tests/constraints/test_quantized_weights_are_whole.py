"""A 4-bit base is not divided by stage 3."""

from __future__ import annotations

import pytest

from constraints import quantized_weights_are_whole as constraint
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

QLORA = {"method": {"qlora": {"rank": 4}}}


@pytest.mark.parametrize("stage", [0, 1, 2])
def test_accepts_whole_parameters(stage: int) -> None:
    found = job(training=QLORA)
    assert constraint.because(found, plan(found, zero_stage=stage)) is None


def test_rejects_stage_3() -> None:
    found = job(training=QLORA)
    assert constraint.because(found, plan(found, zero_stage=3)) == (
        "zero_stage 3 divides parameters, which a 4-bit base (qlora) cannot be"
    )


@pytest.mark.parametrize("method", ["full", {"lora": {"rank": 4}}])
def test_other_methods_take_any_stage(method: object) -> None:
    found = job(training={"method": method})
    assert constraint.because(found, plan(found, zero_stage=3)) is None


def test_rules_agree_with_the_sentence() -> None:
    """Of four stages one is refused."""
    one = {"optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
           "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip
    assert verdicts(constraint, job(training=QLORA, choices=one)) == (3, 1)
