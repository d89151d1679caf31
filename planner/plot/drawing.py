"""A picture as shapes on a canvas: lines, markers and words at pixels, the same for every form of output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from planner.plot.picture import Picture, Scale, Series, Spot, scale, tick_text

WIDTH, HEIGHT = 860, 520
LEFT, RIGHT, TOP, BOTTOM = 80, 24, 76, 64
# Okabe and Ito's palette, told apart with every kind of colour vision; each with a marker of its own.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("circle", "square", "triangle", "diamond")
LEGEND = 54  # height of the legend, under the title
LETTER = 7.2  # mean width of a letter at the size of the legend

Place = tuple[float, float]


@dataclass(frozen=True)
class Line:
    """A polyline; `role` is frame, grid, limit or series."""

    places: tuple[Place, ...]
    role: str
    colour: str = ""


@dataclass(frozen=True)
class Marker:
    """A point of a series with what it stands for."""

    place: Place
    shape: str
    colour: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True)
class Words:
    """Text at a place; `anchor` is start, middle or end; turned words run upwards."""

    place: Place
    text: str
    role: str = "label"
    anchor: str = "start"
    turned: bool = False


Shape = Line | Marker | Words


def draw(picture: Picture) -> tuple[Shape, ...]:
    """The shapes of a picture, in the order they are painted."""
    limits = [series.limit for series in picture.series if series.limit is not None]
    across = scale([*(spot.x for spot in picture.spots), *limits])
    upwards = scale([spot.y for spot in picture.spots])
    canvas = _Canvas(across, upwards)
    shapes: list[Shape] = [Words((LEFT, 30), picture.title, "title"), *canvas.grid(), *canvas.labels(picture)]
    for number, series in enumerate(picture.series):
        shapes += canvas.series(series, COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)])
    return (*shapes, *_legend(picture.series))


@dataclass(frozen=True)
class _Canvas:
    """Two scales on the canvas."""

    across: Scale
    upwards: Scale

    def place(self, x: float, y: float) -> Place:
        """Pixels of a value."""
        width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
        return LEFT + width * self.across.share(x), TOP + height * (1 - self.upwards.share(y))

    def grid(self) -> Iterator[Shape]:
        """A line and a number for every tick, then the frame."""
        low, high = self.across.low, self.across.high
        for tick in self.upwards.ticks:
            left, right = self.place(low, tick), self.place(high, tick)
            yield Line((left, right), "grid")
            yield Words((LEFT - 10, left[1] + 4), tick_text(tick), anchor="end")
        for tick in self.across.ticks:
            bottom, top = self.place(tick, self.upwards.low), self.place(tick, self.upwards.high)
            yield Line((bottom, top), "grid")
            yield Words((bottom[0], HEIGHT - BOTTOM + 20), tick_text(tick), anchor="middle")
        corner = self.place(low, self.upwards.low)
        yield Line((self.place(low, self.upwards.high), corner, self.place(high, self.upwards.low)), "frame")

    def labels(self, picture: Picture) -> Iterator[Shape]:
        """What the axes show."""
        middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
        yield Words((middle, HEIGHT - 16), picture.x_label, "axis", "middle")
        yield Words((22, TOP + (HEIGHT - TOP - BOTTOM) / 2), picture.y_label, "axis", "middle", turned=True)

    def series(self, series: Series, colour: str, shape: str) -> Iterator[Shape]:
        """The stairs of a frontier, its limit, and its points."""
        if series.limit is not None:
            foot = self.place(series.limit, self.upwards.low)
            yield Line((foot, self.place(series.limit, self.upwards.high)), "limit", colour)
        yield Line(tuple(self.place(x, y) for x, y in stairs(series.spots)), "series", colour)
        for spot in series.spots:
            yield Marker(self.place(spot.x, spot.y), shape, colour, spot.lines)


def stairs(spots: Sequence[Spot]) -> Iterator[Place]:
    """Corners of the line that nothing lies below: as good as a point until the next one is reached."""
    for before, after in zip(spots, spots[1:], strict=False):
        yield before.x, before.y
        yield after.x, before.y
    if spots:
        yield spots[-1].x, spots[-1].y


def _legend(series: Sequence[Series]) -> Iterator[Shape]:
    """Names of the series in a row under the title."""
    left = LEFT + 6.0
    for number, item in enumerate(series):
        yield Marker((left, LEGEND - 4), MARKERS[number % len(MARKERS)], COLOURS[number % len(COLOURS)])
        yield Words((left + 12, LEGEND), item.name)
        left += 36 + LETTER * len(item.name)
    if any(item.limit is not None for item in series):
        yield Words((WIDTH - RIGHT, LEGEND), "dashed: what can be planned with", anchor="end")
