"""An exhaustive search: every candidate plan of a job, one by one, in the order in which plans are better.

Knows terms and requirements, no points and no solver. To be quick it reads each term once for each combination of its
scope and measures.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from planner.errors import NoPlan
from planner.evaluate import evaluate
from planner.job import Job
from planner.memory import memory_terms
from planner.objective import GRAIN
from planner.plan import Plan, Value
from planner.specification import Specification, specify
from planner.step_time import time_terms
from planner.terms import TIME, WINDOWS, Limit, MemoryTerm, Term
from tests.jobs import random_plan

Figures = tuple[dict[str, int], int]


class Oracle:
    """Reads memory peaks, step time and requirements of one plan at a time."""

    def __init__(self, job: Job) -> None:
        self.specification: Specification = specify(job)
        groups: dict[tuple[str, ...], list[Term]] = {}
        for term in (*memory_terms(job), *time_terms(job, "typical")):
            groups.setdefault((*term.scope, *term.measures), []).append(term)
        self.groups = list(groups.items())
        self.seen: dict[tuple[object, ...], dict[tuple[str, str], int]] = {}

    def sums(self, values: Mapping[str, Value]) -> dict[tuple[str, str], int]:
        """Bytes by (device, stage and moment) and microseconds by (window, lane)."""
        total: dict[tuple[str, str], int] = {}
        for index, (names, terms) in enumerate(self.groups):
            key = (index, *(values[name] for name in names))
            if key not in self.seen:
                self.seen[key] = _places(terms, values)
            for place, amount in self.seen[key].items():
                total[place] = total.get(place, 0) + amount
        return total

    def figures(self, plan: Plan) -> Figures:
        """(peak bytes by device, microseconds of the step)."""
        sums = self.sums(self.specification.space.complete(plan))
        peaks = {"gpu": 0, "host": 0, "nvme": 0}
        lanes: dict[str, dict[str, int]] = {window: {} for window in WINDOWS}
        for (place, detail), amount in sums.items():
            if place in peaks:
                peaks[place] = max(peaks[place], amount)
            else:
                lanes[place][detail] = amount
        return peaks, sum(found.pop("serial", 0) + max(found.values(), default=0) for found in lanes.values())

    def legal(self, plan: Plan) -> bool:
        """Whether every rule holds."""
        return all(rule.satisfied(plan) for rule in self.specification.rules)

    def fits(self, figures: Figures, limits: tuple[Limit, ...] | None = None) -> bool:
        """Whether every limit holds, or those given."""
        peaks, microseconds = figures
        held = {**peaks, TIME: microseconds}
        kept = self.specification.every_limit if limits is None else limits
        return all(held[limit.device] <= limit.capacity for limit in kept)

    def ranking(self, most: int = 1) -> list[Plan]:
        """The best plans in order, each unlike all before it in a choice that is not fine; empty where none survives.

        By the objective, then the other of time and memory, then the catalog's order. With a tolerance the plans within
        it come first, by the second objective.
        """
        job, space = self.specification.job, self.specification.space
        legal = ((plan, self.figures(plan)) for plan in space.plans() if self.legal(plan))
        found = [(plan, self._goals(figures)) for plan, figures in legal if self.fits(figures)]
        least = min((first for _, (first, _) in found), default=0)
        near = least + int(least * job.within) if job.within else -1
        found.sort(key=lambda item: (_order(item[1], near), space.rank(item[0])))
        fine = {name for name, entry in job.techniques.choices.items() if entry.fine}
        kept: dict[tuple[object, ...], Plan] = {}
        for plan, _ in found:
            kept.setdefault(tuple(value for name, value in plan.items() if name not in fine), plan)
        return list(kept.values())[:most]

    def _goals(self, figures: Figures) -> tuple[int, int]:
        """Microseconds and whole grains of one GPU's memory, the job's objective first."""
        peaks, microseconds = figures
        memory = -(-peaks["gpu"] // GRAIN)
        return (memory, microseconds) if self.specification.job.objective == "memory" else (microseconds, memory)

    def best(self) -> Plan | None:
        """The plan that the search must find, None where no plan survives."""
        return next(iter(self.ranking()), None)

    def some_plan(self, names: frozenset[str]) -> bool:
        """Whether some plan satisfies the requirements of these names, whatever the others say."""
        rules = [rule for rule in self.specification.rules if rule.constraint in names]
        limits = tuple(limit for limit in self.specification.every_limit if limit.constraint in names)
        plans = (plan for plan in self.specification.space.plans() if all(rule.satisfied(plan) for rule in rules))
        return any(not limits or self.fits(self.figures(plan), limits) for plan in plans)


def _order(goals: tuple[int, int], near: int) -> tuple[int, int, int]:
    """Plans within reach of the best one by the second goal, then all others by the first."""
    first, second = goals
    return (0, second, first) if first <= near else (1, first, second)


def _places(terms: list[Term], values: Mapping[str, Value]) -> dict[tuple[str, str], int]:
    """What terms of one scope add to each place."""
    sums: dict[tuple[str, str], int] = {}
    for term in terms:
        if amount := term.value(values):
            if isinstance(term, MemoryTerm):
                places = [(term.device, f"{term.stage} {moment}") for moment in term.moments]
            else:
                places = [(term.window, term.lane)]
            for place in places:
                sums[place] = sums.get(place, 0) + amount
    return sums


def check_reading(oracle: Oracle, found: Job, draw: Random, count: int) -> None:
    """The oracle reads that many random plans of a job as `evaluate` does."""
    for _ in range(count):
        plan = random_plan(found, draw)
        evaluation, (peaks, microseconds) = evaluate(found, plan), oracle.figures(plan)
        assert {device: ledger.peak.total for device, ledger in evaluation.ledger.items()} == peaks
        assert evaluation.step_time.microseconds == microseconds
        assert (not evaluation.violations) == (oracle.legal(plan) and oracle.fits((peaks, microseconds)))


def check_conflict(seed: int, oracle: Oracle, error: NoPlan) -> None:
    """The names cannot hold together, and can once any one of them is dropped."""
    names = frozenset(error.conflict)
    assert names and not oracle.some_plan(names), seed
    for name in names:
        assert oracle.some_plan(names - {name}), (seed, name)
