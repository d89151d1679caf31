"""The SVG is well-formed, speaks for each point, and fetches nothing."""

from __future__ import annotations

from xml.etree import ElementTree

from planner.plot.svg import svg_text
from tests.plot.pictures import PICTURE

SPACE = "{http://www.w3.org/2000/svg}"


def test_each_point_has_a_title_and_can_be_reached() -> None:
    root = ElementTree.fromstring(svg_text(PICTURE))
    points = [group for group in root.iter(f"{SPACE}g") if group.get("class") == "point"]
    titles = [point.findtext(f"{SPACE}title") for point in points]
    assert titles == ["\n".join(spot.lines) for spot in PICTURE.spots]
    assert all(point.get("tabindex") == "0" for point in points)
    assert root.get("aria-label") == "two & more"


def test_nothing_is_fetched_and_nothing_runs() -> None:
    text = svg_text(PICTURE).replace("http://www.w3.org/2000/svg", "")
    assert "http" not in text
    assert "<script" not in text
