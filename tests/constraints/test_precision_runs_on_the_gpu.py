"""The GPU has matrix units for the job's precision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from constraints import precision_runs_on_the_gpu as constraint
from planner.hardware_catalog import gpu, precision
from planner.job import Job
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

ONE = {"optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
       "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip


def on(gpu_key: str, precision_key: str) -> Job:
    """The small job on another GPU in another precision, past the check of the job file."""
    found = job(choices=ONE)
    training = replace(found.training, precision=precision(precision_key))
    return replace(found, training=training, cluster=replace(found.cluster, gpu=gpu(gpu_key)))


@pytest.mark.parametrize(
    ("gpu_key", "precision_key"),
    [("v100-sxm2-32gb", "fp16"), ("a100-sxm-80gb", "bf16"), ("h100-sxm-80gb", "fp8"), ("rtx4090-24gb", "fp8")],
)
def test_accepts(gpu_key: str, precision_key: str) -> None:
    found = on(gpu_key, precision_key)
    assert constraint.because(found, plan(found)) is None


def test_rejects_bf16_before_ampere() -> None:
    found = on("v100-sxm2-32gb", "bf16")
    assert constraint.because(found, plan(found)) == "v100-sxm2-32gb has no bf16; it has fp32, fp16"


def test_rejects_fp8_on_ampere() -> None:
    found = on("a100-sxm-80gb", "fp8")
    assert constraint.because(found, plan(found)) == "a100-sxm-80gb has no fp8; it has fp32, tf32, fp16, bf16"


def test_rules_agree_with_the_sentence() -> None:
    """No choice matters: all four stages, or none."""
    assert verdicts(constraint, on("h100-sxm-80gb", "fp8")) == (4, 0)
    assert verdicts(constraint, on("a100-sxm-80gb", "fp8")) == (0, 4)
