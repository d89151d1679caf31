"""The checkpoints fit the layers.

checkpoint_count segments of checkpoint_interval layers each lie inside the model, or inside the longest stage of a
pipeline; no checkpoints means interval 0, so that each way to recompute has one spelling.
"""

from __future__ import annotations

from planner.job import Job
from planner.layouts import WHOLE, stage_layers, stages
from planner.plan import Plan, layout_of, whole
from planner.terms import Requirement, Rule, Values

NAME = "checkpoints_fit_the_layers"
SCOPE = ("checkpoint_count", "checkpoint_interval")


def _pair(values: Values) -> tuple[int, int]:
    """(checkpoint_count, checkpoint_interval)."""
    return whole(values, "checkpoint_count"), whole(values, "checkpoint_interval")


def require(job: Job) -> tuple[Requirement, ...]:
    """The product is at most the number of layers, and zero only together."""

    def holds(values: Values) -> bool:
        count, interval = _pair(values)
        return (count == 0) == (interval == 0) and count * interval <= _layers(job, values)

    return (Rule(NAME, SCOPE if stages(job) == (WHOLE,) else (*SCOPE, "layout"), holds),)


def _layers(job: Job, values: Values) -> int:
    """Layers of the longest pipeline stage."""
    layers, found = len(job.layer_kinds), stages(job)
    if found == (WHOLE,):
        return layers
    return max(stage_layers(layers, layout_of(values), stage)[1] for stage in found)


def because(job: Job, plan: Plan) -> str | None:
    """The numbers that do not fit."""
    (count, interval), layers = _pair(plan), _layers(job, plan)
    if (count == 0) != (interval == 0):
        return f"checkpoint_count {count} and checkpoint_interval {interval} are zero only together"
    if count * interval > layers:
        return f"{count} checkpoints of {interval} layers need {count * interval} layers, {_holder(job)} has {layers}"
    return None


def _holder(job: Job) -> str:
    """What holds the layers."""
    return "the model" if stages(job) == (WHOLE,) else "the longest pipeline stage"
