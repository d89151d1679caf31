"""GPU memory leaves the headroom.

Of every GPU as much stays free as the job says (`limits: memory_headroom`), beside the allocator's margin: the plan is
one for a GPU with that much less usable memory.
"""

from __future__ import annotations

from constraints._memory import overflow
from planner.job import Job
from planner.ledger import with_headroom
from planner.plan import Plan
from planner.terms import Limit, Requirement

NAME = "gpu_memory_leaves_the_headroom"


def require(job: Job) -> tuple[Requirement, ...]:
    """The limit of what the headroom leaves to plan with, where the job has one."""
    return (Limit(NAME, "gpu", with_headroom(job)),) if job.limits.memory_headroom else ()


def because(job: Job, plan: Plan) -> str | None:
    """How far the plan reaches into the headroom, and what takes the most."""
    if not job.limits.memory_headroom:
        return None
    return overflow(job, plan, "gpu", with_headroom(job), "that the headroom leaves")
