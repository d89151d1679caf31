"""Techniques have what they need.

A technique that works only with certain values of another choice, or certain degrees of the layout (`needs` in its
catalog entry), is taken only with one of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.job import Job
from planner.plan import Plan, Value, read_from
from planner.sizes import unmet_fact
from planner.terms import Requirement, Rule, Values

NAME = "techniques_have_what_they_need"


def _rule(job: Job, choice: str, value: Value, other: str, wanted: tuple[Value, ...]) -> Rule:
    """One need as a rule over two choices; a degree is read from the layout."""

    def holds(values: Values) -> bool:
        return values[choice] != value or job.derived(other, values) in wanted

    return Rule(NAME, (choice, read_from(other)), holds)


def require(job: Job) -> tuple[Requirement, ...]:
    """One rule for each need of each technique."""
    facts = (_never(choice, value) for choice, value, _ in _idle(job))
    return (*(_rule(job, *pair) for pair in job.techniques.pairs("needs")), *facts)


def _idle(job: Job) -> Iterator[tuple[str, Value, str]]:
    """Techniques that the job names though it has not the facts that they need: (choice, value, fact)."""
    for choice, wanted in job.choices.items():
        for value in wanted:
            unmet = unmet_fact(job, choice, value)
            if unmet is not None:
                yield choice, value, unmet


def _never(choice: str, value: Value) -> Rule:
    """A value that no plan of the job can have."""
    return Rule(NAME, (choice,), lambda values: values[choice] != value)


def because(job: Job, plan: Plan) -> str | None:
    """The first technique whose need is not met."""
    for choice, value, other, wanted in job.techniques.pairs("needs"):
        if plan[choice] == value and job.derived(other, plan) not in wanted:
            options = " or ".join(str(option) for option in wanted)
            return f"{choice} {value} needs {other} {options}, the plan has {other} {job.derived(other, plan)}"
    for choice, named, fact in _idle(job):
        if plan[choice] == named:
            return f"{choice} {named} does nothing where {fact} is {job.facts[fact]}"
    return None
