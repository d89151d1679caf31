"""The step time is within the deadline.

One optimizer step, in the typical outlook, takes at most what the job allows (`limits: step_time_at_most`).
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan
from planner.space import job_space
from planner.terms import TIME, Limit, Requirement
from planner.time_lines import step_time
from planner.units import format_seconds

NAME = "step_time_is_within_the_deadline"


def require(job: Job) -> tuple[Requirement, ...]:
    """The limit in microseconds, where the job has one."""
    deadline = job.limits.step_time_at_most
    return () if deadline is None else (Limit(NAME, TIME, deadline),)


def because(job: Job, plan: Plan) -> str | None:
    """How far over the deadline a step is, and what takes the longest."""
    deadline = job.limits.step_time_at_most
    if deadline is None:
        return None
    step = step_time(job, job_space(job).complete(plan))
    if step.microseconds <= deadline:
        return None
    longest = sorted(step.terms.items(), key=lambda item: -item[1])[:3]
    lines = ", ".join(f"{name} {format_seconds(seconds)}" for name, seconds in longest if seconds > 0)
    over = (step.microseconds - deadline) / 1e6
    return (
        f"a step takes {format_seconds(step.seconds)}, {format_seconds(over)} over the deadline of "
        f"{format_seconds(deadline / 1e6)}; most of it is {lines}"
    )
