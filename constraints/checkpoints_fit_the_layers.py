"""The checkpoints fit the layers.

checkpoint_count segments of checkpoint_interval layers each lie inside the model; no checkpoints means interval 0, so
that each way to recompute has one spelling.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, whole
from planner.terms import Requirement, Rule, Values

NAME = "checkpoints_fit_the_layers"
SCOPE = ("checkpoint_count", "checkpoint_interval")


def _pair(values: Values) -> tuple[int, int]:
    """(checkpoint_count, checkpoint_interval)."""
    return whole(values, "checkpoint_count"), whole(values, "checkpoint_interval")


def require(job: Job) -> tuple[Requirement, ...]:
    """The product is at most the number of layers, and zero only together."""
    layers = len(job.layer_kinds)

    def holds(values: Values) -> bool:
        count, interval = _pair(values)
        return (count == 0) == (interval == 0) and count * interval <= layers

    return (Rule(NAME, SCOPE, holds),)


def because(job: Job, plan: Plan) -> str | None:
    """The numbers that do not fit."""
    (count, interval), layers = _pair(plan), len(job.layer_kinds)
    if (count == 0) != (interval == 0):
        return f"checkpoint_count {count} and checkpoint_interval {interval} are zero only together"
    if count * interval > layers:
        return f"{count} checkpoints of {interval} layers need {count * interval} layers, the model has {layers}"
    return None
