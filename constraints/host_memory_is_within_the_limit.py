"""Host memory is within the limit.

What all ranks of a node keep in its memory is at most what the job allows (`limits: host_memory_at_most`), as a batch
system or a container does.
"""

from __future__ import annotations

from constraints._memory import overflow
from planner.job import Job
from planner.plan import Plan
from planner.terms import Limit, Requirement

NAME = "host_memory_is_within_the_limit"


def require(job: Job) -> tuple[Requirement, ...]:
    """The limit in bytes, where the job has one."""
    most = job.limits.host_memory_at_most
    return () if most is None else (Limit(NAME, "host", most),)


def because(job: Job, plan: Plan) -> str | None:
    """How far over the limit the plan is, and what takes the most."""
    most = job.limits.host_memory_at_most
    return None if most is None else overflow(job, plan, "host", most, "that the job may take")
