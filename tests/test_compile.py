"""Points in a CP-SAT model: the order of equal plans, and what a relation's rows become."""

from __future__ import annotations

from typing import Any

import pytest

from planner.compile import GRAIN, Question, ask, feasible
from planner.job import Job
from planner.ledger import ledger
from planner.plan import Plan
from planner.points import enumerate_points
from planner.relations import Relation, affine_rows
from planner.space import job_space
from planner.specification import specify
from tests.jobs import job, random_job

ONE = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1,
       "gradient_accumulation_dtype": "bf16"}  # fmt: skip


def answer(found: Job, question: Question) -> Plan | None:
    """The plan that answers a question about a job."""
    return ask(enumerate_points(specify(found)), question).plan


def legal(found: Job) -> list[Plan]:
    """The plans that the rules allow."""
    specification = specify(found)
    return [
        plan for plan in specification.space.plans() if all(rule.satisfied(plan) for rule in specification.rules)
    ]


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"checkpoint_interval": 1, "checkpoint_count": [2, 1]},
        {"checkpoint_interval": 1, "checkpoint_count": [4, 1, 2]},
        {"checkpoint_interval": [2, 1], "checkpoint_count": [3, 2, 1]},
        {"checkpoint_interval": [1, 0], "checkpoint_count": [0, 4]},
        {"micro_batch": [4, 2, 1], "zero_stage": [3, 0]},
    ],
)
def test_the_first_plan_in_rank_is_that_of_the_space(choices: dict[str, Any]) -> None:
    """Earlier values of earlier choices win, in the order that the job lists them."""
    found = job(choices={**ONE, **choices})
    space = specify(found).space
    assert answer(found, Question("rank", {}, 10.0)) == min(legal(found), key=space.rank)


def test_counts_with_gaps_are_taken_as_listed() -> None:
    """Only 1 and 4 of the four layers may be checkpointed, never what lies between."""
    found = job(choices={**ONE, "checkpoint_interval": 1, "checkpoint_count": [1, 4]}, objective="memory")
    plan = answer(found, Question("memory", {}, 10.0))
    assert plan is not None and plan["checkpoint_count"] in (1, 4)


def test_capacities_are_exact_to_the_byte() -> None:
    """The least peak can be held in as many bytes, and in one less by no plan."""
    found = job(choices={**ONE, "micro_batch": 4})
    specification = specify(found)
    points = enumerate_points(specification)
    legal = (p for p in job_space(found).plans() if all(rule.satisfied(p) for rule in specification.rules))
    least = min(ledger(found, p)["gpu"].peak.total for p in legal)
    assert ask(points, Question("memory", {}, 10.0)).value == -(-least // GRAIN)
    assert feasible(points, Question("rank", {"gpu": least}, 10.0))
    assert not feasible(points, Question("rank", {"gpu": least - 1}, 10.0))
    assert ask(points, Question("time", {"gpu": least - 1}, 10.0)).status == "infeasible"
    assert ask(points, Question("time", {"gpu": least}, 10.0)).status == "optimal"


@pytest.mark.parametrize("seed", [2, 19, 31, 64, 89])
def test_a_proven_time_can_be_held_while_memory_is_minimised(seed: int) -> None:
    """Some plan has the least time, so one of those has the least memory: never infeasible."""
    specification = specify(random_job(seed, small=True))
    capacities = {device: limit.capacity for device, limit in specification.limits.items()}
    points = enumerate_points(specification)
    fastest = ask(points, Question("time", capacities, 10.0))
    if fastest.value is not None:
        held = Question("memory", capacities, 10.0, time_at_most=fastest.value)
        assert ask(points, held).status == "optimal"


def test_no_points_are_infeasible() -> None:
    found = job(choices={"micro_batch": 3})
    points = enumerate_points(specify(found))
    assert points.points == ()
    assert ask(points, Question("time", {}, 10.0)).status == "infeasible"
    assert not feasible(points, Question("rank", {}, 10.0))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # Counts 1 to 3 of one layer each: recomputed = 0 + 1 × count, checkpoints likewise.
        (((1, 1, 1), (2, 2, 2), (3, 3, 3)), ((1, 3), [(0, 1), (0, 1)])),
        # Counts 1, 2 of two layers: recomputed = 0 + 2 × count.
        (((1, 2), (2, 4)), ((1, 2), [(0, 2)])),
        # A single row is constant.
        (((3, 6, 3),), ((3, 3), [(6, 0), (3, 0)])),
        # Rows in any order: 5 − 1 × count.
        (((2, 3), (1, 4), (0, 5)), ((0, 2), [(5, -1)])),
        # A gap between 1 and 3.
        (((1, 1), (3, 3)), None),
        # A bend: 0, 1, 1.
        (((0, 0), (1, 1), (2, 1)), None),
    ],
)
def test_rows_that_lie_on_lines(rows: tuple[tuple[int, ...], ...], expected: object) -> None:
    assert affine_rows(Relation(rows, ())) == expected
