"""The constraints that leave a job without a plan, the quickest way to a minimal set first."""

from __future__ import annotations

from itertools import product

from planner.conflict import minimal_conflict
from planner.specification import Specification
from planner.terms import Rule


def conflict(specification: Specification) -> tuple[str, ...]:
    """A rule that no values of its choices satisfy, minimal by itself; else what the deletion filter finds."""
    for rule in specification.rules:
        if not _satisfiable(specification, rule):
            return (rule.constraint,)
    return minimal_conflict(specification)[0]


def _satisfiable(specification: Specification, rule: Rule) -> bool:
    """Whether some values of the rule's own choices satisfy it."""
    choices = [specification.space.by_name[name] for name in rule.scope]
    combinations = product(*(choice.values for choice in choices))
    return any(rule.satisfied(dict(zip(rule.scope, values, strict=True))) for values in combinations)
