"""The optimizer in backward updates at once.

A gradient that is applied and freed as soon as it exists can neither be added to one of an earlier micro-batch nor be
scaled by a norm over all gradients (torchtune/training/memory.py; its recipes refuse both).
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement, Rule, Values

NAME = "optimizer_in_backward_updates_at_once"


def _at_once(values: Values) -> bool:
    return values["optimizer_update"] == "in_backward"


def require(job: Job) -> tuple[Requirement, ...]:
    """One micro-batch per update, and no clipping."""
    clips = job.training.gradient_clipping > 0

    def holds(values: Values) -> bool:
        return not _at_once(values) or (job.micro_batches(values) == 1 and not clips)

    return (Rule(NAME, ("layout", "micro_batch", "optimizer_update"), holds),)


def because(job: Job, plan: Plan) -> str | None:
    """What stands against applying gradients at once."""
    if not _at_once(plan):
        return None
    if job.training.gradient_clipping > 0:
        return f"gradients applied in backward cannot be clipped to {job.training.gradient_clipping:g}"
    count = job.micro_batches(plan)
    return None if count == 1 else f"gradients applied in backward cannot be added up over {count} micro-batches"
