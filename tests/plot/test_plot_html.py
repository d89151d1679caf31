"""The page stands alone: one file, nothing fetched, every point in the picture and in the table."""

from __future__ import annotations

from html.parser import HTMLParser

from planner.plot.html import html_text
from tests.plot.pictures import PICTURE


class Tags(HTMLParser):
    """Start tags with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags() -> list[tuple[str, dict[str, str | None]]]:
    """The tags of the page."""
    parser = Tags()
    parser.feed(html_text(PICTURE))
    return parser.found


def test_every_point_is_in_the_picture_and_in_the_table() -> None:
    found = tags()
    assert sum(attributes.get("class") == "point" for _, attributes in found) == len(PICTURE.spots)
    assert sum(tag == "tr" for tag, _ in found) == 1 + len(PICTURE.spots)
    assert "zero_stage 1 &amp; &lt;none&gt;" in html_text(PICTURE)


def test_no_tag_points_outside() -> None:
    links = [attributes[name] for _, attributes in tags() for name in ("src", "href") if name in attributes]
    assert links == ["data:,"]
