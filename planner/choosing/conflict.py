"""Why a cluster holds no plan, quickly: which limits cannot hold together while all other constraints do."""

from __future__ import annotations

from planner.conflict import feasibility, minimal_conflict
from planner.job import Job
from planner.specification import Specification, specify
from planner.terms import Limit


def limits_in_conflict(job: Job) -> tuple[str, ...]:
    """Names of limits that cannot hold together and of which none can be left out, all other constraints being kept.

    Of a job that no plan satisfies. Where not even the other constraints can hold, a minimal conflict among all.
    """
    specification = specify(job)
    kept = list(dict.fromkeys(item.constraint for item in specification.requirements if isinstance(item, Limit)))
    if not _holds(specification, frozenset()):
        return minimal_conflict(specification)[0]
    for name in tuple(kept):
        without = frozenset(kept) - {name}
        if not _holds(specification, without):
            kept.remove(name)
    return tuple(kept)


def _holds(specification: Specification, limits: frozenset[str]) -> bool:
    """Whether some plan satisfies these limits and every rule."""
    rules = frozenset(item.constraint for item in specification.requirements if not isinstance(item, Limit))
    return feasibility(specification, None, [])(rules | limits)
