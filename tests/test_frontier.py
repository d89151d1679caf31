"""The frontier against the exhaustive one, point for point; its ends, its axes, its proof and its failures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from planner.compile import Question, below
from planner.errors import InputError, NoPlan
from planner.evaluate import Evaluation, evaluate
from planner.frontier import cluster_sizes, frontier, read_axes
from planner.job import Job
from planner.points import enumerate_points
from planner.resolve import read_job
from planner.search import solve
from planner.specification import specify
from tests.jobs import job

EXAMPLE = Path(__file__).parents[1] / "examples" / "llama-2-7b-8xa100.yaml"
# Eight GPUs and a four-layer model: 3 stages, 2 offloads, 2 micro-batches, 5 intervals, 5 counts.
NARROW = {
    "zero_stage": [1, 2, 3],
    "optimizer_offload": ["none", "cpu"],
    "parameter_offload": "none",
    "gradient_accumulation_dtype": "bf16",
    "micro_batch": [1, 2],
}


def small(**overrides: object) -> Job:
    """The small job on eight GPUs with narrowed choices."""
    return job(**{"cluster": {"gpus_per_node": 8}, "training": {"global_batch": 16}, "choices": NARROW, **overrides})


def exhaustive(job: Job, axes: str) -> list[tuple[float, float]]:
    """The frontier by evaluating every plan and comparing it with every other."""
    first, second = read_axes(axes)
    specification = specify(job)
    plans = (p for p in specification.space.plans() if all(rule.satisfied(p) for rule in specification.rules))
    legal = [found for found in (evaluate(job, plan) for plan in plans) if not found.violations]
    places = {(first.value(found), second.value(found)) for found in legal}
    return sorted(
        place for place in places
        if not any(o != place and o[0] <= place[0] and o[1] <= place[1] for o in places)
    )  # fmt: skip


PAIRS = ("memory,step_time", "host_memory,step_time", "memory,host_memory", "step_time,memory")


@pytest.mark.parametrize("axes", PAIRS)
def test_equals_the_exhaustive_frontier(axes: str) -> None:
    found = frontier(small(), read_axes(axes))
    assert [found.values(point) for point in found.points] == exhaustive(small(), axes)
    assert found.proof.confirmed


def test_equals_the_exhaustive_frontier_of_the_8_gpu_job() -> None:
    """The shipped job with one stage and no offload: 9 intervals of up to 33 counts, seven micro-batches."""
    pins = {"zero_stage": (3,), "optimizer_offload": ("none",), "gradient_accumulation_dtype": ("bf16",)}
    narrowed = read_job(EXAMPLE).with_choices({**pins, "parameter_offload": ("none",)})
    found = frontier(narrowed)
    assert [found.values(point) for point in found.points] == exhaustive(narrowed, "memory,step_time")
    assert len(found.points) > 10


def test_both_ends_are_what_the_search_proves() -> None:
    found = frontier(small())
    fastest, leanest = solve(small()), solve(replace(small(), objective="memory"))
    assert found.points[-1].plan == fastest.best.plan
    assert found.points[0].peak_bytes == leanest.best.peak_bytes


def test_memory_rises_and_time_falls_and_nothing_is_broken() -> None:
    found = frontier(small()).points
    for before, after in zip(found, found[1:], strict=False):
        assert before.peak_bytes < after.peak_bytes
        assert before.step_time.microseconds > after.step_time.microseconds
    assert not any(point.violations for point in found)


def test_a_tolerance_leaves_out_what_is_near_and_keeps_both_ends() -> None:
    """Every point left out is at most 20 % below a kept one that is at least as fast."""
    whole, thin = frontier(small()).points, frontier(small(), tolerance=0.2).points
    plans = [point.plan for point in thin]
    assert (plans[0], plans[-1]) == (whole[0].plan, whole[-1].plan)
    assert len(thin) < len(whole)

    def near(point: Evaluation) -> bool:
        limit, time = 1.2 * point.peak_bytes, point.step_time.seconds
        return any(kept.peak_bytes <= limit and kept.step_time.seconds <= time for kept in thin)

    assert all(near(point) for point in whole)


def test_the_solver_finds_what_a_frontier_leaves_out() -> None:
    """Without one of its points the solver names a plan below the rest."""
    specification = specify(small())
    points = enumerate_points(specification)
    capacities = {device: limit.capacity for device, limit in specification.limits.items()}
    found = frontier(small()).points
    stairs = [(point.peak_bytes, point.step_time.microseconds) for point in found]
    question = Question("rank", capacities, 10.0)
    assert below(points, question, ("gpu", "time"), stairs).status == "infeasible"
    for index, left_out in enumerate(stairs):
        rest = stairs[:index] + stairs[index + 1 :]
        answer = below(points, question, ("gpu", "time"), rest)
        assert answer.plan is not None
        again = evaluate(small(), answer.plan)
        memory, time = again.peak_bytes, again.step_time.microseconds
        assert memory >= left_out[0] and time >= left_out[1]
        assert all(memory < other[0] or time < other[1] for other in rest)


def test_more_gpus_are_faster() -> None:
    """One GPU, two, four, eight of one node; 16 sequences divide over all of them."""
    found = frontier(small(), read_axes("gpus,step_time"))
    assert [point.job.cluster.gpus for point in found.points][:4] == [1, 2, 4, 8]
    times = [point.step_time.seconds for point in found.points]
    assert times == sorted(times, reverse=True)


def test_clusters_are_halved_and_doubled_where_there_is_a_network() -> None:
    found = list(cluster_sizes(job(cluster={"node": "dgx-a100-80gb", "nodes": 3})))
    assert [(item.cluster.nodes, item.cluster.gpus) for item in found] == [(1, 8), (2, 16), (3, 24), (4, 32), (8, 64)]


def test_cost_is_price_times_gpu_hours() -> None:
    """16 × 512 tokens in `seconds` on 8 GPUs: 10^9 tokens take 8 × seconds × 10^9 / 8192 / 3600 GPU-hours."""
    found = frontier(small(), read_axes("memory,cost"))
    point = found.points[-1]
    hours = 8 * point.step_time.seconds * 1e9 / 8192 / 3600
    price = small().cluster.gpu_price_per_hour
    assert price is not None
    assert found.values(point)[1] == pytest.approx(hours * price)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memory",
         "--axes: 'memory' is no pair of axes; expected two of memory, host_memory, step_time, token_time, cost, gpus"),
        ("speed,memory",
         "--axes: 'speed,memory' is no pair of axes; expected two of memory, host_memory, step_time, token_time, cost, "
         "gpus"),
        ("step_time,cost",
         "--axes: step_time and cost rise and fall together on one cluster; expected two different axes of memory, "
         "host_memory, step_time, token_time, cost, gpus"),
    ],
)  # fmt: skip
def test_axes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_axes(text)
    assert str(caught.value) == message


def test_nothing_fits_is_a_proof() -> None:
    with pytest.raises(NoPlan) as caught:
        frontier(job(cluster={"host_memory": "4 GiB"}))
    assert caught.value.conflict == ("host_memory_holds_every_phase",)
