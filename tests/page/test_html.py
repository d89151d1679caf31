"""The page stands alone, holds together whatever names it is given, and says everything without its script too."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import planner.page.html as page_module
from planner.errors import InputError
from planner.page.data import script_data
from planner.page.html import MOST_BYTES, check_page, embedded, page_html, policy
from planner.page.plans import Plans
from tests.page.reports import NASTY, failing, fitting, page

PAGES = [(True, False), (False, False), (True, True), (False, True)]


class Tags(HTMLParser):
    """Start tags with their attributes, and the text of each script and style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self._inside = tag

    def handle_data(self, data: str) -> None:
        if self._inside in self.raw and data.strip():
            self.raw[self._inside].append(data)

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def all(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of every tag of a name."""
        return [attributes for tag, attributes in self.found if tag == name]


def data_of(text: str) -> Any:
    """What the script of a page reads."""
    return json.loads(Tags(text).raw["script"][0])


@pytest.mark.parametrize(("fits", "nasty"), PAGES)
def test_nothing_points_outside(fits: bool, nasty: bool) -> None:
    text = page(fits, nasty)
    tags = Tags(text)
    named = ("src", "href", "action", "data", "poster", "srcset", "xlink:href", "formaction")
    links = [value for _, attributes in tags.found for name, value in attributes.items() if name in named]
    assert set(links) == {"#plan", "data:,"}
    assert set(re.findall(r"https?://[^\s\"'<]*", tags.raw["script"][1] + tags.raw["style"][0])) == {
        "http://www.w3.org/2000/svg"  # the name of SVG's elements, nothing that is fetched
    }
    assert not re.search(r"url\((?!#)|@import", tags.raw["style"][0])
    assert len(text.encode()) <= MOST_BYTES


@pytest.mark.parametrize(("fits", "nasty"), PAGES)
def test_the_policy_names_this_style_and_this_script(fits: bool, nasty: bool) -> None:
    tags = Tags(page(fits, nasty))
    (meta,) = [one for one in tags.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert meta["content"] == policy(tags.raw["style"][0], tags.raw["script"][1])
    assert (meta["content"] or "").startswith("default-src 'none'; style-src 'sha256-")
    assert not [name for _, attributes in tags.found for name in attributes if name.startswith("on") or name == "style"]


@pytest.mark.parametrize("fits", [True, False])
def test_names_cannot_break_out(fits: bool) -> None:
    """The same tags whatever the model, the job and the assumptions are called, and the name is there as text."""
    plain, nasty = Tags(page(fits)), Tags(page(fits, nasty=True))
    assert [tag for tag, _ in nasty.found if tag in ("script", "style")] == ["style", "script", "script"]
    assert {tag for tag, _ in nasty.found} <= {tag for tag, _ in plain.found} | {"ul", "li"}
    assert "<script>alert(1)" not in page(fits, nasty=True)
    assert NASTY in unescape(page(fits, nasty=True))
    assert NASTY in data_of(page(fits, nasty=True))["plans"][0]["job"]


def test_embedded_text_cannot_end_its_element() -> None:
    hard = {"a": "</script><!-- & \u2028\u2029"}
    assert embedded(hard) == '{"a":"\\u003c/script\\u003e\\u003c!-- \\u0026 \\u2028\\u2029"}'
    assert json.loads(embedded(hard)) == hard


def test_every_number_of_a_plan_is_one() -> None:
    for fits in (True, False):
        text = page(fits)
        data, tags = data_of(text), Tags(text)
        named = [int(value) for _, one in tags.found if (value := one.get("data-plan")) is not None]
        cells = [number for _, number in data["cells"].values() if number is not None]
        assert {*named, *cells, data["first"]} == set(range(len(data["plans"])))


def test_the_page_of_a_plan() -> None:
    text, found = page(), fitting()
    points = [one for one in Tags(text).all("g") if one.get("class") == "point"]
    assert found.frontier is not None
    assert len(points) == len(found.frontier.points)
    assert [one["aria-pressed"] for one in points].count("true") == 1
    assert [one["tabindex"] for one in points].count("0") == 1
    for title in ("Every plan that is worth having", "What else was possible", "What limits it", "What if"):
        assert f">{title}</h2>" in text
    assert "These cannot hold together" not in text


def test_the_page_of_a_conflict() -> None:
    text, failure = page(fits=False), failing().failure
    assert failure is not None
    for title in ("These cannot hold together", "The nearest miss, line by line", "What makes it fit", "What if"):
        assert f">{title}</h2>" in text
    assert all(f"<li>{name}</li>" in text for name in failure.conflict)
    assert not [one for one in Tags(text).all("g") if one.get("class") == "point"]
    assert "method lora rank 16" in text
    assert data_of(text)["plans"][data_of(text)["first"]]["fits"] is False


def test_controls_have_names() -> None:
    for fits in (True, False):
        tags = Tags(page(fits))
        assert all(one.get("aria-label") for one in tags.all("button") if one.get("class") == "show")
        assert {one["name"] for one in tags.all("input")} == {"length", "size", "gpu"}
        ids = [one["id"] for _, one in tags.found if "id" in one]
        assert len(ids) == len(set(ids))
        assert {one.get("aria-labelledby") for one in tags.all("section")} <= set(ids)
        assert [one.get("lang") for one in tags.all("html")] == ["en"]


def test_a_page_that_is_too_long_is_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    found = fitting()
    whole, thin = (len(page_html(replace(found, most_points=count)).encode()) for count in (240, 2))
    assert thin < whole
    monkeypatch.setattr(page_module, "MOST_BYTES", whole - 1)
    text = page_html(found)
    assert thin <= len(text.encode()) < whole
    assert data_of(text)["first"] is not None


def test_script_data_is_plain() -> None:
    found = fitting()
    assert json.loads(json.dumps(script_data(found, Plans())))["books"][0] == "parameters"


def test_check_page(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_page(tmp_path / "report.pdf", force=True)
    assert str(caught.value) == "--output: report.pdf is no page; expected a file ending in .html"
    path = tmp_path / "report.html"
    path.touch()
    with pytest.raises(InputError) as caught:
        check_page(path, force=False)
    assert str(caught.value) == f"--output: {path} exists; --force writes over it"
    check_page(path, force=True)
