"""Affine forms in the measures, read from the terms' own bodies and added up for many points at once.

A form is `constant + slopes · measures` in exact integers. Sums over the points of a specification are taken in 64-bit
arrays; a job whose numbers could leave them is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from planner.errors import InputError
from planner.plan import Value
from planner.terms import LANES, WINDOWS, MemoryTerm, Term, TimeTerm

if TYPE_CHECKING:
    from numpy.typing import NDArray

Boxes = Sequence[tuple[int, int]]
Place = tuple[str, str]
LARGEST = 2**62  # beyond every sum
LARGEST_TERM = 2**55  # bytes or microseconds of one term; a few hundred of them stay inside 64 bits


@dataclass(frozen=True)
class Form:
    """`constant` plus the sum of `slopes` times the measures, in the order of the space's measures."""

    constant: int
    slopes: tuple[int, ...]

    def least(self, boxes: Boxes) -> int:
        """The smallest value over boxes of the measures."""
        pairs = zip(self.slopes, boxes, strict=True)
        return self.constant + sum(slope * (low if slope > 0 else high) for slope, (low, high) in pairs)

    def most(self, boxes: Boxes) -> int:
        """The largest value over boxes of the measures."""
        pairs = zip(self.slopes, boxes, strict=True)
        return self.constant + sum(slope * (high if slope > 0 else low) for slope, (low, high) in pairs)

    def plus(self, other: Form) -> Form:
        """The sum of two forms."""
        return Form(self.constant + other.constant, tuple(map(int.__add__, self.slopes, other.slopes)))

    def minus(self, other: Form) -> Form:
        """The difference of two forms."""
        return Form(self.constant - other.constant, tuple(map(int.__sub__, self.slopes, other.slopes)))


def affine(term: Term, values: Mapping[str, Value], measures: Sequence[str]) -> Form:
    """The term's affine form in the measures at one combination of its scope, read from its own body.

    `values` are those of the scope and no others, so that a hidden dependency is a KeyError.
    """
    if not term.measures:
        return Form(term.body(values), (0,) * len(measures))
    base = {**values, **dict.fromkeys(term.measures, 0)}
    constant = term.body(base)
    slopes = {name: term.body({**base, name: 1}) - constant for name in term.measures}
    return Form(constant, tuple(slopes.get(name, 0) for name in measures))


def undominated(forms: Sequence[Form], boxes: Boxes) -> tuple[Form, ...]:
    """The forms that can be the largest somewhere in the boxes."""
    if len(forms) < 2:
        return tuple(forms)
    kept: list[Form] = []
    for form in sorted(dict.fromkeys(forms), key=lambda item: (-item.most(boxes), -item.constant, item.slopes)):
        if not any(other.minus(form).least(boxes) >= 0 for other in kept):
            kept.append(form)
    return tuple(kept)


class Reader:
    """Reads terms once for each combination of their scope, and adds them up by place at many points."""

    def __init__(self, terms: Sequence[Term], measures: Sequence[str]) -> None:
        self.measures = tuple(measures)
        self.places = sorted({place for term in terms for place in places(term)})
        self.column = {place: index for index, place in enumerate(self.places)}
        self.groups: dict[tuple[str, ...], list[tuple[Term, list[int]]]] = {}
        for term in terms:
            columns = [self.column[place] for place in places(term)]
            self.groups.setdefault(tuple(sorted(term.scope)), []).append((term, columns))
        self.touched = {
            scope: sorted({place for _, columns in group for place in columns}) for scope, group in self.groups.items()
        }
        self.sloping = {scope: any(term.measures for term, _ in group) for scope, group in self.groups.items()}
        self.names = sorted({name for scope in self.groups for name in scope})
        self.tables: dict[tuple[str, ...], dict[tuple[Value, ...], NDArray[Any]]] = {scope: {} for scope in self.groups}

    def lanes(self, window: str) -> list[int]:
        """The columns of a window's lanes that run beside each other."""
        return [self.column[window, lane] for lane in LANES if lane != "serial" and (window, lane) in self.column]

    def sums(self, points: Sequence[Mapping[str, Value]]) -> NDArray[Any]:
        """Array (points, places, 1 + measures): constant and slopes of every place at every point."""
        total = numpy.zeros((1 + len(self.measures), len(self.places), len(points)), dtype=numpy.int64)
        if not points:
            return total.transpose()
        columns = {name: self._codes(name, points) for name in self.names}
        for scope in self.groups:
            keys = numpy.zeros(len(points), dtype=numpy.int64)
            for name in scope:
                codes, size = columns[name]
                keys = keys * size + codes
            _, first, inverse = numpy.unique(keys, return_index=True, return_inverse=True)
            rows = numpy.stack([self._row(scope, points[index]) for index in first.tolist()], axis=2)
            total[: len(rows), self.touched[scope]] += rows[:, :, inverse.reshape(-1)]
        return total.transpose()

    def _codes(self, name: str, points: Sequence[Mapping[str, Value]]) -> tuple[NDArray[Any], int]:
        """A number for each point's value of a choice, and how many numbers there are."""
        numbers: dict[Value, int] = {}
        codes = [numbers.setdefault(point[name], len(numbers)) for point in points]
        return numpy.array(codes, dtype=numpy.int64), len(numbers)

    def _row(self, scope: tuple[str, ...], point: Mapping[str, Value]) -> NDArray[Any]:
        """The forms of a scope's terms at one point, see `_read`; read where its values are new."""
        key = tuple(point[name] for name in scope)
        table = self.tables[scope]
        if key not in table:
            table[key] = self._read(scope, dict(zip(scope, key, strict=True)))
        return table[key]

    def _read(self, scope: tuple[str, ...], values: Mapping[str, Value]) -> NDArray[Any]:
        """Array (1 + measures, places that the terms touch): a scope's forms at one combination, added up by place.

        Constants alone where no term of the scope has a slope.
        """
        added: dict[int, Form] = {}
        for term, columns in self.groups[scope]:
            form = affine(term, values, self.measures)
            if not form.constant and not any(form.slopes):
                continue
            if max(abs(form.constant), *map(abs, form.slopes)) > LARGEST_TERM:
                raise InputError(f"{term.name} is beyond what can be planned exactly", expected="a smaller job")
            for column in columns:
                added[column] = added[column].plus(form) if column in added else form
        touched, width = self.touched[scope], 1 + self.sloping[scope] * len(self.measures)
        found = numpy.zeros((width, len(touched)), dtype=numpy.int64)
        for index, column in enumerate(touched):
            if column in added:
                found[:, index] = (added[column].constant, *added[column].slopes)[:width]
        return found


