"""GPU memory holds every phase of a step.

What a rank's books hold at every moment, from loading the model to the optimizer's update, stays within the GPU's
usable memory less the allocator's margin.
"""

from __future__ import annotations

from constraints._memory import limit, overflow
from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement

NAME = "gpu_memory_holds_every_phase"


def require(job: Job) -> tuple[Requirement, ...]:
    """The limit of planned capacity."""
    return limit(job, NAME, "gpu")


def because(job: Job, plan: Plan) -> str | None:
    """How far over the limit the plan is, and what takes the most."""
    return overflow(job, plan, "gpu")
