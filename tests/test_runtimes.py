"""Bytes per parameter of the torch runtimes, against what they were measured to hold."""

from __future__ import annotations

import pytest

from planner.ledger import ledger
from planner.search import solve
from tests.jobs import job, plan

NOT_STATES = ("activations", "buffers", "reserve")


def states(runtime: str, precision: str, moment: str, stage: int) -> float:
    """Bytes per parameter of parameters, gradients and optimizer states at a moment, two ranks."""
    found = job(training={"runtime": runtime, "precision": precision})
    moments = {m.name: m for m in ledger(found, plan(found, zero_stage=stage, micro_batch=4))["gpu"].moments}
    size = sum(line.bytes for line in moments[moment].lines if line.book not in NOT_STATES)
    return size / found.architecture.parameters


@pytest.mark.parametrize(
    ("precision", "wanted"),
    # fp32 or bf16 autocast: 4 + 4 + 8; everything in bf16: 2 + 2 + 4
    [("fp32", 16.0), ("bf16", 16.0), ("pure-bf16", 8.0)],
)
def test_ddp_holds_everything_at_the_step(precision: str, wanted: float) -> None:
    assert states("ddp", precision, "optimizer_step", 0) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("precision", "moment", "wanted"),
    # two ranks: (4 + 8) / 2 between steps and + 4 / 2 at the step; all in bf16 (2 + 4) / 2 and + 2 / 2
    [("bf16", "forward", 6.0), ("bf16", "optimizer_step", 8.0), ("pure-bf16", "optimizer_step", 4.0)],
)
def test_fsdp2_divides_everything(precision: str, moment: str, wanted: float) -> None:
    assert states("fsdp2", precision, moment, 3) == pytest.approx(wanted, rel=1e-3)


def test_fsdp1_keeps_its_gradients() -> None:
    """Two ranks: (4 + 4 + 8) / 2 between steps too."""
    assert states("fsdp1", "bf16", "forward", 3) == pytest.approx(8.0, rel=1e-3)


@pytest.mark.parametrize("runtime", ["ddp", "fsdp1", "fsdp2"])
def test_a_plan_is_found_and_proven(runtime: str) -> None:
    solution = solve(job(training={"runtime": runtime}))
    assert solution.proof.optimal
    assert solution.best.step_time.terms["compute"] > 0
    assert any("gradient" in name for name in solution.best.step_time.terms)
