"""A picture in letters, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from planner.plot.drawing import stairs
from planner.plot.picture import Picture, Scale, Series, scale, tick_text

WIDTH, HEIGHT = 84, 20
MARKERS = "●■▲◆○□"
LABEL = 10  # letters left of the plot


def plot_text(picture: Picture) -> str:
    """The plot with its axes, a line each."""
    limits = [series.limit for series in picture.series if series.limit is not None]
    across = scale([*(spot.x for spot in picture.spots), *limits])
    upwards = scale([spot.y for spot in picture.spots], most_ticks=5)
    grid = [[" "] * WIDTH for _ in range(HEIGHT)]
    for series in picture.series:
        _limit(grid, series, across)
        _stairs(grid, series, across, upwards)
    for number, series in enumerate(picture.series):
        for spot in series.spots:
            grid[_row(upwards, spot.y)][_column(across, spot.x)] = MARKERS[number % len(MARKERS)]
    return "\n".join(_lines(picture, grid, across, upwards)) + "\n"


def _column(across: Scale, x: float) -> int:
    return round(across.share(x) * (WIDTH - 1))


def _row(upwards: Scale, y: float) -> int:
    return HEIGHT - 1 - round(upwards.share(y) * (HEIGHT - 1))


def _limit(grid: list[list[str]], series: Series, across: Scale) -> None:
    """A column where the device ends."""
    if series.limit is not None:
        for row in grid:
            row[_column(across, series.limit)] = "┊"


def _stairs(grid: list[list[str]], series: Series, across: Scale, upwards: Scale) -> None:
    """The line that nothing lies below."""
    corners = [(_column(across, x), _row(upwards, y)) for x, y in stairs(series.spots)]
    for (column, row), (next_column, next_row) in zip(corners, corners[1:], strict=False):
        for step in range(column, next_column + 1):
            grid[row][step] = "─"
        for step in range(row, next_row + 1):
            if row != next_row:
                grid[step][next_column] = "│"


def _lines(picture: Picture, grid: list[list[str]], across: Scale, upwards: Scale) -> Iterator[str]:
    """Label of the y axis, the grid with its ticks, the x axis with its ticks and label, the legend."""
    yield f"{picture.y_label}"
    ticks = {_row(upwards, tick): tick_text(tick) for tick in upwards.ticks}
    for number, row in enumerate(grid):
        yield f"{ticks.get(number, ''):>{LABEL}} {'┤' if number in ticks else '│'}{''.join(row)}".rstrip()
    marks, words = ["─"] * WIDTH, [" "] * (WIDTH + LABEL)
    for tick in across.ticks:
        column, text = _column(across, tick), tick_text(tick)
        marks[column] = "┴"
        words[max(0, column - len(text) // 2) : column - len(text) // 2 + len(text)] = text
    yield f"{'':{LABEL}} └{''.join(marks)}"
    yield f"{'':{LABEL}}  {''.join(words)}".rstrip()
    yield f"{picture.x_label:>{LABEL + 2 + WIDTH}}"
    for number, series in enumerate(picture.series):
        yield f"{'':{LABEL}}  {MARKERS[number % len(MARKERS)]} {series.name}"
    if any(series.limit is not None for series in picture.series):
        yield f"{'':{LABEL}}  ┊ what can be planned with"
