"""Techniques do not conflict.

A technique that cannot be used together with certain values of another choice, or certain degrees of the layout
(`conflicts` in its catalog entry), is never taken with one of them.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, Value, read_from
from planner.terms import Requirement, Rule, Values

NAME = "techniques_do_not_conflict"


def _rule(job: Job, choice: str, value: Value, other: str, unwanted: tuple[Value, ...]) -> Rule:
    """One conflict as a rule over two choices; a degree is read from the layout."""

    def holds(values: Values) -> bool:
        return values[choice] != value or job.derived(other, values) not in unwanted

    return Rule(NAME, (choice, read_from(other)), holds)


def require(job: Job) -> tuple[Requirement, ...]:
    """One rule for each conflict of each technique."""
    return tuple(_rule(job, *pair) for pair in job.techniques.pairs("conflicts"))


def because(job: Job, plan: Plan) -> str | None:
    """The first two techniques that conflict."""
    for choice, value, other, unwanted in job.techniques.pairs("conflicts"):
        if plan[choice] == value and job.derived(other, plan) in unwanted:
            return f"{choice} {value} cannot be used together with {other} {job.derived(other, plan)}"
    return None
