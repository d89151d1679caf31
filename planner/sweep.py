"""Every plan of a specification that is worth a second look, in exact integers: the corner of memory and time.

Reads the same affine forms as the solver's model, row by row; what is found here the solver is asked to prove.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from planner.forms import Boxes, Form
from planner.plan import Plan, Value
from planner.points import Point, Points
from planner.relations import Relation

if TYPE_CHECKING:
    from numpy.typing import NDArray

Progress = Callable[[int, int], None]
Allowed = Mapping[str, Collection[Value]]
TIME = "time"
CHUNK = 256  # points between two looks at what is already dominated


@dataclass(frozen=True, order=True)
class Corner:
    """One plan by its two coordinates (bytes or microseconds) and its place in the fixed order of plans."""

    first: int
    second: int
    rank: int
    point: int
    row: int


def sweep(
    points: Points, coordinates: tuple[str, str], capacities: Mapping[str, int], progress: Progress | None = None
) -> list[Corner]:
    """The corners that no other plan is at least as good as in both coordinates; by the first, rising.

    A coordinate is a device (its peak in bytes) or `time` (microseconds of a step). Of plans with the same coordinates
    the first in the catalog's order stands.
    """
    found: list[Corner] = []
    order = sorted(range(len(points.points)), key=lambda index: _corner(points, index, coordinates))
    for start in range(0, len(order), CHUNK):
        for index in order[start : start + CHUNK]:
            if not _dominated(found, _corner(points, index, coordinates)):
                found += _of_point(points, index, coordinates, capacities)
        found = undominated(found)
        if progress is not None:
            progress(min(start + CHUNK, len(order)), len(order))
    return found


class Ranking:
    """Answers which plan of some points is best, by bounds first and rows only where a bound leaves room.

    The order is that of the search: the first coordinate, the second, the catalog's order.
    """

    def __init__(self, points: Points, coordinates: tuple[str, str]) -> None:
        self.points, self.coordinates = points, coordinates
        self.order = sorted((_corner(points, index, coordinates), index) for index in range(len(points.points)))

    def best(self, allowed: Allowed, capacities: Mapping[str, int]) -> Corner | None:
        """The best plan with allowed values (choices that are not named are free) within the capacities."""
        best: Corner | None = None
        for (bound, _), index in self.order:
            if best is not None and bound > best.first:
                break
            if self._may_be(index, allowed):
                rows = _of_point(self.points, index, self.coordinates, capacities, _rows(self.points, index, allowed))
                best = min([*rows, *([best] if best is not None else [])], default=None)
        return best

    def nearest(self, allowed: Allowed, capacities: Mapping[str, int]) -> Corner | None:
        """The best of the plans that exceed the capacities by the fewest bytes on the device they exceed most."""
        bounds = sorted(
            (max(self._excess(index, capacities), 0), index) for _, index in self.order if self._may_be(index, allowed)
        )
        least: int | None = None
        for bound, index in bounds:
            if least is not None and bound >= least:
                break
            found = self._least_excess(index, allowed, capacities)
            if found is not None and (least is None or found < least):
                least = found
        if least is None:
            return None
        return self.best(allowed, {device: capacity + least for device, capacity in capacities.items()})

    def _may_be(self, index: int, allowed: Allowed) -> bool:
        """Whether a point has allowed values."""
        values = self.points.points[index].values
        return all(values[name] in found for name, found in allowed.items() if name in values)

    def _excess(self, index: int, capacities: Mapping[str, int]) -> int:
        """What no row of a point exceeds the capacities by less than."""
        point = self.points.points[index]
        boxes = self.points.relations[point.key].boxes
        return max(_least(_forms(point, device), boxes) - capacity for device, capacity in capacities.items())

    def _least_excess(self, index: int, allowed: Allowed, capacities: Mapping[str, int]) -> int | None:
        """The fewest bytes over the capacities among a point's allowed rows, at least 0; None where there is no row."""
        point, rows = self.points.points[index], _rows(self.points, index, allowed)
        if not rows.any():
            return None
        measured = _measured(self.points.relations[point.key], len(self.points.inner))
        over = [_largest(_forms(point, device), measured) - capacity for device, capacity in capacities.items()]
        return max(0, int(numpy.maximum.reduce(over)[rows].min()))


