"""The planning problem of a job: candidate space, terms, requirements. The one place that meets `constraints`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.choices import Space
from planner.job import Job
from planner.memory import memory_terms
from planner.space import job_space
from planner.step_time import time_terms
from planner.terms import TIME, Limit, MemoryTerm, Requirement, Rule, TimeTerm


@dataclass(frozen=True, eq=False)
class Specification:
    """What every plan of a job is made of and held to; `requirements` in the order of `constraints.ALL`."""

    job: Job
    space: Space
    memory: tuple[MemoryTerm, ...]
    time: tuple[TimeTerm, ...]
    requirements: tuple[Requirement, ...]

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The requirements that are predicates over choices."""
        return tuple(item for item in self.requirements if isinstance(item, Rule))

    @cached_property
    def every_limit(self) -> tuple[Limit, ...]:
        """All limits: a device may have several, and the step time one."""
        return tuple(item for item in self.requirements if isinstance(item, Limit))

    @cached_property
    def limits(self) -> Mapping[str, Limit]:
        """The tightest limit of each device that has one, by device."""
        found: dict[str, Limit] = {}
        for item in sorted(self.every_limit, key=lambda limit: limit.capacity):
            if item.device != TIME:
                found.setdefault(item.device, item)
        return {item.device: found[item.device] for item in self.every_limit if item.device != TIME}

    @cached_property
    def capacities(self) -> Mapping[str, int]:
        """The tightest capacity of each device that has one, in bytes, and of `time` in microseconds."""
        return self.capacities_of(None)

    def capacities_of(self, active: frozenset[str] | None) -> dict[str, int]:
        """The tightest capacities that the named constraints set, all of them by default."""
        found: dict[str, int] = {}
        for item in self.every_limit:
            if active is None or item.constraint in active:
                found[item.device] = min(item.capacity, found.get(item.device, item.capacity))
        return found


def specify(job: Job) -> Specification:
    """Terms and requirements of `job`; pure, no solver involved."""
    from constraints import ALL

    space = job_space(job)
    requirements = tuple(item for constraint in ALL for item in constraint.require(job))
    return Specification(job, space, memory_terms(job), time_terms(job, "typical"), requirements)
