"""What every constraint keeps: its requirements and its sentence agree on all plans of a tiny space."""

from __future__ import annotations

from types import ModuleType

from planner.job import Job
from planner.ledger import ledger
from planner.plan import Plan
from planner.space import job_space
from planner.terms import TIME, Limit, Requirement, Rule
from planner.time_lines import step_time


def kept(job: Job, plan: Plan, requirement: Requirement) -> bool:
    """Whether the plan satisfies one requirement."""
    if isinstance(requirement, Rule):
        return requirement.satisfied(plan)
    assert isinstance(requirement, Limit)
    if requirement.device == TIME:
        return step_time(job, job_space(job).complete(plan)).microseconds <= requirement.capacity
    return ledger(job, plan)[requirement.device].peak.total <= requirement.capacity


def verdicts(constraint: ModuleType, job: Job) -> tuple[int, int]:
    """(accepted, rejected) plans of the job's space, after holding `require` against `because` on each of them."""
    requirements = constraint.require(job)
    assert all(requirement.constraint == constraint.NAME for requirement in requirements)
    counts = [0, 0]
    for plan in job_space(job).plans():
        accepted = all(kept(job, plan, requirement) for requirement in requirements)
        assert accepted == (constraint.because(job, plan) is None), plan
        counts[not accepted] += 1
    return counts[0], counts[1]
