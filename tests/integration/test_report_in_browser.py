"""The page of `planner report` in a real Chromium: it renders, answers to pointer and keys, and asks for nothing else.

Needs the extra `browser` and a Chromium: one on the PATH, the one that PLANNER_CHROMIUM names, or that of
`playwright install chromium`. PLANNER_SCREENSHOTS names a folder to keep pictures in.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from planner.cli import cli

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install 'planner[browser]'")

ROOT = Path(__file__).parents[2]
FITS, OFFLOADS, NOTHING = "llama-2-7b-8xa100", "llama-2-7b-1xrtx4090", "llama-2-7b-1xrtx4090-small-host"
JOBS = (FITS, OFFLOADS, NOTHING)
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDE, PHONE = {"width": 1180, "height": 1500}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; the tests are skipped where there is none."""
    path = os.environ.get("PLANNER_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    with playwright.sync_playwright() as started:
        try:
            found = started.chromium.launch(executable_path=path, args=["--no-sandbox"] if os.geteuid() == 0 else [])
        except playwright.Error as error:
            pytest.skip(f"no Chromium: {str(error).splitlines()[0]}")
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The page of each job."""
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name in JOBS:
        found[name] = folder / f"{name}.html"
        command = ["report", str(ROOT / "examples" / f"{name}.yaml"), "-o", str(found[name])]
        CliRunner().invoke(cli, command)
        assert found[name].stat().st_size <= 2_000_000
    return found


class Visit:
    """An open page with everything that it asked for or complained about."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.address = path.as_uri()
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self.context = browser.new_context(**{"viewport": WIDE, **settings})
        self.page = self.context.new_page()
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(self.address)

    def text(self, selector: str) -> str:
        """The text of an element."""
        return str(self.page.locator(selector).inner_text())

    def heights(self) -> list[str]:
        """The book and height of every stretch of the GPU's column."""
        script = "all => all.map((one) => one.dataset.book + ' ' + one.getAttribute('height'))"
        return list(self.page.locator("[data-device=gpu] .book").evaluate_all(script))

    def keep(self, name: str, height: int | None = None) -> None:
        """A picture of the page, where pictures are wanted."""
        folder = os.environ.get("PLANNER_SCREENSHOTS")
        if folder:
            self.page.set_viewport_size({**self.page.viewport_size, "height": 2400 if height is None else height})
            self.page.screenshot(path=str(Path(folder) / f"{name}.png"))

    def close(self) -> None:
        """The page asked for itself alone and complained about nothing."""
        self.context.close()
        assert [address for address in self.asked if not address.startswith("data:")] == [self.address]
        assert self.complaints == []


@pytest.fixture
def visit(browser: Any, pages: dict[str, Path]) -> Iterator[Any]:
    """Opens pages; each is held to its silence when the test ends."""
    opened: list[Visit] = []

    def start(name: str, **settings: Any) -> Visit:
        opened.append(Visit(browser, pages[name], **settings))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.parametrize("name", JOBS)
def test_it_renders(visit: Any, name: str) -> None:
    seen = visit(name)
    assert seen.text("#plan-title") == ("The nearest miss" if name == NOTHING else "The best plan")
    assert any(height.startswith("activations ") for height in seen.heights())
    fill = seen.page.locator("[data-device=gpu] .book-activations").first.get_attribute("fill")
    assert fill == "url(#hatch-gpu)"
    assert seen.page.locator("[data-device=gpu] line.usable").count() == 1
    assert seen.page.locator(".segment").count() >= 4
    assert (seen.page.locator(".point").count() > 0) is (name != NOTHING)
    seen.keep(f"report-{name}")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(visit: Any, scheme: str) -> None:
    seen = visit(OFFLOADS, color_scheme=scheme)
    paper = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 26)"}[scheme]
    if scheme == "dark":
        seen.keep("report-dark", 1500)


@pytest.mark.parametrize("name", JOBS)
def test_a_phone_need_not_scroll_sideways(visit: Any, name: str) -> None:
    seen = visit(name, viewport=PHONE, is_mobile=True)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    if name == OFFLOADS:
        seen.keep("report-phone", PHONE["height"] * 2)


def test_pointing_shows_a_plan_and_choosing_swaps_the_column(visit: Any) -> None:
    seen = visit(OFFLOADS)
    before, file = seen.heights(), seen.text("#file-text")
    first = seen.page.locator(".point").first
    first.hover()
    assert "point 1\n" in seen.text("#pointed")
    assert "zero_stage" in seen.text("#pointed")
    assert seen.heights() == before
    first.click()
    assert seen.heights() != before
    assert seen.text("#plan-title").endswith("point 1")
    assert first.get_attribute("aria-pressed") == "true"
    assert seen.text("#file-text") != file
    seen.page.locator("#back").click()
    assert (seen.heights(), seen.text("#file-text")) == (before, file)


def test_the_keyboard_reaches_every_point(visit: Any) -> None:
    seen = visit(OFFLOADS)
    seen.page.locator(".point[tabindex='0']").focus()
    seen.page.keyboard.press("ArrowLeft")
    told = seen.text("#pointed")
    seen.page.keyboard.press("Enter")
    assert seen.text("#plan-title").lower() == told.splitlines()[0].lower()
    seen.page.keyboard.press("Home")
    assert "point 1\n" in seen.text("#pointed")
    assert seen.page.locator(".point[tabindex='0']").count() == 1


def test_phases_can_be_stepped_through(visit: Any) -> None:
    seen = visit(OFFLOADS)
    seen.page.get_by_role("button", name="load", exact=True).click()
    assert seen.page.locator("#before").is_disabled()
    told = [seen.text("#phase-text")]
    while not seen.page.locator("#after").is_disabled():
        seen.page.get_by_role("button", name="Next phase").click()
        told.append(seen.text("#phase-text"))
    assert len(set(told)) == 6
    assert "optimizer step" in told[-1]


def test_what_if_looks_up_answers(visit: Any) -> None:
    seen = visit(OFFLOADS)
    seen.page.get_by_text("8,192", exact=True).first.click()
    longer = seen.text("#what-if-answer")
    seen.page.get_by_text("h100-sxm-80gb", exact=True).first.click()
    larger = seen.text("#what-if-answer")
    assert longer != larger and larger.startswith("Fits: ")
    assert "8,192 tokens" in seen.text("#plan-job") and "h100-sxm-80gb" in seen.text("#plan-job")


def test_stretches_of_work_say_what_they_are(visit: Any) -> None:
    seen = visit(OFFLOADS)
    seen.page.locator(".state-hidden").first.hover()
    assert "(offload, hidden)" in seen.text("#segment")


def test_alternatives_and_repairs_can_be_shown(visit: Any) -> None:
    for name, part in ((FITS, "#alternatives"), (NOTHING, "#repairs")):
        seen = visit(name)
        before = seen.heights()
        seen.page.locator(f"{part} button.show").first.click()
        assert seen.heights() != before


def test_the_file_can_be_copied(visit: Any) -> None:
    seen = visit(FITS, permissions=["clipboard-read", "clipboard-write"])
    seen.page.locator("#copy").click()
    seen.page.wait_for_function("document.getElementById('copied').textContent !== ''")
    assert seen.text("#copied") == "Copied."
    assert seen.page.evaluate("navigator.clipboard.readText()") == seen.text("#file-text")


def test_everything_to_press_has_a_name(visit: Any) -> None:
    for name in JOBS:
        seen = visit(name)
        script = "all => all.filter((one) => !(one.getAttribute('aria-label') || one.textContent).trim()).length"
        assert seen.page.locator("button, [role=button], input + span, summary").evaluate_all(script) == 0
