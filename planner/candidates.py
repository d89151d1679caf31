"""The points that the fastest plan, or the leanest, can be at, found without reading the terms of the others.

For the fastest one layouts and micro-batches are taken up in order of their floors, the lower bounds of
`planner.floors`, and the other choices are gone through under each of them only until a plan that holds is faster than
every floor that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy

from planner.batches import Batch, Batches, LeanBatches
from planner.clock import Clock
from planner.forms import LARGEST, Reader, least_time, may_hold
from planner.objective import GRAIN, Coordinate, slackened
from planner.plan import Value
from planner.points import (
    PART,
    OuterSpace,
    Points,
    gathered,
    inner_choices,
    outer_space,
    points_of,
    readers,
)
from planner.rows import least_rows
from planner.specification import Specification
from planner.terms import ceil_divide

if TYPE_CHECKING:
    from numpy.typing import NDArray

Wanted = Callable[[Mapping[str, Value]], bool]
Legal = Sequence[Mapping[str, Value]]
Found = tuple[Mapping[str, Value], int]
FIRST_CHUNK = 4  # layouts with micro-batch that are gone through before the first look; each time twice as many
LARGEST_CHUNK = 256  # between two looks at the clock


def promising_points(
    specification: Specification,
    wanted: Wanted = lambda _: True,
    within: Fraction = Fraction(0),
    clock: Clock | None = None,
) -> Points:
    """The points that the fastest plan can be at: all with a plan that holds and is as fast as any.

    `wanted` restricts the points that count; with `within` all are there that have a plan within that share of the
    fastest. The clock may end the reading early.
    """
    candidates = _candidates(specification)
    return _points(specification, candidates.outer, *candidates.nearest(wanted, within, clock))


def leanest_points(
    specification: Specification,
    wanted: Wanted = lambda _: True,
    within: Fraction = Fraction(0),
    clock: Clock | None = None,
) -> Points:
    """As `promising_points`, the points that the plan with the least GPU memory can be at.

    Layouts with micro-batches are gone through by what they take at least, until some plan takes less than all left.
    """
    outer, lean = outer_space(specification, None), _lean_batches(specification)
    found, ceiling, unread, size = list[Found](), specification.capacities.get("gpu", LARGEST), None, FIRST_CHUNK
    waiting = lean.below(lambda: ceiling)
    while some := list(islice(waiting, size)):
        if size > FIRST_CHUNK and clock is not None and clock.over():
            unread = ceil_divide(some[0][0], GRAIN)
            break
        legal = [values for _, batch in some for values in outer.with_batch(batch) if wanted(values)]
        for start in range(0, len(legal), PART):
            found += _leanest(specification, outer, legal[start : start + PART])
        most = slackened(min((ceil_divide(held, GRAIN) for _, held in found), default=LARGEST // GRAIN), within)
        ceiling, size = min(ceiling, most * GRAIN), min(2 * size, LARGEST_CHUNK)
    return _points(specification, outer, [values for values, held in found if held <= ceiling], unread)


@lru_cache(maxsize=4)
def _lean_batches(specification: Specification) -> LeanBatches:
    """The layouts with micro-batches of a specification by what they take, kept between questions."""
    return LeanBatches(specification, outer_space(specification, None))


def _points(specification: Specification, outer: OuterSpace, legal: Legal, unread: int | None) -> Points:
    """The points at which combinations of values are, with their forms."""
    points = points_of(specification, legal, outer, None)
    return replace(gathered(specification, points, outer.relations), unread=unread)


def _leanest(specification: Specification, outer: OuterSpace, legal: Legal) -> list[Found]:
    """The points with a plan that holds, with the least bytes that one takes of a GPU."""
    if not legal:
        return []
    memory, time = readers(specification)
    return _reaching("memory", specification, outer, legal, (memory.sums(legal), time.sums(legal)))


def _reaching(
    coordinate: Coordinate,
    specification: Specification,
    outer: OuterSpace,
    legal: Legal,
    sums: tuple[NDArray[Any], NDArray[Any]],
) -> list[Found]:
    """The points with a plan that holds, each with the least that one reaches in a coordinate."""
    relations, inner = [outer.relations[outer.key(values)] for values in legal], len(inner_choices(specification))
    reached = least_rows(coordinate, readers(specification), sums, relations, inner, specification.capacities).tolist()
    return [(values, least) for values, least in zip(legal, reached, strict=True) if least < LARGEST]


@lru_cache(maxsize=4)
def _candidates(specification: Specification) -> _Candidates:
    """The reader of a specification's candidates, kept between questions."""
    return _Candidates(specification)


