"""Techniques do not conflict.

A technique that cannot be used together with certain values of another choice (`conflicts` in its catalog entry) is
never taken with one of them.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, Value
from planner.terms import Requirement, Rule, Values

NAME = "techniques_do_not_conflict"


def _rule(choice: str, value: Value, other: str, unwanted: tuple[Value, ...]) -> Rule:
    """One conflict as a rule over two choices."""

    def holds(values: Values) -> bool:
        return values[choice] != value or values[other] not in unwanted

    return Rule(NAME, (choice, other), holds)


def require(job: Job) -> tuple[Requirement, ...]:
    """One rule for each conflict of each technique."""
    return tuple(_rule(*pair) for pair in job.techniques.pairs("conflicts"))


def because(job: Job, plan: Plan) -> str | None:
    """The first two techniques that conflict."""
    for choice, value, other, unwanted in job.techniques.pairs("conflicts"):
        if plan[choice] == value and plan[other] in unwanted:
            return f"{choice} {value} cannot be used together with {other} {plan[other]}"
    return None
