"""A picture as SVG: no library, no script, light and dark by the reader's own setting."""

from __future__ import annotations

from html import escape

from planner.plot.drawing import HEIGHT, WIDTH, Line, Marker, Place, Shape, Words, draw
from planner.plot.picture import Picture

STYLE = """
.paper{fill:#fff}.grid{stroke:#e3e3e3}.frame{stroke:#555}.limit{stroke-dasharray:6 4;opacity:.7}
.series{stroke-width:2}line,polyline{fill:none}
text{font-family:system-ui,-apple-system,"Segoe UI",Helvetica,Arial,sans-serif;font-size:13px;fill:#333}
.title{font-size:17px;font-weight:600;fill:#111}.axis{font-size:14px}
@media (prefers-color-scheme:dark){.paper{fill:#14171a}.grid{stroke:#2c3136}.frame{stroke:#a0a7ae}
text{fill:#c8ced4}.title{fill:#f2f4f6}}
"""
RADIUS = 4.5


def svg_text(picture: Picture) -> str:
    """The whole SVG file."""
    body = "\n".join(_shape(shape) for shape in draw(picture))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img" aria-label="{escape(picture.title)}">\n'
        f"<style>{STYLE}</style>\n"
        f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}"/>\n{body}\n</svg>\n'
    )


def _shape(shape: Shape) -> str:
    """One element."""
    if isinstance(shape, Line):
        return _line(shape)
    return _words(shape) if isinstance(shape, Words) else _marker(shape)


def _line(line: Line) -> str:
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in line.places)
    colour = f' stroke="{line.colour}"' if line.colour else ""
    return f'<polyline class="{line.role}" points="{places}"{colour}/>'


def _words(words: Words) -> str:
    x, y = words.place
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if words.turned else ""
    start = f'<text class="{words.role}" x="{x:.1f}" y="{y:.1f}" text-anchor="{words.anchor}"{turn}>'
    return f"{start}{escape(words.text)}</text>"


def _marker(marker: Marker) -> str:
    """A marker; one of a plan can be reached by keyboard and says what it stands for."""
    shape = _outline(marker.place, marker.shape)
    if not marker.lines:
        return f'<g fill="{marker.colour}">{shape}</g>'
    title = escape("\n".join(marker.lines))
    label = escape("; ".join(marker.lines), quote=True)
    return (
        f'<g class="point" fill="{marker.colour}" tabindex="0" aria-label="{label}"><title>{title}</title>{shape}</g>'
    )


def _outline(place: Place, shape: str) -> str:
    """The element of a marker."""
    if shape == "circle":
        return f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" r="{RADIUS}"/>'
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners_of(place, shape, RADIUS))
    return f'<polygon points="{corners}"/>'


def corners_of(place: Place, shape: str, radius: float) -> tuple[Place, ...]:
    """Corners of a marker that is no circle."""
    x, y = place
    if shape == "square":
        side = radius * 0.9
        return (x - side, y - side), (x + side, y - side), (x + side, y + side), (x - side, y + side)
    if shape == "triangle":
        return (x, y - radius * 1.2), (x + radius * 1.1, y + radius * 0.8), (x - radius * 1.1, y + radius * 0.8)
    return (x, y - radius * 1.25), (x + radius * 1.25, y), (x, y + radius * 1.25), (x - radius * 1.25, y)
