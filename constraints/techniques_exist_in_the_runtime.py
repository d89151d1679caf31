"""Techniques exist in the runtime.

A runtime's catalog entry names the values of a choice that it has (`choices`); what it does not name is open.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, Value
from planner.terms import Requirement, Rule, Values

NAME = "techniques_exist_in_the_runtime"


def _rule(choice: str, known: tuple[Value, ...]) -> Rule:
    """One choice's values as a rule."""

    def holds(values: Values) -> bool:
        return values[choice] in known

    return Rule(NAME, (choice,), holds)


def require(job: Job) -> tuple[Requirement, ...]:
    """One rule for each choice that the runtime narrows."""
    return tuple(_rule(choice, known) for choice, known in job.runtime.choices.items())


def because(job: Job, plan: Plan) -> str | None:
    """The first value that the runtime does not have."""
    for choice, known in job.runtime.choices.items():
        if plan[choice] not in known:
            options = " or ".join(str(option) for option in known)
            return f"{job.runtime.runtime} has {choice} {options}, the plan has {plan[choice]}"
    return None
