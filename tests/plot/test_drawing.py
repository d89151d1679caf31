"""Shapes: stairs that nothing lies below, every point inside the frame."""

from __future__ import annotations

from planner.plot.drawing import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Marker, draw, stairs
from tests.plot.pictures import LEAN, PICTURE


def test_stairs_go_right_then_down() -> None:
    """As slow as the first point until the memory of the second is there."""
    assert list(stairs(LEAN)) == [(10, 8), (30, 8), (30, 4)]


def test_every_point_lies_inside_the_frame_with_its_lines() -> None:
    points = [shape for shape in draw(PICTURE) if isinstance(shape, Marker) and shape.lines]
    assert [point.lines for point in points] == [spot.lines for spot in PICTURE.spots]
    assert all(LEFT <= x <= WIDTH - RIGHT and TOP <= y <= HEIGHT - BOTTOM for x, y in (p.place for p in points))


def test_series_differ_in_colour_and_in_shape() -> None:
    points = [shape for shape in draw(PICTURE) if isinstance(shape, Marker) and shape.lines]
    assert len({point.colour for point in points}) == len({point.shape for point in points}) == 2
