"""The ranking against evaluating every plan: best and nearest miss, with any values pinned."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.plan import Value
from planner.points import enumerate_points
from planner.specification import Specification, specify
from planner.sweep import TIME, Corner, Ranking, plan_of, undominated
from tests.jobs import job

NARROW = {
    "zero_stage": [1, 3],
    "optimizer_offload": ["none", "cpu"],
    "parameter_offload": "none",
    "gradient_accumulation_dtype": "bf16",
    "micro_batch": [1, 2],
}
PINS: tuple[Mapping[str, tuple[Value, ...]], ...] = (
    {},
    {"zero_stage": (3,)},
    {"checkpoint_count": (2,)},
    {"checkpoint_count": (1, 3), "optimizer_offload": ("cpu",)},
    {"micro_batch": (2,), "checkpoint_interval": (2,)},
)


@cache
def small(gpu_memory: str) -> Job:
    """The small job on GPUs of a size."""
    return job(choices=NARROW, cluster={"gpu_memory": gpu_memory})


@cache
def legal(job: Job) -> list[Evaluation]:
    """Every plan that the rules allow, evaluated."""
    specification = specify(job)
    plans = specification.space.plans()
    return [evaluate(job, plan) for plan in plans if all(rule.satisfied(plan) for rule in specification.rules)]


def pinned(job: Job, pins: Mapping[str, tuple[Value, ...]]) -> list[Evaluation]:
    """Those of them that have the pinned values."""
    return [found for found in legal(job) if all(found.plan[name] in pins[name] for name in pins)]


def asked(job: Job) -> tuple[Specification, dict[str, int], Ranking]:
    """The ranking of a job whose points hold plans beyond every limit too."""
    specification = specify(job)
    limits = specification.limits.values()
    names = {item.constraint for item in specification.requirements} - {limit.constraint for limit in limits}
    points = enumerate_points(specification, frozenset(names))
    return specification, {limit.device: limit.capacity for limit in limits}, Ranking(points, (TIME, "gpu"))


@pytest.mark.parametrize("pins", PINS)
@pytest.mark.parametrize("memory", ["80 GiB", "2.6 GiB", "2.3 GiB"])
def test_the_best_plan_is_the_exhaustive_one(pins: Mapping[str, tuple[Value, ...]], memory: str) -> None:
    """All fits in 80 GiB, some in 2.6, less in 2.3."""
    specification, capacities, ranking = asked(small(memory))
    fitting = [item for item in pinned(small(memory), pins) if not item.violations]
    order = [(item.step_time.microseconds, item.peak_bytes, specification.space.rank(item.plan)) for item in fitting]
    corner = ranking.best(pins, capacities)
    assert (corner is None) == (not fitting)
    if corner is not None:
        plan = plan_of(ranking.points, corner)
        assert (corner.first, corner.second, specification.space.rank(plan)) == min(order)


@pytest.mark.parametrize("pins", PINS)
def test_the_nearest_miss_exceeds_by_the_fewest_bytes(pins: Mapping[str, tuple[Value, ...]]) -> None:
    """One GiB is less than any plan needs."""
    tight = small("1 GiB")
    _, capacities, ranking = asked(tight)
    assert ranking.best(pins, capacities) is None

    def excess(found: Evaluation) -> int:
        return max(found.ledger[device].peak.total - size for device, size in capacities.items())

    corner = ranking.nearest(pins, capacities)
    assert corner is not None
    assert excess(evaluate(tight, plan_of(ranking.points, corner))) == min(map(excess, pinned(tight, pins)))


def test_values_that_no_rule_allows_have_no_miss_either() -> None:
    """No memory helps a plan that the rules forbid: there is no NVMe to move states to."""
    found = job(choices={**NARROW, "optimizer_offload": ["none", "nvme"]})
    _, capacities, ranking = asked(found)
    assert ranking.nearest({"optimizer_offload": ("nvme",)}, capacities) is None


def test_of_equal_corners_the_first_in_the_catalog_stands() -> None:
    corners = [Corner(5, 5, 2, 0, 0), Corner(5, 5, 1, 1, 0), Corner(6, 5, 0, 2, 0), Corner(7, 4, 0, 3, 0)]
    assert undominated(corners) == [Corner(5, 5, 1, 1, 0), Corner(7, 4, 0, 3, 0)]
