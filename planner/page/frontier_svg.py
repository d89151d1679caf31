"""The frontier as a picture inside the page: every point a button that names its plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from planner.plot.drawing import HEIGHT, WIDTH, Line, Marker, Shape, Words, draw
from planner.plot.picture import Picture

RADIUS, REACH = 5.5, 11.0  # of what is seen, and of what can be pointed at


def frontier_svg(picture: Picture, numbers: Sequence[int], shown: int | None) -> str:
    """The picture; `numbers` are the plans of its points in their order, `shown` the one that the page starts with."""
    plans = iter(numbers)
    body = "\n".join(_shape(shape, plans, shown) for shape in draw(picture))
    label = escape(f"{picture.title}: {picture.x_label} against {picture.y_label}, {len(numbers)} plans")
    return f'<svg id="frontier" viewBox="0 0 {WIDTH} {HEIGHT}" role="group" aria-label="{label}">\n{body}\n</svg>'


def _shape(shape: Shape, plans: Iterator[int], shown: int | None) -> str:
    """One element; a marker with lines takes the next of the plans."""
    if isinstance(shape, Line):
        places = " ".join(f"{x:.1f},{y:.1f}" for x, y in shape.places)
        return f'<polyline class="plot-{shape.role}" points="{places}" aria-hidden="true"/>'
    if isinstance(shape, Words):
        return _words(shape)
    x, y = shape.place
    if not shape.lines:
        return f'<circle class="plot-key" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" aria-hidden="true"/>'
    return _point(shape, next(plans), shown)


def _words(words: Words) -> str:
    """Text of the picture; screen readers have the table and the points."""
    x, y = words.place
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if words.turned else ""
    start = f'<text class="plot-{words.role}" x="{x:.1f}" y="{y:.1f}" text-anchor="{words.anchor}"{turn}'
    return f'{start} aria-hidden="true">{escape(words.text)}</text>'


def _point(marker: Marker, plan: int, shown: int | None) -> str:
    """A point as a button: one of them is reached by Tab, the others from there by the arrow keys."""
    x, y = marker.place
    label, name = escape("; ".join(marker.lines), quote=True), escape(marker.lines[0], quote=True)
    here = plan == shown
    return (
        f'<g class="point" role="button" tabindex="{0 if here else -1}" aria-pressed="{str(here).lower()}" '
        f'data-plan="{plan}" data-label="{name}" aria-label="{label}">'
        f'<circle class="reach" cx="{x:.1f}" cy="{y:.1f}" r="{REACH}"/>'
        f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/></g>'
    )
