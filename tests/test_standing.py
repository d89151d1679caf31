"""What a layout takes at least: below every plan's peak, and by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.job import Job
from planner.plan import Layout, layout_of
from planner.points import enumerate_points, inner_choices, outer_space, readers
from planner.rows import least_rows
from planner.specification import specify
from planner.standing import StandingFloors
from tests.jobs import job
from tests.test_floors import DENSE, JOBS, planned

BIG = {**DENSE, "parameters": 6_000_000_000}
MEGATRON = {"runtime": "megatron"}


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


@pytest.mark.parametrize(("gpu", "runtime", "model", "precision"), JOBS)
def test_no_row_takes_less(gpu: str, runtime: str, model: Any, precision: str) -> None:
    """Of every point, with no limit on any device: states, what stands, and what stands with the micro-batch."""
    found = planned(gpu, runtime, model, precision=precision)
    specification = specify(found)
    standing, outer = StandingFloors(specification), outer_space(specification, None)
    legal = [v for layout in outer.layouts for v in outer.under(layout) if outer.key(v) in outer.relations]
    memory, time = readers(specification)
    relations, inner = [outer.relations[outer.key(values)] for values in legal], len(inner_choices(specification))
    peaks = least_rows("memory", (memory, time), (memory.sums(legal), time.sums(legal)), relations, inner, {})
    assert legal
    for values, peak in zip(legal, peaks.tolist(), strict=True):
        layout = layout_of(values)
        assert 0 <= standing.states(layout) <= standing.bytes(layout) <= standing.bytes_with(values) <= peak


def test_states_that_exceed_the_gpu_leave_no_room() -> None:
    """6e9 parameters of 2 + 4 + 12 bytes are 108 GB, on 24 GB each: 13.5 over 8 ranks fit, 54 over 2 do not."""
    standing = _standing(job(model=BIG, cluster={"gpu": "rtx4090-24gb", "gpus_per_node": 8}, training=MEGATRON))
    assert standing.holds(Layout(tensor=8))
    assert not standing.holds(Layout(tensor=2, pipeline=1, data=1))
    # 16-bit parameters and fp32 gradients whole, states over 8: 36 + 9 GB
    assert not standing.holds(Layout(data=8))


def test_the_fullest_stage_counts() -> None:
    """Two stages of three layers each: the embedding stands on the first, and the head, as large, on the last.

    The final norm is beside the head, of 1,536 weights, and 5,120 that no usual shape holds. 2 bytes of each weight, 4
    of its gradient, 12 of its states over one rank: the last stage takes 18 x 6,656 bytes more. Its context and its
    communicators take as much as the first one's.
    """
    found = job(
        model=DENSE, cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 2}, training=MEGATRON,
        choices={"pipeline_parallel": 2},
    )  # fmt: skip
    places = _standing(found).places(Layout(pipeline=2))
    assert places["last", "forward"] - places["first", "forward"] == 18 * 6656
    assert _standing(found).bytes(Layout(pipeline=2)) == max(places.values()) == places["last", "forward"]


def _standing(found: Job) -> StandingFloors:
    return StandingFloors(specify(found))
