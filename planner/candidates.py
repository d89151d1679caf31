"""The points that the fastest plan can be at, found without reading the terms of the others.

Layouts and micro-batches are taken up in order of their floors, the lower bounds of `planner.floors`, and the other
choices are gone through under each of them only until a plan that holds is faster than every floor that is left.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy

from planner.batches import BATCH, Batch, Batches
from planner.clock import Clock
from planner.forms import LARGEST, Reader, least_time, may_hold
from planner.objective import slackened
from planner.plan import Value
from planner.points import (
    Point,
    Points,
    gathered,
    inner_choices,
    legal_values,
    outer_space,
    points_of,
    readers,
)
from planner.specification import Specification

if TYPE_CHECKING:
    from numpy.typing import NDArray

Wanted = Callable[[Mapping[str, Value]], bool]
Legal = Sequence[Mapping[str, Value]]
FIRST_CHUNK = 12  # layouts with micro-batch that are gone through before the first look at what holds
ROWS_TRIED = 8  # rows of a point that are tried for a plan that holds


def promising_points(
    specification: Specification,
    wanted: Wanted = lambda _: True,
    within: Fraction = Fraction(0),
    clock: Clock | None = None,
) -> Points:
    """The points that the fastest plan can be at: all whose least time is at most that of some plan that holds.

    Points that cannot hold even without what grows with the micro-batch are left out. `wanted` restricts the points
    that count; with `within` all are there that can hold a plan within that share of the fastest. The clock may end
    the reading early.
    """
    candidates = _candidates(specification)
    found, unread = candidates.nearest(wanted, within, clock)
    return replace(gathered(specification, found, candidates.outer.relations), unread=unread)


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
        self.rest = [choice for choice in self.outer.choices if choice.name not in BATCH]
        self.further = [rule for rule in self.outer.rules if not set(rule.scope) <= set(BATCH)]
        self.batches = Batches(specification, self.outer)
        self.complete: dict[Batch, Legal] = {}

    def nearest(self, wanted: Wanted, within: Fraction, clock: Clock | None) -> tuple[list[Point], int | None]:
        """Points by rising floors, until one that holds is faster than all that are left, and the first floor unread.

        The latter is None unless the clock ended the reading. `within`: the share by which a plan may be slower.
        """
        found, read, ceiling, size = [], set[Batch](), LARGEST, FIRST_CHUNK
        for first in self.batches.first(FIRST_CHUNK):
            more, ceiling = self._reached(first, wanted, ceiling, within)
            found += more
            read.update(first)
            if ceiling < LARGEST or (clock is not None and clock.over()):
                break
        rest = (batch for batch in self.batches.below(ceiling) if batch not in read)
        while chunk := list(islice(rest, size)):
            if chunk[0].floor > ceiling:
                break
            if clock is not None and clock.over():
                return found, chunk[0].floor
            near = [batch for batch in chunk if batch.floor <= ceiling]
            more, ceiling = self._reached(near, wanted, ceiling, within)
            found += more
            size *= 2
        return found, None

    def _reached(
        self, batches: Sequence[Batch], wanted: Wanted, ceiling: int, within: Fraction
    ) -> tuple[list[Point], int]:
        """The points of some batches that can be as fast as the ceiling, and the ceiling that they lower."""
        legal = [values for batch in batches for values in self._completed(batch) if wanted(values)]
        part = self._part(self._holding(legal), ceiling)
        return part, min([ceiling, *(slackened(self._fast_row(point), within) for point in part)])

    def _completed(self, batch: Batch) -> Legal:
        """The legal points with one layout and micro-batch."""
        if batch not in self.complete:
            found = legal_values(self.rest, self.further, batch.values)
            self.complete[batch] = [values for values in found if self.outer.key(values) in self.outer.relations]
        return self.complete[batch]

    def _holding(self, legal: Legal) -> Legal:
        """The points whose memory can hold without what grows with the micro-batch."""
        if not legal or not self.standing.places:
            return legal
        first, alike = self._distinct(self.standing, legal)
        some = [legal[index] for index in first]
        holds = may_hold(self.standing, self.standing.sums(some), *self.outer.boxes(some), self.capacities)
        return [legal[index] for index in numpy.flatnonzero(holds[alike]).tolist()]

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

    def _part(self, legal: Legal, ceiling: int) -> list[Point]:
        """The points of a chunk that can be as fast as the ceiling and can hold."""
        if not legal:
            return []
        _, time = readers(self.specification)
        fast = numpy.flatnonzero(least_time(time, time.sums(legal), *self.outer.boxes(legal)) <= ceiling).tolist()
        return points_of(self.specification, [legal[index] for index in fast], self.outer, None)

    def _fast_row(self, point: Point) -> int:
        """The least time of a few rows of the point, ends included, at which every device holds; else LARGEST."""
        rows, inner = self.outer.relations[point.key].rows, len(inner_choices(self.specification))
        bounded = [
            (form, self.capacities[d]) for d, forms in point.memory.items() if d in self.capacities for form in forms
        ]
        fastest = LARGEST
        for row in {*rows[:: max(1, len(rows) // ROWS_TRIED)], rows[-1]}:
            box = tuple((value, value) for value in row[inner:])
            if all(form.least(box) <= bound for form, bound in bounded):
                fastest = min(fastest, max((form.least(box) for form in point.time), default=0))
        return fastest
