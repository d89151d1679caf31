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
from planner.terms import Limit, MemoryTerm, Requirement, Rule, TimeTerm


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
    def limits(self) -> Mapping[str, Limit]:
        """The capacity of each device that has one, by device."""
        return {item.device: item for item in self.requirements if isinstance(item, Limit)}


def specify(job: Job) -> Specification:
    """Terms and requirements of `job`; pure, no solver involved."""
    from constraints import ALL

    space = job_space(job)
    requirements = tuple(item for constraint in ALL for item in constraint.require(job))
    return Specification(job, space, memory_terms(job), time_terms(job, "typical"), requirements)
