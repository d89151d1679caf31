"""A plan in a line: what is told whatever its value, and what only where it is not plain."""

from __future__ import annotations

from planner.evaluate import evaluate
from planner.layouts import layouts
from planner.plan_summary import plan_summary
from tests.jobs import job, plan


def test_the_plainest_plan_is_short() -> None:
    found = job()
    assert plan_summary(evaluate(found, plan(found, zero_stage=0, micro_batch=1))) == "ZeRO 0, micro-batch 1"


def test_what_is_not_plain_is_told() -> None:
    """Three of the four layers in one checkpoint; one layer in each of two."""
    found = job()
    changed = plan(found, zero_stage=2, micro_batch=4, checkpoint_count=1, checkpoint_interval=3)
    assert plan_summary(evaluate(found, changed)) == "ZeRO 2, micro-batch 4, 1 checkpoint every 3"
    offloaded = plan(found, zero_stage=3, checkpoint_count=2, checkpoint_interval=1, optimizer_offload="cpu")
    assert plan_summary(evaluate(found, offloaded)) == "ZeRO 3, micro-batch 1, 2 checkpoints, optimizer offload cpu"


def test_degrees_are_told_and_what_the_runtime_settles_is_not() -> None:
    """Both GPUs hold half of every matrix."""
    found = job(training={"runtime": "megatron"})
    halves = next(layout for layout in layouts(found) if layout.tensor == 2)
    told = plan_summary(evaluate(found, plan(found, layout=halves))).split(", ")
    assert "tensor 2" in told
    assert not [part for part in told if part.startswith("data")]
