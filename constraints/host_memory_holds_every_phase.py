"""Host memory holds every phase of a step.

What all ranks of a node keep in host memory (states moved there, pinned staging buffers, copies while loading) stays
within the node's memory less a margin for everything else that runs there.
"""

from __future__ import annotations

from constraints._memory import limit, overflow
from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement

NAME = "host_memory_holds_every_phase"


def require(job: Job) -> tuple[Requirement, ...]:
    """The limit of planned capacity."""
    return limit(job, NAME, "host")


def because(job: Job, plan: Plan) -> str | None:
    """How far over the limit the plan is, and what takes the most."""
    return overflow(job, plan, "host")
