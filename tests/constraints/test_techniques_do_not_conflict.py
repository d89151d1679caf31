"""A technique is never taken together with a value of another choice that it conflicts with."""

from __future__ import annotations

from pathlib import Path

import pytest

from constraints import techniques_do_not_conflict as constraint
from planner.job import Job
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

FROZEN = """
choice: frozen_embedding
order: 90
summary: whether the embedding is trained
default: "no"
values:
  "no":
    summary: trained
  "yes":
    summary: left as it is
    conflicts: {zero_stage: [2, 3], micro_batch: 4}
"""
ONE = {"optimizer_offload": "none", "parameter_offload": "none", "checkpoint_interval": 0, "checkpoint_count": 0,
       "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip


@pytest.fixture
def found(tmp_path: Path) -> Job:
    file = tmp_path / "frozen_embedding.yaml"
    file.write_text(FROZEN, encoding="utf-8")
    return job([file], choices=ONE)


@pytest.mark.parametrize("stage", [0, 1])
def test_accepts(found: Job, stage: int) -> None:
    assert constraint.because(found, plan(found, frozen_embedding="yes", zero_stage=stage)) is None
    assert constraint.because(found, plan(found, frozen_embedding="no", zero_stage=3)) is None


@pytest.mark.parametrize("stage", [2, 3])
def test_rejects(found: Job, stage: int) -> None:
    assert constraint.because(found, plan(found, frozen_embedding="yes", zero_stage=stage)) == (
        f"frozen_embedding yes cannot be used together with zero_stage {stage}"
    )


def test_rejects_numbers_too(found: Job) -> None:
    assert constraint.because(found, plan(found, frozen_embedding="yes", micro_batch=4)) == (
        "frozen_embedding yes cannot be used together with micro_batch 4"
    )


def test_rules_agree_with_the_sentence(found: Job) -> None:
    """4 stages × 3 micro-batches × 2 = 24: all 12 of `no`, and stages 0, 1 with micro-batches 1, 2 of `yes`."""
    assert verdicts(constraint, found) == (16, 8)


def test_nothing_shipped_conflicts_where_nothing_says_so() -> None:
    plain = job(choices={**ONE, "micro_batch": 1})
    assert constraint.because(plain, plan(plain)) is None
    verdicts(constraint, plain)
