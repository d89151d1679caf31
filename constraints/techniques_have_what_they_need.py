"""Techniques have what they need.

A technique that works only with certain values of another choice (`needs` in its catalog entry) is taken only with one
of them.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, Value
from planner.terms import Requirement, Rule, Values

NAME = "techniques_have_what_they_need"


def _rule(choice: str, value: Value, other: str, wanted: tuple[Value, ...]) -> Rule:
    """One need as a rule over two choices."""

    def holds(values: Values) -> bool:
        return values[choice] != value or values[other] in wanted

    return Rule(NAME, (choice, other), holds)


def require(job: Job) -> tuple[Requirement, ...]:
    """One rule for each need of each technique."""
    return tuple(_rule(*pair) for pair in job.techniques.pairs("needs"))


def because(job: Job, plan: Plan) -> str | None:
    """The first technique whose need is not met."""
    for choice, value, other, wanted in job.techniques.pairs("needs"):
        if plan[choice] == value and plan[other] not in wanted:
            options = " or ".join(str(option) for option in wanted)
            return f"{choice} {value} needs {other} {options}, the plan has {other} {plan[other]}"
    return None