class _Candidates:
    """Reads terms of legal points only as far as they can still matter, each once."""

    def __init__(self, specification: Specification) -> None:
        self.specification = specification
        self.outer = outer_space(specification, None)
        self.capacities = specification.capacities
        measures = [measure.name for measure in specification.space.measures]
        self.standing = Reader([term for term in specification.memory if "micro_batch" not in term.scope], measures)
        self.batches = Batches(specification, self.outer)
        self.complete: dict[Batch, list[Mapping[str, Value]]] = {}

    def nearest(self, wanted: Wanted, within: Fraction, clock: Clock | None) -> tuple[Legal, int | None]:
        """The points, read by rising floors until some plan is faster than all floors left, and the first floor unread.

        The latter is None unless the clock ended the reading, which leaves the first batches in any case. `within`: the
        share by which a plan may be slower.
        """
        found, ceiling, size, unread = list[Found](), LARGEST, FIRST_CHUNK, None
        near = self.batches.below(lambda: ceiling)
        while chunk := list(islice(near, size)):
            if size > FIRST_CHUNK and clock is not None and clock.over():
                unread = chunk[0].floor
                break
            ceiling = self._reached(chunk, wanted, ceiling, within, found)
            size = min(2 * size, LARGEST_CHUNK)
        return [values for values, fastest in found if fastest <= ceiling], unread

    def _reached(
        self, batches: Sequence[Batch], wanted: Wanted, ceiling: int, within: Fraction, found: list[Found]
    ) -> int:
        """Adds the points of some batches that reach the ceiling to those found; the ceiling that they lower."""
        self._complete([batch for batch in batches if batch not in self.complete])
        legal = [values for batch in batches for values in self.complete[batch] if wanted(values)]
        for start in range(0, len(legal), PART):
            part = self._part(legal[start : start + PART], ceiling)
            found += part
            ceiling = min([ceiling, *(slackened(fastest, within) for _, fastest in part)])
        return ceiling

    def _complete(self, batches: Sequence[Batch]) -> None:
        """Goes through the other choices under some layouts with micro-batches."""
        legal = []
        for batch in batches:
            self.complete[batch] = []
            legal += [(batch, values) for values in self.outer.with_batch(batch.values)]
        for index in self._holding([values for _, values in legal]):
            batch, values = legal[index]
            self.complete[batch].append(values)

    def _holding(self, legal: Legal) -> Sequence[int]:
        """Which points' memory can hold without what grows with the micro-batch."""
        if not legal or not self.standing.places:
            return range(len(legal))
        first, alike = self._distinct(self.standing, legal)
        some = [legal[index] for index in first]
        holds = may_hold(self.standing, self.standing.sums(some), *self.outer.boxes(some), self.capacities)
        return numpy.flatnonzero(holds[alike]).tolist()

    def _distinct(self, reader: Reader, legal: Legal) -> tuple[list[int], NDArray[Any]]:
        """One point of each kind that the reader can tell apart, and for each point the position of its kind."""
        names = sorted({*self.outer.reading, *(name for scope in reader.groups for name in scope)})
        kinds: dict[tuple[Hashable, ...], int] = {}
        first: list[int] = []
        alike = []
        for index, values in enumerate(legal):
            kind = tuple(values[name] for name in names)
            if kind not in kinds:
                kinds[kind] = len(first)
                first.append(index)
            alike.append(kinds[kind])
        return first, numpy.array(alike, dtype=numpy.int64)

    def _part(self, legal: Legal, ceiling: int) -> list[Found]:
        """The points of a chunk that have a plan that holds and is within the ceiling, with the fastest one's time."""
        if not legal:
            return []
        memory, time = readers(self.specification)
        low, high = self.outer.boxes(legal)
        timed = time.sums(legal)
        fast = numpy.flatnonzero(least_time(time, timed, low, high) <= ceiling)
        held = memory.sums([legal[index] for index in fast.tolist()])
        holds = may_hold(memory, held, low[fast], high[fast], self.capacities)
        kept = [legal[index] for index in fast[holds].tolist()]
        found = _reaching("time", self.specification, self.outer, kept, (held[holds], timed[fast[holds]]))
        return [(values, reached) for values, reached in found if reached <= ceiling]