def _rows(points: Points, index: int, allowed: Allowed) -> NDArray[Any]:
    """Array (rows): whether a row's inner choices have allowed values."""
    rows = points.relations[points.points[index].key].rows
    kept = numpy.ones(len(rows), dtype=bool)
    for column, choice in enumerate(points.inner):
        if choice.name in allowed:
            places = [place for place, value in enumerate(choice.values) if value in allowed[choice.name]]
            kept &= numpy.isin([row[column] for row in rows], places)
    return kept


def undominated(corners: Sequence[Corner]) -> list[Corner]:
    """The corners that no other is at least as good as; by the first coordinate, rising."""
    kept: list[Corner] = []
    for corner in sorted(corners):
        if not kept or corner.second < kept[-1].second:
            kept.append(corner)
    return kept


def plan_of(points: Points, corner: Corner) -> Plan:
    """The plan at a corner, in the order of the space."""
    point = points.points[corner.point]
    row = points.relations[point.key].rows[corner.row]
    values: dict[str, Value] = dict(point.values)
    values |= {choice.name: choice.values[place] for choice, place in zip(points.inner, row, strict=False)}
    return Plan({choice.name: values[choice.name] for choice in points.space.choices})


def _corner(points: Points, index: int, coordinates: tuple[str, str]) -> tuple[int, int]:
    """What no row of a point is below."""
    point = points.points[index]
    boxes = points.relations[point.key].boxes
    first, second = (_least(_forms(point, name), boxes) for name in coordinates)
    return first, second


def _least(forms: Sequence[Form], boxes: Boxes) -> int:
    """The smallest that the largest of the forms can be."""
    return max((form.least(boxes) for form in forms), default=0)


def _dominated(found: Sequence[Corner], corner: tuple[int, int]) -> bool:
    """Whether some plan found is strictly better than all of a point in one coordinate and no worse in the other."""
    first, second = corner
    return any(
        other.first <= first and other.second <= second and (other.first, other.second) != corner for other in found
    )


def _forms(point: Point, coordinate: str) -> Sequence[Form]:
    """The forms of which the largest is the coordinate."""
    return point.time if coordinate == TIME else point.memory.get(coordinate, ())


def _of_point(
    points: Points,
    index: int,
    coordinates: tuple[str, str],
    capacities: Mapping[str, int],
    rows: NDArray[Any] | None = None,
) -> Iterator[Corner]:
    """The corners of one point's rows, those given or all, that are within every capacity."""
    point = points.points[index]
    relation = points.relations[point.key]
    measured = _measured(relation, len(points.inner))
    fits = numpy.ones(len(measured), dtype=bool) if rows is None else rows.copy()
    for name, capacity in capacities.items():
        fits &= _largest(_forms(point, name), measured) <= capacity
    first, second = (_largest(_forms(point, name), measured) for name in coordinates)
    corners = [
        Corner(int(first[row]), int(second[row]), point.rank + _position(points, relation, row), index, row)
        for row in numpy.flatnonzero(fits).tolist()
    ]
    yield from undominated(corners)


def _measured(relation: Relation, inner: int) -> NDArray[Any]:
    """Array (rows, measures) of a relation."""
    return numpy.array([row[inner:] for row in relation.rows], dtype=numpy.int64).reshape(len(relation.rows), -1)


def _largest(forms: Sequence[Form], measured: NDArray[Any]) -> NDArray[Any]:
    """Array (rows) of the largest of the forms."""
    if not forms:
        return numpy.zeros(len(measured), dtype=numpy.int64)
    constants = numpy.array([form.constant for form in forms], dtype=numpy.int64)
    slopes = numpy.array([form.slopes for form in forms], dtype=numpy.int64)
    return (constants[:, None] + slopes @ measured.T).max(axis=0)  # type: ignore[no-any-return]


def _position(points: Points, relation: Relation, row: int) -> int:
    """What the inner choices add to a plan's rank."""
    return sum(weight * place for weight, place in zip(points.inner_weights, relation.rows[row], strict=False))
