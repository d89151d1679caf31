"""States move off the GPU only where the runtime has a CPU kernel for their optimizer."""

from __future__ import annotations

import pytest

from constraints import host_runs_the_optimizer as constraint
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan


@pytest.mark.parametrize("optimizer", ["adamw", "adam", "lion"])
@pytest.mark.parametrize("offload", ["none", "cpu", "nvme"])
def test_accepts_optimizers_with_a_cpu_kernel(optimizer: str, offload: str) -> None:
    found = job(training={"optimizer": optimizer})
    assert constraint.because(found, plan(found, optimizer_offload=offload)) is None


@pytest.mark.parametrize("optimizer", ["adafactor", "adamw-8bit", "muon", "sgd"])
@pytest.mark.parametrize("offload", ["cpu", "nvme"])
def test_rejects_the_others(optimizer: str, offload: str) -> None:
    found = job(training={"optimizer": optimizer})
    assert constraint.because(found, plan(found, optimizer_offload=offload)) == (
        f"{optimizer} has no CPU kernel, so optimizer_offload {offload} cannot run"
    )


def test_any_optimizer_runs_on_the_gpu() -> None:
    found = job(training={"optimizer": "adafactor"})
    assert constraint.because(found, plan(found, optimizer_offload="none")) is None


def test_rules_agree_with_the_sentence() -> None:
    """Of none, cpu and nvme only none is left for adafactor."""
    one = {"zero_stage": 3, "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
           "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip
    assert verdicts(constraint, job(training={"optimizer": "adafactor"}, choices=one)) == (1, 2)
    assert verdicts(constraint, job(choices=one)) == (3, 0)
