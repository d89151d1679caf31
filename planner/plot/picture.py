"""What a picture shows, free of any form: named series of points on two axes, each point with what it stands for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10

from planner.answer import plan_answer
from planner.evaluate import Evaluation
from planner.frontier import Axis, Frontier
from planner.job import Job
from planner.units import GIB, format_bytes, format_seconds


@dataclass(frozen=True)
class Spot:
    """One point: where it stands in the axes' own units, and what it stands for, a line each."""

    x: float
    y: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """Points of one frontier by x, rising; `limit` is where x ends for it, None where nothing is to be shown."""

    name: str
    spots: tuple[Spot, ...]
    limit: float | None = None


@dataclass(frozen=True)
class Picture:
    """Series over two labelled axes."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]

    @property
    def spots(self) -> tuple[Spot, ...]:
        """The points of every series."""
        return tuple(spot for series in self.series for spot in series.spots)


@dataclass(frozen=True)
class Scale:
    """A straight scale with round ticks that hold every value given."""

    low: float
    high: float
    ticks: tuple[float, ...]

    def share(self, value: float) -> float:
        """Where a value stands between both ends, 0 to 1."""
        return (value - self.low) / (self.high - self.low)


def scale(values: Iterable[float], most_ticks: int = 8) -> Scale:
    """The scale of some values: from zero where that costs less than half of the room, else from below the least."""
    found = list(values)
    least, most = min(found), max(found)
    low = 0.0 if least < 0.5 * most or least == most else least
    step = _round_step((most - low) / most_ticks) if most > low else 1.0
    first, last = floor(low / step), max(ceil(most / step), floor(low / step) + 1)
    ticks = tuple(number * step for number in range(first, last + 1))
    return Scale(ticks[0], ticks[-1], ticks)


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 2.5, 5 times a power of ten that is at least `least`."""
    power = 10.0 ** floor(log10(least))
    return next((factor * power for factor in (1, 2, 2.5, 5) if factor * power >= least), 10 * power)


def tick_text(value: float) -> str:
    """A tick without needless digits."""
    return f"{value:,.6g}"


def picture(frontiers: Mapping[str, Frontier], title: str) -> Picture:
    """Some frontiers on the same axes."""
    first = next(iter(frontiers.values()))
    x, y = first.axes
    shown = tuple(_series(name, found) for name, found in frontiers.items())
    return Picture(title, _label(x, first.job), _label(y, first.job), shown)


def _label(axis: Axis, job: Job) -> str:
    """An axis with its unit."""
    if axis.unit(job) == "bytes":
        return f"{axis.label} (GiB)"
    if axis.name == "gpus":
        return axis.label
    return f"{axis.label} ({axis.unit(job)})"


def _shown(axis: Axis, value: float, job: Job) -> float:
    """A value in the unit that the picture shows."""
    return value / GIB if axis.unit(job) == "bytes" else value


def _series(name: str, found: Frontier) -> Series:
    """One frontier as a series; where x is a device's memory its limit is what can be planned with."""
    x, y = found.axes
    spots = []
    for number, point in enumerate(found.points, 1):
        first, second = found.values(point)
        lines = (f"{name}, point {number}", *point_lines(point))
        spots.append(Spot(_shown(x, first, found.job), _shown(y, second, found.job), lines))
    devices = {"memory": "gpu", "host_memory": "host"}
    limit = found.points[0].ledger[devices[x.name]].capacity.planned / GIB if x.name in devices else None
    return Series(name, tuple(spots), limit)


def point_lines(point: Evaluation) -> Sequence[str]:
    """A plan in a few lines: figures, then the choices that are not at their plainest."""
    host = point.ledger["host"].peak.total
    return (
        f"{format_bytes(point.peak_bytes)} per GPU, {format_bytes(host)} per host",
        f"{format_seconds(point.step_time.seconds)} a step, {point.tokens_per_second_per_gpu:,.0f} tokens/s per GPU",
        plan_line(point),
    )


def plan_line(point: Evaluation) -> str:
    """The choices of a plan in one line; what was settled, offloads that are none and degrees of 1 are left out."""
    values, settled = plan_answer(point.values), point.job.settled
    shown = {name: value for name, value in values.items() if name not in settled and not _plain(name, value)}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def _plain(name: str, value: object) -> bool:
    """Whether a value goes without saying."""
    return value == "none" or (name.endswith("_parallel") and value == 1)