def places(term: Term) -> tuple[Place, ...]:
    """Where a term counts: (device, moment at a stage) for memory, (window, lane) for time."""
    if isinstance(term, MemoryTerm):
        return tuple((term.device, f"{moment} {term.stage}") for moment in term.moments)
    if isinstance(term, TimeTerm):
        return ((term.window, term.lane),)
    raise TypeError(f"{term.name} is neither a memory nor a time term")


def extremes(sums: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Arrays (points, places) of the least and the most of every form over the points' boxes."""
    least, slopes = sums[:, :, 0].copy(), sums[:, :, 1:]
    most, used = least.copy(), numpy.asarray(slopes.any(axis=0))
    for measure in numpy.flatnonzero(used.any(axis=0)).tolist():
        places = numpy.flatnonzero(used[:, measure])
        steps = slopes[:, places, measure]
        ends = steps * low[:, measure, None], steps * high[:, measure, None]
        least[:, places] += numpy.minimum(*ends)
        most[:, places] += numpy.maximum(*ends)
    return least, most


def may_be_largest(sums: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Array (points, places): whether a place's most reaches the largest least of all places given."""
    least, most = extremes(sums, low, high)
    return most >= least.max(axis=1, keepdims=True)  # type: ignore[no-any-return]


def may_hold(
    reader: Reader, sums: NDArray[Any], low: NDArray[Any], high: NDArray[Any], capacities: Mapping[str, int]
) -> NDArray[Any]:
    """Array (points): whether every moment of the devices in `capacities` can be within them somewhere in the boxes."""
    least, _ = extremes(sums, low, high)
    none = numpy.iinfo(numpy.int64).max
    bounds = numpy.array([capacities.get(device, none) for device, _ in reader.places], dtype=numpy.int64)
    return numpy.asarray((least <= bounds).all(axis=1))


def form(row: NDArray[Any]) -> Form:
    """A row (1 + measures) as a form of Python integers."""
    constant, *slopes = row.tolist()
    return Form(constant, tuple(slopes))


def memory_forms(reader: Reader, sums: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> list[dict[str, Any]]:
    """For each point the forms of each device's moments that can be its peak."""
    found: list[dict[str, Any]] = [{} for _ in range(len(sums))]
    for device in sorted({device for device, _ in reader.places}):
        columns = [index for index, place in enumerate(reader.places) if place[0] == device]
        part = sums[:, columns]
        keep = may_be_largest(part, low, high)
        for point, rows in enumerate(part):
            forms = [form(row) for row in rows[keep[point]]]
            boxes = list(zip(low[point].tolist(), high[point].tolist(), strict=True))
            found[point][device] = undominated(forms, boxes)
    return found


def least_time(reader: Reader, sums: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> NDArray[Any]:
    """Array (points): a lower bound of the step time over the points' boxes."""
    least, _ = extremes(sums, low, high)
    return time_at(reader, least)


def time_at(reader: Reader, values: NDArray[Any]) -> NDArray[Any]:
    """Array (points, …): the step time where `values` (points, places, …) are those of the time reader's places."""
    total = numpy.zeros((len(values), *values.shape[2:]), dtype=numpy.int64)
    for window in WINDOWS:
        lanes = reader.lanes(window)
        total += values[:, lanes].max(axis=1) if lanes else 0
        total += values[:, reader.column[window, "serial"]] if (window, "serial") in reader.column else 0
    return total


def time_forms(reader: Reader, sums: NDArray[Any], low: NDArray[Any], high: NDArray[Any]) -> list[tuple[Form, ...]]:
    """For each point the forms of which the largest is the step time: one for each way to pick a lane per window."""
    zero = numpy.zeros((len(sums), 1 + len(reader.measures)), dtype=numpy.int64)
    windows = []
    for window in WINDOWS:
        lanes = reader.lanes(window)
        serial = sums[:, reader.column[window, "serial"]] if (window, "serial") in reader.column else zero
        part = sums[:, lanes] if lanes else zero[:, None]
        windows.append((serial, part, may_be_largest(part, low, high)))
    found = []
    for point in range(len(sums)):
        options = [form(sum(serial[point] for serial, _, _ in windows))]
        for _, part, keep in windows:
            kept = [form(row) for row in part[point][keep[point]]]
            options = [total.plus(lane) for total in options for lane in kept]
        found.append(undominated(options, list(zip(low[point].tolist(), high[point].tolist(), strict=True))))
    return found
