"""Candidates: leaving layouts and micro-batches out by their floors loses no best plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial

import pytest

from planner.candidates import leanest_points, promising_points
from planner.clock import Clock
from planner.compile import Question, ask
from planner.plan import Value
from planner.points import Point, Points, enumerate_points
from planner.specification import specify
from tests.jobs import job

MODEL = {"parameters": 900_000_000, "layers": 12, "vocabulary": 32000, "heads": 16}


@pytest.mark.parametrize("runtime", ["megatron", "megatron-deepspeed", "nanotron", "internevo", "deepspeed", "fsdp2"])
@pytest.mark.parametrize("gpu", ["rtx3090-24gb", "h100-sxm-80gb"])
def test_the_best_of_the_candidates_is_the_best_of_all_points(runtime: str, gpu: str) -> None:
    """On two nodes of four, with a wish that leaves out the first answer's micro-batch as well."""
    cluster = {"gpu": gpu, "gpus_per_node": 4, "nodes": 2, "interconnect": "100 Gbit/s"}
    specification = specify(
        job(model=MODEL, cluster=cluster, training={"runtime": runtime, "global_batch": 16, "sequence_length": 1024})
    )
    question = Question("time", specification.capacities, 10.0)
    every = enumerate_points(specification)
    best = ask(every, question)
    found = promising_points(specification)
    assert ask(found, question).value == best.value
    assert len(found.points) <= len(every.points)
    assert best.plan is not None
    taken = best.plan["micro_batch"]
    others = tuple(point for point in every.points if point.values["micro_batch"] != taken)
    some = promising_points(specification, lambda values: values["micro_batch"] != taken)
    expected = min(_fastest(every, point, specification.capacities) for point in others)
    assert min(_fastest(some, point, specification.capacities) for point in some.points) == expected


@pytest.mark.parametrize("runtime", ["megatron", "deepspeed"])
def test_the_leanest_of_the_candidates_is_the_leanest_of_all_points(runtime: str) -> None:
    """Also of those that a wish leaves; few of all points are read."""
    cluster = {"gpu": "rtx3090-24gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "100 Gbit/s"}
    training = {"runtime": runtime, "global_batch": 16, "sequence_length": 1024}
    specification = specify(job(model=MODEL, cluster=cluster, training=training))
    question, every = Question("memory", specification.capacities, 10.0), enumerate_points(specification)
    best = ask(every, question)
    found = leanest_points(specification)
    assert best.plan is not None and ask(found, question).value == best.value
    assert 0 < len(found.points) < len(every.points)
    taken = best.plan["micro_batch"]
    others = tuple(point for point in every.points if point.values["micro_batch"] != taken)
    some = leanest_points(specification, lambda values: values["micro_batch"] != taken)
    assert ask(some, question).value == ask(replace(every, points=others), question).value


def test_leanest_points_are_read_until_the_time_is_over() -> None:
    """The first batches always, none of them wanted; what the next takes at least is told, in grains of 1 MiB."""
    cluster = {"node": "dgx-h100", "nodes": 2}
    training = {"runtime": "megatron", "sequence_length": 2048, "global_batch": 64}
    specification = specify(job(model="llama-3.2-1b", cluster=cluster, training=training))
    wanted = partial(_with_micro_batch, 4)
    found, best = leanest_points(specification, wanted, clock=Clock(0.0)), leanest_points(specification, wanted)
    assert not found.points and best.points and best.unread is None
    value = ask(best, Question("memory", specification.capacities, 10.0)).value
    assert found.unread is not None and value is not None and 0 < found.unread <= value


def _with_micro_batch(size: int, values: Mapping[str, Value]) -> bool:
    return values["micro_batch"] == size


def test_a_tolerance_keeps_slower_points() -> None:
    """Within 50 % there are at least the points of within 0 %, and none of them is left out."""
    specification = specify(job(model=MODEL, training={"runtime": "megatron"}))
    strict, loose = promising_points(specification), promising_points(specification, within=Fraction(1, 2))
    kept = {tuple(point.values.items()) for point in loose.points}
    assert {tuple(point.values.items()) for point in strict.points} <= kept


def _fastest(points: Points, point: Point, capacities: Mapping[str, int]) -> int:
    """The least time of any row of a point at which every device holds."""
    found = 2**62
    bounded = [(form, capacities[d]) for d, forms in point.memory.items() if d in capacities for form in forms]
    for row in points.relations[point.key].rows:
        box = tuple((value, value) for value in row[len(points.inner) :])
        if all(form.least(box) <= bound for form, bound in bounded):
            found = min(found, max(form.least(box) for form in point.time))
    return found
