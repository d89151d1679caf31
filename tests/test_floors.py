"""Floors: below every plan's time, and the rough ones below them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.floors import VERY_MANY, Floors, StandingFloors
from planner.forms import Reader, least_time
from planner.job import Job
from planner.plan import Layout, layout_of
from planner.points import enumerate_points
from planner.specification import specify
from tests.jobs import job

DENSE = {"parameters": 200_000_000, "layers": 6, "vocabulary": 8000, "heads": 8}
BIG = {**DENSE, "parameters": 6_000_000_000}
PINS = {"checkpoint_interval": [0, 1], "gradient_accumulation_dtype": "fp32", "loss": "standard"}


def planned(gpu: str, runtime: str, model: Any = DENSE, nodes: int = 2, precision: str = "bf16") -> Job:
    """A job of few points on two nodes of four GPUs."""
    cluster = {"gpu": gpu, "gpus_per_node": 4, "nodes": nodes, "interconnect": "100 Gbit/s"}
    training = {"runtime": runtime, "global_batch": 32, "precision": precision}
    return job(model=model, cluster=cluster, training=training, choices=PINS)


JOBS = [
    ("a100-sxm-80gb", "megatron", DENSE, "bf16"),
    ("h100-sxm-80gb", "megatron", "dense_then_experts/config.json", "fp8"),
    ("rtx4090-24gb", "megatron", DENSE, "bf16"),
    ("v100-sxm2-32gb", "megatron-deepspeed", DENSE, "fp16"),
    ("l40s-48gb", "fsdp2", DENSE, "bf16"),
    ("a100-sxm-40gb", "deepspeed", DENSE, "bf16"),
]


@pytest.mark.parametrize(("gpu", "runtime", "model", "precision"), JOBS)
def test_floors_are_below_every_point(gpu: str, runtime: str, model: Any, precision: str) -> None:
    """The least time over a point's boxes, from all of its terms, is never below the floor of its batch."""
    found = planned(gpu, runtime, model, precision=precision)
    specification = specify(found)
    points, floors = enumerate_points(specification), Floors(found)
    assert points.points
    for point in points.points:
        boxes = points.relations[point.key].boxes
        least = max(form.least(boxes) for form in point.time)
        exact = floors.microseconds(point.values)
        rough, whatever = floors.rough([point.values])[0], floors.of_layouts([layout_of(point.values)])[0]
        assert 0 < whatever <= rough <= exact <= least


def test_a_floor_is_the_compute_of_the_whole_step_where_nothing_is_exchanged() -> None:
    """One GPU, nothing recomputed: the floor is forward and backward of all micro-batches, to the rounding."""
    found = job(cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 1}, choices=PINS)
    specification = specify(found)
    compute = [term for term in specification.time if term.name == "compute"]
    reader = Reader(compute, [measure.name for measure in specification.space.measures])
    points = enumerate_points(specification).points
    sums = reader.sums([point.values for point in points])
    boxes = sums[:, 0, 1:] * 0
    for point, exact in zip(points, least_time(reader, sums, boxes, boxes), strict=True):
        assert exact - 3 <= Floors(found).microseconds(point.values) <= exact  # three windows, rounded up each


def test_rough_floors_of_many_batches_are_those_of_each() -> None:
    """What is worked out for all batches at once is what `microseconds` makes of the times among very many tokens."""
    found = planned("a100-sxm-80gb", "megatron")
    floors, batches = Floors(found), [point.values for point in enumerate_points(specify(found)).points]
    together = floors.rough(batches)
    for values, many in zip(batches, together.tolist(), strict=True):
        layout = layout_of(values)
        once = floors._once(layout, VERY_MANY)
        alone = floors._step(floors._stages(layout), once, values) * found.tokens(values) / VERY_MANY
        assert abs(many - alone * 1e6 * (1 - 1e-6)) <= 1


def test_no_kernel_takes_longer_per_token_the_more_tokens_there_are() -> None:
    """What the rough floor rests on, over powers of two of tokens and every kind of layer and end."""
    for gpu, runtime, model, precision in JOBS:
        found = planned(gpu, runtime, model, precision=precision)
        floors = Floors(found)
        for layout in {layout_of(point.values) for point in enumerate_points(specify(found)).points}:
            limit = floors._once(layout, VERY_MANY)
            for tokens in (16, 256, 4096, 65536, 2**20):
                once = floors._once(layout, tokens)
                pairs = zip((*once.forward, *once.backward), (*limit.forward, *limit.backward), strict=True)
                assert all(seconds / tokens >= (1 - 1e-6) * most / VERY_MANY for seconds, most in pairs)
                for end, seconds in once.ends.items():
                    for one, most in zip(seconds, limit.ends[end], strict=True):
                        assert one / tokens >= (1 - 1e-6) * most / VERY_MANY


@pytest.mark.parametrize(("gpu", "runtime", "model", "precision"), JOBS)
def test_layouts_of_points_that_hold_have_room(gpu: str, runtime: str, model: Any, precision: str) -> None:
    """On cards with room for the states under some layouts only, no layout of a point that holds is left out."""
    found = planned(gpu, runtime, BIG if model is DENSE else model, precision=precision)
    specification = specify(found)
    standing, capacity = StandingFloors(specification), specification.limits["gpu"].capacity
    points = enumerate_points(specification)
    for point in points.points:
        boxes = points.relations[point.key].boxes
        if max(form.most(boxes) for form in point.memory["gpu"]) <= capacity:
            assert standing.holds(layout_of(point.values))


def test_states_that_exceed_the_gpu_leave_no_room() -> None:
    """6e9 parameters of 2 + 4 + 12 bytes are 108 GB, on 24 GB each: 13.5 over 8 ranks fit, 54 over 2 do not."""
    cluster = {"gpu": "rtx4090-24gb", "gpus_per_node": 8}
    standing = StandingFloors(specify(job(model=BIG, cluster=cluster, training={"runtime": "megatron"})))
    assert standing.holds(Layout(tensor=8))
    assert not standing.holds(Layout(tensor=2, pipeline=1, data=1))
    # 16-bit parameters and fp32 gradients whole, states over 8: 36 + 9 GB
    assert not standing.holds(Layout(data=8))
