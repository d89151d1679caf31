"""The plot in letters: points at their places, the limit as a column, a legend."""

from __future__ import annotations

from planner.plot.text import HEIGHT, LABEL, WIDTH, plot_text
from tests.plot.pictures import PICTURE


def test_the_plot_has_its_points_at_their_places() -> None:
    """x from 0 to 40 and y from 0 to 8: the lean point stands at 10/40 of the width, at the top."""
    lines = plot_text(PICTURE).splitlines()
    rows = [line[LABEL + 2 :] for line in lines[1 : 1 + HEIGHT]]
    assert lines[0] == "step time (seconds)"
    assert rows[0][round((WIDTH - 1) * 10 / 40)] == "●"
    assert rows[HEIGHT - 1 - round((HEIGHT - 1) * 4 / 8)][round((WIDTH - 1) * 30 / 40)] == "●"
    assert rows[HEIGHT - 1 - round((HEIGHT - 1) * 3 / 8)][round((WIDTH - 1) * 20 / 40)] == "■"
    assert rows[0][WIDTH - 1] == "┊"


def test_the_legend_names_the_series_and_the_limit() -> None:
    lines = [line.strip() for line in plot_text(PICTURE).splitlines()]
    assert lines[-4:] == ["GPU memory (GiB)", "● lean", "■ fast", "┊ what can be planned with"]
