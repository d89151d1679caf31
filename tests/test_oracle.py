"""The search against an exhaustive oracle: every candidate plan of many small jobs, one by one.

`test_the_oracle_evaluates_as_evaluate_does` holds the oracle itself to `evaluate`.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from planner.compile import GRAIN, Question, ask
from planner.errors import NoPlan
from planner.job import Job
from planner.plan import Plan
from planner.points import enumerate_points
from planner.search import solve
from planner.specification import specify
from tests.jobs import LARGEST_SMALL, job, random_job
from tests.oracle import Oracle, check_conflict, check_reading

BATCHES, IN_A_BATCH = 10, 10  # 100 jobs, and those of test_oracle_aims.py


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
            check_conflict(seed, oracle, error)
            _check_nearest_miss(seed, oracle, error)
        else:
            assert solution.best.plan == expected, seed
            assert solution.proof.optimal, seed


def _check_nearest_miss(seed: int, oracle: Oracle, error: NoPlan) -> None:
    """Where a single limit is in the way: the miss exceeds it by the fewest MiB, and is the fastest that does."""
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
    over = min(peaks[device] for peaks, _ in allowed) - capacity
    least = capacity + max(0, -(-over // GRAIN)) * GRAIN
    fastest = min(microseconds for peaks, microseconds in allowed if peaks[device] <= least)
    assert error.nearest_miss.ledger[device].peak.total <= least, seed
    assert error.nearest_miss.step_time.microseconds == fastest, seed


@pytest.mark.parametrize("seed", range(0, 45, 3))
def test_the_oracle_evaluates_as_evaluate_does(seed: int) -> None:
    drawn, draw = random_job(seed, small=True), Random(seed)
    check_reading(Oracle(drawn), drawn, draw, 5)


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
