"""Scales with round ticks, and frontiers as pictures."""

from __future__ import annotations

import pytest

from planner.frontier import frontier, read_axes
from planner.plot.picture import picture, scale, tick_text
from planner.units import GIB
from tests.jobs import job

PINS = {"zero_stage": [1, 3], "micro_batch": 1, "gradient_accumulation_dtype": "bf16", "parameter_offload": "none"}


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([0, 80], (0, 10, 20, 30, 40, 50, 60, 70, 80)),
        ([4.9, 16.5], (0, 2.5, 5, 7.5, 10, 12.5, 15, 17.5)),
        ([90, 100], (90, 92, 94, 96, 98, 100)),
        ([7, 7], (0, 1, 2, 3, 4, 5, 6, 7)),
        ([0, 0], (0, 1)),
    ],
)
def test_ticks_are_round_and_hold_every_value(values: list[float], ticks: tuple[float, ...]) -> None:
    """From zero unless that takes half of the room; a step is 1, 2, 2.5 or 5 times a power of ten."""
    found = scale(values)
    assert found.ticks == pytest.approx(ticks)
    assert all(found.low <= value <= found.high for value in values)


def test_share_is_the_place_between_both_ends() -> None:
    assert scale([0, 80]).share(20) == 0.25


def test_ticks_have_no_needless_digits() -> None:
    assert [tick_text(value) for value in (0.0, 2.5, 1000.0)] == ["0", "2.5", "1,000"]


def test_a_frontier_is_shown_in_gib_with_the_gpus_limit() -> None:
    found = frontier(job(choices=PINS))
    shown = picture({"small": found}, "title")
    assert (shown.x_label, shown.y_label) == ("GPU memory (GiB)", "step time (seconds)")
    first, point = shown.series[0].spots[0], found.points[0]
    assert (first.x, first.y) == (point.peak_bytes / GIB, point.step_time.seconds)
    assert shown.series[0].limit == point.ledger["gpu"].capacity.planned / GIB
    assert first.lines[0] == "small, point 1"
    assert "zero_stage 3" in first.lines[-1]
    assert "parameter_offload" not in first.lines[-1]


def test_an_axis_of_gpus_has_no_limit() -> None:
    shown = picture({"small": frontier(job(choices=PINS), read_axes("gpus,step_time"))}, "title")
    assert (shown.x_label, shown.series[0].limit) == ("GPUs", None)
