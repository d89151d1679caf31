"""The page of figures: what it says of a small log, and that the shipped figures have not become worse."""

from __future__ import annotations

import re
from pathlib import Path

from planner.accuracy import accuracy, accuracy_page

ROOT = Path(__file__).parents[2]
# Figures are printed with one decimal, and a run may move by a rounding.
SLACK = 0.1


def figures(page: str) -> dict[str, list[float]]:
    """Mean errors of memory and time in percent, false fits and false nos of each source."""
    found = {}
    for line in page.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 11 and cells[1].isdigit():
            errors = [float(cell.removesuffix(" %")) if cell != "–" else 0.0 for cell in (cells[2], cells[6])]
            found[cells[0]] = [*errors, float(cells[9]), float(cells[10])]
    return found


def test_no_shipped_figure_has_become_worse() -> None:
    shipped = figures((ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8"))
    now = figures(accuracy_page(accuracy(ROOT / "docs" / "measured" / "runs.csv")))
    assert set(now) >= set(shipped)
    worse = {
        source: (values, now[source])
        for source, values in shipped.items()
        if any(new > old + SLACK for new, old in zip(now[source], values, strict=True))
    }
    assert worse == {}


def test_the_page_states_order_and_what_is_left_out() -> None:
    page = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    assert re.search(r"^## Order$", page, re.MULTILINE)
    assert re.search(r"^## Not scored$", page, re.MULTILINE)
