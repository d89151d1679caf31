"""Looks at all points some thousands at a time, and keeps only those that can still matter.

For questions about the whole space of a job that has no plan: whether some plan satisfies these constraints, and which
plans come nearest to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy

from planner.clock import Clock
from planner.forms import LARGEST, extremes, least_time, may_hold
from planner.plan import Value
from planner.points import (
    OuterSpace,
    Point,
    Points,
    gathered,
    inner_choices,
    legal_parts,
    outer_space,
    parts,
    points_of,
    readers,
    roomy_parts,
    standing_floors,
)
from planner.specification import Specification
from planner.terms import TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

Legal = Sequence[Mapping[str, Value]]


@dataclass(frozen=True)
class Opening:
    """Whether a plan is known to hold; where none is, the points that may hold one, and whether all were looked at."""

    holds: bool
    points: Points | None
    whole: bool


def opening(specification: Specification, active: frozenset[str], clock: Clock | None = None) -> Opening:
    """Looks for a plan that satisfies the active constraints at the first and the last row of every legal point."""
    outer, capacities = outer_space(specification, active), specification.capacities_of(active)
    left: list[Point] = []
    for part in roomy_parts(specification, outer, active, leanest_first=True):
        sums = readers(specification)[0].sums(part) if capacities else None
        if sums is None or _some_end_holds(specification, outer, part, capacities, sums):
            return Opening(True, None, True)
        if clock is not None and clock.over():
            return Opening(False, None, False)
        left += points_of(specification, part, outer, active, sums)
    return Opening(False, gathered(specification, left, outer.relations), True)


def _leanest(
    specification: Specification, outer: OuterSpace, active: frozenset[str], capacity: int | None
) -> Iterator[tuple[Legal, int]]:
    """The legal points, those of the leanest layouts first, with the bytes by which those to come are over at least."""
    if capacity is None:
        yield from ((part, -LARGEST) for part in legal_parts(outer))
        return
    standing = standing_floors(specification, active)
    for layout in sorted(outer.layouts, key=standing.bytes):
        for part in parts(outer, outer.under(layout)):
            yield part, standing.bytes(layout) - capacity


def _some_end_holds(
    specification: Specification, outer: OuterSpace, part: Legal, capacities: Mapping[str, int], sums: NDArray[Any]
) -> bool:
    """Whether the first or the last row of some point is within every capacity; `sums` are those of memory."""
    memory, timer = readers(specification)
    for rows in _ends(specification, outer, part):
        holds = may_hold(memory, sums, rows, rows, capacities)
        if TIME in capacities and holds.any():
            holds &= least_time(timer, timer.sums(part), rows, rows) <= capacities[TIME]  # exact: rows have no width
        if holds.any():
            return True
    return False


def _ends(specification: Specification, outer: OuterSpace, part: Legal) -> list[NDArray[Any]]:
    """Arrays (points, measures): the last and the first row of every point."""
    inner = len(inner_choices(specification))
    relations = [outer.relations[outer.key(values)] for values in part]
    return [numpy.array([one.rows[end][inner:] for one in relations], dtype=numpy.int64) for end in (-1, 0)]


def nearest_points(
    specification: Specification,
    active: frozenset[str],
    soft: Mapping[str, int],
    margin: int,
    clock: Clock | None = None,
) -> Points:
    """The points that can exceed the soft capacities by the fewest bytes, or by `margin` more, while all else holds.

    Where the clock ends the reading, those among what was read.
    """
    outer, held = outer_space(specification, active), specification.capacities_of(active)
    best, kept = LARGEST, list[tuple[int, Mapping[str, Value]]]()
    memory, _ = readers(specification)
    for part, least_over in _leanest(specification, outer, active, soft.get("gpu")):
        if least_over > best + margin:
            break
        sums, boxes = memory.sums(part), outer.boxes(part)
        holds = may_hold(memory, sums, *boxes, held)
        least = _excess(memory.places, extremes(sums, *boxes)[0], soft)
        for rows in _ends(specification, outer, part):
            there = may_hold(memory, sums, rows, rows, held)
            reached = _excess(memory.places, extremes(sums, rows, rows)[0], soft)[there]
            best = min(best, int(reached.min(initial=best)))
        near = numpy.flatnonzero(holds & (least <= best + margin)).tolist()
        kept = [(over, values) for over, values in kept if over <= best + margin]
        kept += [(int(least[index]), part[index]) for index in near]
        if clock is not None and clock.over():
            break
    found = points_of(specification, [values for _, values in kept], outer, active)
    return gathered(specification, found, outer.relations)


def _excess(places: Sequence[tuple[str, str]], values: NDArray[Any], soft: Mapping[str, int]) -> NDArray[Any]:
    """Array (points): by how much the fullest moment of the fullest soft device is over; negative where none is."""
    found = numpy.full(len(values), -LARGEST, dtype=numpy.int64)
    for device, capacity in soft.items():
        columns = [index for index, place in enumerate(places) if place[0] == device]
        if columns:
            found = numpy.maximum(found, values[:, columns].max(axis=1) - capacity)
    return found
