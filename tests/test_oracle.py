"""The search against an exhaustive oracle: every candidate plan of many small jobs, one by one.

The oracle knows terms and requirements, no points and no solver. To be quick it reads each term once for each
combination of its scope and measures; `test_the_oracle_evaluates_as_evaluate_does` holds it to `evaluate`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest

from planner.compile import GRAIN, Question, ask
from planner.errors import NoPlan
from planner.evaluate import evaluate
from planner.job import Job
from planner.memory import memory_terms
from planner.plan import Plan, Value
from planner.points import enumerate_points
from planner.search import solve
from planner.specification import Specification, specify
from planner.step_time import time_terms
from planner.terms import WINDOWS, MemoryTerm, Term
from tests.jobs import LARGEST_SMALL, job, random_job, random_plan

BATCHES, IN_A_BATCH = 21, 10  # 210 jobs


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

    def figures(self, plan: Plan) -> tuple[dict[str, int], int]:
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

    def fits(self, peaks: Mapping[str, int]) -> bool:
        """Whether every limit holds."""
        return all(peaks[device] <= limit.capacity for device, limit in self.specification.limits.items())

    def best(self) -> Plan | None:
        """The plan that the search must find, None where no plan survives."""
        memory_first = self.specification.job.objective == "memory"
        best: tuple[tuple[object, ...], Plan] | None = None
        for plan in self.specification.space.plans():
            if not self.legal(plan):
                continue
            peaks, microseconds = self.figures(plan)
            if not self.fits(peaks):
                continue
            memory = -(-peaks["gpu"] // GRAIN)
            first, second = (memory, microseconds) if memory_first else (microseconds, memory)
            order = (first, second, self.specification.space.rank(plan))
            if best is None or order < best[0]:
                best = (order, plan)
        return best[1] if best else None

    def some_plan(self, names: frozenset[str]) -> bool:
        """Whether some plan satisfies the requirements of these names, whatever the others say."""
        rules = [rule for rule in self.specification.rules if rule.constraint in names]
        limits = [limit for limit in self.specification.limits.values() if limit.constraint in names]
        for plan in self.specification.space.plans():
            if all(rule.satisfied(plan) for rule in rules):
                peaks = self.figures(plan)[0] if limits else {}
                if all(peaks[limit.device] <= limit.capacity for limit in limits):
                    return True
        return False


def _places(terms: list[Term], values: Mapping[str, Value]) -> dict[tuple[str, str], int]:
    """What terms of one scope add to each place."""
    sums: dict[tuple[str, str], int] = {}
    for term in terms:
        if amount := term.value(values):
            memory = isinstance(term, MemoryTerm)
            moments = [(term.device, f"{term.stage} {moment}") for moment in term.moments] if memory else []
            for place in moments or [(term.window, term.lane)]:
                sums[place] = sums.get(place, 0) + amount
    return sums


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_search_finds_what_the_oracle_finds(batch: int) -> None:
    for seed in range(batch * IN_A_BATCH, (batch + 1) * IN_A_BATCH):
        drawn = random_job(seed, small=True)
        oracle = Oracle(drawn)
        assert oracle.specification.space.size <= LARGEST_SMALL, seed
        expected = oracle.best()
        try:
            solution = solve(drawn)
        except NoPlan as error:
            assert expected is None, seed
            _check_conflict(seed, oracle, error)
            _check_nearest_miss(seed, oracle, error)
        else:
            assert solution.best.plan == expected, seed
            assert solution.proof.optimal, seed


def _check_conflict(seed: int, oracle: Oracle, error: NoPlan) -> None:
    """The names cannot hold together, and can once any one of them is dropped."""
    names = frozenset(error.conflict)
    assert names and not oracle.some_plan(names), seed
    for name in names:
        assert oracle.some_plan(names - {name}), (seed, name)


def _check_nearest_miss(seed: int, oracle: Oracle, error: NoPlan) -> None:
    """Where a single limit is in the way: the miss exceeds it by the fewest bytes, and is the fastest that does."""
    limits = oracle.specification.limits.values()
    broken = [limit for limit in limits if limit.constraint in error.conflict]
    if len(broken) != 1:
        return
    device, capacity = broken[0].device, broken[0].capacity
    others = {limit.device: limit.capacity for limit in limits if limit.device != device}
    figures = [oracle.figures(plan) for plan in oracle.specification.space.plans() if oracle.legal(plan)]
    allowed = [found for found in figures if all(found[0][other] <= most for other, most in others.items())]
    if not allowed:
        assert error.nearest_miss is None, seed
        return
    least = max(capacity, min(peaks[device] for peaks, _ in allowed))
    fastest = min(microseconds for peaks, microseconds in allowed if peaks[device] <= least)
    assert error.nearest_miss.ledger[device].peak.total <= least, seed
    assert error.nearest_miss.step_time.microseconds == fastest, seed


@pytest.mark.parametrize("seed", range(0, 45, 3))
def test_the_oracle_evaluates_as_evaluate_does(seed: int) -> None:
    drawn, draw = random_job(seed, small=True), Random(seed)
    oracle = Oracle(drawn)
    for _ in range(5):
        plan = random_plan(drawn, draw)
        found, (peaks, microseconds) = evaluate(drawn, plan), oracle.figures(plan)
        assert {device: ledger.peak.total for device, ledger in found.ledger.items()} == peaks
        assert found.step_time.microseconds == microseconds
        assert (not found.violations) == (oracle.legal(plan) and oracle.fits(peaks))


@pytest.mark.parametrize("objective", ["time", "memory", "rank"])
def test_one_and_two_workers_answer_alike(objective: str) -> None:
    for seed in range(12):
        specification = specify(random_job(seed, small=True))
        points = enumerate_points(specification)
        capacities = {device: limit.capacity for device, limit in specification.limits.items()}
        question = Question(objective, capacities, 10.0)  # type: ignore[arg-type]
        one, two = (ask(points, replace(question, workers=workers)) for workers in (1, 2))
        assert (one.status, one.value) == (two.status, two.value), seed
        if objective == "rank":  # no two plans are equal in rank
            assert one.plan == two.plan, seed


def test_solving_twice_gives_the_same_plan() -> None:
    for seed in range(5):
        drawn = random_job(seed, small=True)
        answers = [_plan_or_conflict(drawn) for _ in range(2)]
        assert answers[0] == answers[1], seed


def _plan_or_conflict(job: Job) -> Plan | tuple[str, ...]:
    try:
        return solve(job).best.plan
    except NoPlan as error:
        return error.conflict


def test_the_nearest_miss_exceeds_by_the_fewest_bytes() -> None:
    """One GPU, stage 0, nothing recomputed, one micro-batch size: of two plans the smaller one is the nearest miss."""
    tight = job(
        cluster={"gpus_per_node": 1, "gpu_memory": "1 GiB"},
        choices={"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": [2, 1],
                 "checkpoint_interval": 0, "checkpoint_count": 0, "gradient_accumulation_dtype": "bf16"},
    )  # fmt: skip
    oracle = Oracle(tight)
    peaks = {plan: oracle.figures(plan)[0]["gpu"] for plan in oracle.specification.space.plans()}
    with pytest.raises(NoPlan) as caught:
        solve(tight)
    assert caught.value.conflict == ("gpu_memory_holds_every_phase",)
    assert caught.value.nearest_miss.plan == min(peaks, key=lambda plan: peaks[plan])
