"""The PNG has the drawing's size in twice as many pixels, and its points their colours."""

from __future__ import annotations

import sys
from io import BytesIO

import pytest

from planner.errors import InputError
from planner.plot.drawing import COLOURS, HEIGHT, WIDTH, Marker, draw
from planner.plot.png import SIZE, png_bytes
from tests.plot.pictures import PICTURE


def test_points_are_painted_where_they_are_drawn() -> None:
    image = pytest.importorskip("PIL.Image")
    found = image.open(BytesIO(png_bytes(PICTURE)))
    assert found.size == (WIDTH * SIZE, HEIGHT * SIZE)
    points = [shape for shape in draw(PICTURE) if isinstance(shape, Marker) and shape.lines]
    colours = [found.getpixel((round(p.place[0] * SIZE), round(p.place[1] * SIZE))) for p in points]
    assert [f"#{red:02X}{green:02X}{blue:02X}" for red, green, blue in colours] == [*COLOURS[:1] * 2, COLOURS[1]]


def test_without_pillow_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InputError) as caught:
        png_bytes(PICTURE)
    assert str(caught.value) == (
        "--plot: PNG needs Pillow, which is not installed; pip install 'planner[plot]', or take --plot FILE.svg"
    )
