"""The candidate space seen from its outer choices: for each legal combination, affine forms in the measures.

Choices that terms depend on only through measures (the checkpoint count) are *inner*: they stay integer variables. All
others are *outer*: every combination that the rules allow is one point, and at a point each moment's memory and each
way the lanes of a step can line up is one affine form with integer coefficients. No solver in sight.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy

from planner.choices import Choice, Space
from planner.forms import Boxes, Form, Reader, least_time, may_hold, memory_forms, time_forms
from planner.memory import least_activations
from planner.plan import Layout, Value
from planner.specification import Specification
from planner.terms import Rule, Term

if TYPE_CHECKING:
    from numpy.typing import NDArray

Active = frozenset[str] | None
Wanted = Callable[[Mapping[str, Value]], bool]
LARGEST = 2**62
FIRST_CHUNK = 64  # points whose memory is read before the first look at what holds
ROWS_TRIED = 8  # rows of a point that are tried for a plan that holds


@dataclass(frozen=True)
class Relation:
    """The inner choices and measures that go together at one combination of the outer choices that measures read.

    Each row holds the positions of the inner choices' values, then the measures' values; `boxes` bound the measures.
    """

    rows: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Point:
    """One legal combination of outer choices.

    `key` selects the relation; `memory` are the forms of each device that can matter, `time` the forms of which the
    largest is the step time.
    """

    values: Mapping[str, Value]
    key: tuple[Value, ...]
    rank: int
    memory: Mapping[str, tuple[Form, ...]]
    time: tuple[Form, ...]


@dataclass(frozen=True)
class Points:
    """All points of a specification, with what the inner choices can be at each."""

    space: Space
    inner: tuple[Choice, ...]
    inner_weights: tuple[int, ...]
    measures: tuple[str, ...]
    points: tuple[Point, ...]
    relations: Mapping[tuple[Value, ...], Relation]


def inner_choices(specification: Specification) -> tuple[Choice, ...]:
    """Choices with whole-number values that no term and no rule beyond the measures' own depends on directly."""
    space = specification.space
    read = {name for measure in space.measures for name in measure.scope}
    terms: tuple[Term, ...] = (*specification.memory, *specification.time)
    direct = {name for term in terms for name in term.scope}
    direct |= {name for rule in specification.rules if not set(rule.scope) <= read for name in rule.scope}
    return tuple(choice for choice in space.choices if choice.name in read - direct)


def enumerate_points(specification: Specification, active: Active = None) -> Points:
    """Every point that the active constraints allow: all of them by default, else those that are named."""
    legal, keys, relations = _legal_points(specification, active)
    return _gathered(specification, _points(specification, legal, keys, relations, active), relations)


def _gathered(
    specification: Specification, points: Sequence[Point], relations: Mapping[tuple[Value, ...], Relation]
) -> Points:
    """The points with what they share."""
    space, inner = specification.space, inner_choices(specification)
    weights = _weights(space)
    inner_weights = tuple(weights[choice.name] for choice in inner)
    return Points(space, inner, inner_weights, tuple(m.name for m in space.measures), tuple(points), relations)


def _points(
    specification: Specification,
    legal: Sequence[Mapping[str, Value]],
    keys: Sequence[tuple[Value, ...]],
    relations: Mapping[tuple[Value, ...], Relation],
    active: Active = None,
) -> list[Point]:
    """The legal points that the active limits leave open, with their forms."""
    kept, memory, time = _forms(specification, legal, [relations[key].boxes for key in keys], active)
    weights, names = _weights(specification.space), {choice.name for choice in inner_choices(specification)}
    outer = [choice for choice in specification.space.choices if choice.name not in names]
    ranks = (sum(weights[c.name] * c.values.index(legal[index][c.name]) for c in outer) for index in kept)
    return list(map(Point, (legal[i] for i in kept), (keys[i] for i in kept), ranks, memory, time))


def promising_points(specification: Specification, wanted: Wanted = lambda _: True) -> Points:
    """The points that the fastest plan can be at: all whose least time is at most that of some plan that holds.

    Points that cannot hold even without what grows with the micro-batch are left out first. The others are taken up in
    order of their least compute time, the rest of their terms being read only until a plan that holds is faster than
    all that are left. `wanted` restricts the points that count.
    """
    legal, keys, relations = _legal_points(specification, None)
    candidates = _candidates(specification)
    some = [index for index, values in enumerate(legal) if wanted(values)]
    legal, keys = candidates.holding([legal[index] for index in some], [keys[index] for index in some])
    return _gathered(specification, candidates.nearest(legal, keys) if legal else [], relations)


class _Candidates:
    """Reads terms of legal points only as far as they can still matter, each once."""

    def __init__(self, specification: Specification) -> None:
        self.specification = specification
        _, _, self.relations = _legal_points(specification, None)
        self.capacities = _capacities(specification, None)
        measures = [measure.name for measure in specification.space.measures]
        standing = [term for term in specification.memory if "micro_batch" not in term.scope]
        self.standing = Reader(standing, measures)
        self.compute = Reader([term for term in specification.time if term.name == "compute"], measures)

    def _boxes(self, keys: Sequence[tuple[Value, ...]]) -> tuple[Any, Any]:
        """Arrays (points, measures) of the bounds of the measures."""
        bounds = numpy.array([self.relations[key].boxes for key in keys], dtype=numpy.int64).reshape(len(keys), -1, 2)
        return bounds[:, :, 0], bounds[:, :, 1]

    def holding(self, legal: Sequence[Mapping[str, Value]], keys: Sequence[tuple[Value, ...]]) -> tuple[Any, Any]:
        """The points whose memory can hold without most of what grows with the micro-batch, and their keys."""
        job, most = self.specification.job, self.capacities.get("gpu", LARGEST)
        some = [index for index, values in enumerate(legal) if least_activations(job, values) <= most]
        legal, keys = [legal[index] for index in some], [keys[index] for index in some]
        if not legal or not self.standing.places:
            return legal, keys
        first, alike = self._distinct(self.standing, legal, keys)
        sums = self.standing.sums([legal[index] for index in first])
        holds = may_hold(self.standing, sums, *self._boxes([keys[index] for index in first]), self.capacities)
        kept = numpy.flatnonzero(holds[alike]).tolist()
        return [legal[index] for index in kept], [keys[index] for index in kept]

    def _distinct(
        self, reader: Reader, legal: Sequence[Mapping[str, Value]], keys: Sequence[tuple[Value, ...]]
    ) -> tuple[list[int], NDArray[Any]]:
        """One point of each kind that the reader can tell apart, and for each point the position of its kind."""
        names = sorted({name for scope in reader.groups for name in scope})
        kinds: dict[tuple[Hashable, ...], int] = {}
        first: list[int] = []
        alike = []
        for index, (values, key) in enumerate(zip(legal, keys, strict=True)):
            kind = (key, *(values[name] for name in names))
            if kind not in kinds:
                kinds[kind] = len(first)
                first.append(index)
            alike.append(kinds[kind])
        return first, numpy.array(alike, dtype=numpy.int64)

    def nearest(self, legal: Sequence[Mapping[str, Value]], keys: Sequence[tuple[Value, ...]]) -> list[Point]:
        """Points in order of their least compute time, until one that holds is faster than all that are left."""
        first, alike = self._distinct(self.compute, legal, keys)
        sums = self.compute.sums([legal[index] for index in first])
        least = least_time(self.compute, sums, *self._boxes([keys[index] for index in first]))[alike]
        order = self._order(legal, least)
        found: list[Point] = []
        ceiling, start, size = LARGEST, 0, FIRST_CHUNK
        while start < len(order) and (start == 0 or least[order[start]] <= ceiling):
            chunk = [index for index in order[start : start + size].tolist() if least[index] <= ceiling]
            part = self._part([legal[index] for index in chunk], [keys[index] for index in chunk], ceiling)
            ceiling = min([ceiling, *(self._fast_row(point) for point in part)])
            found += part
            start, size = start + size, 2 * size
        return found

    def _order(self, legal: Sequence[Mapping[str, Value]], least: NDArray[Any]) -> NDArray[Any]:
        """The points by their least time, after a first chunk of the fastest ones with the smallest micro-batch.

        Those mostly hold, and a plan that holds keeps much else from being read.
        """
        order = numpy.argsort(least, kind="stable")
        sizes = numpy.array([values.get("micro_batch", 0) for values in legal])
        first = order[sizes[order] == sizes.min()][:FIRST_CHUNK]
        rest = order[~numpy.isin(order, first)]
        return numpy.concatenate([first, rest])

    def _part(
        self, legal: Sequence[Mapping[str, Value]], keys: Sequence[tuple[Value, ...]], ceiling: int
    ) -> list[Point]:
        """The points of a chunk that can be as fast as the ceiling and can hold."""
        _, time = _readers(self.specification)
        fast = numpy.flatnonzero(least_time(time, time.sums(legal), *self._boxes(keys)) <= ceiling).tolist()
        if not fast:
            return []
        return _points(self.specification, [legal[i] for i in fast], [keys[i] for i in fast], self.relations)

    def _fast_row(self, point: Point) -> int:
        """The least time of a few rows of the point, ends included, at which every device holds; else LARGEST."""
        rows, inner = self.relations[point.key].rows, len(inner_choices(self.specification))
        bounded = [
            (form, self.capacities[d]) for d, forms in point.memory.items() if d in self.capacities for form in forms
        ]
        fastest = LARGEST
        for row in {*rows[:: max(1, len(rows) // ROWS_TRIED)], rows[-1]}:
            box = tuple((value, value) for value in row[inner:])
            if all(form.least(box) <= bound for form, bound in bounded):
                fastest = min(fastest, max((form.least(box) for form in point.time), default=0))
        return fastest


@lru_cache(maxsize=4)
def _candidates(specification: Specification) -> _Candidates:
    """The reader of a specification's candidates, kept between questions."""
    return _Candidates(specification)


def some_row_holds(specification: Specification, active: Active) -> bool:
    """Whether the first or the last row of some legal point is within every active limit: proof that a plan exists."""
    legal, keys, relations = _legal_points(specification, active)
    if not legal:
        return False
    reader, _ = _readers(specification)
    sums, inner = reader.sums(legal), len(inner_choices(specification))
    capacities = _capacities(specification, active)
    for end in (-1, 0):
        rows = numpy.array([relations[key].rows[end][inner:] for key in keys], dtype=numpy.int64)
        if may_hold(reader, sums, rows, rows, capacities).any():
            return True
    return False


@lru_cache(maxsize=8)
def _legal_points(
    specification: Specification, active: Active
) -> tuple[list[dict[str, Value]], list[tuple[Value, ...]], dict[tuple[Value, ...], Relation]]:
    """Combinations of outer values that the active rules allow, the key of each one's relation, and the relations."""
    space, inner = specification.space, inner_choices(specification)
    names = {choice.name for choice in inner}
    outer = [choice for choice in space.choices if choice.name not in names]
    rules = [rule for rule in specification.rules if active is None or rule.constraint in active]
    read = {name for measure in space.measures for name in measure.scope}
    reading = tuple(choice.name for choice in outer if choice.name in read)
    relations = _relations(space, inner, reading, [rule for rule in rules if names & set(rule.scope)])
    free = [rule for rule in rules if not names & set(rule.scope)]
    legal = [values for values in _legal(outer, free) if tuple(values[name] for name in reading) in relations]
    return legal, [tuple(values[name] for name in reading) for values in legal], relations


def _capacities(specification: Specification, active: Active) -> dict[str, int]:
    """The capacities of the active limits, by device."""
    limits = specification.limits.values()
    return {limit.device: limit.capacity for limit in limits if active is None or limit.constraint in active}


def _forms(
    specification: Specification, legal: Sequence[Mapping[str, Value]], boxes: Sequence[Boxes], active: Active
) -> tuple[Sequence[int], Sequence[Mapping[str, tuple[Form, ...]]], Sequence[tuple[Form, ...]]]:
    """Which points the active limits leave open, with the memory and the time forms of each of those."""
    if not legal:
        return (), (), ()
    memory, time = _readers(specification)
    bounds = numpy.array(boxes, dtype=numpy.int64).reshape(len(legal), -1, 2)
    low, high = bounds[:, :, 0], bounds[:, :, 1]
    sums = memory.sums(legal)
    kept = numpy.flatnonzero(may_hold(memory, sums, low, high, _capacities(specification, active)))
    if not len(kept):
        return (), (), ()
    sums, low, high = sums[kept], low[kept], high[kept]
    timed = time_forms(time, time.sums([legal[index] for index in kept.tolist()]), low, high)
    return kept.tolist(), memory_forms(memory, sums, low, high), timed


def _weights(space: Space) -> dict[str, int]:
    """Weight of each choice's position, so that the weighted sum orders plans as their ranks do."""
    weights, weight = {}, 1
    for choice in reversed(space.choices):
        weights[choice.name] = weight
        weight *= len(choice.values)
    return weights


def _legal(outer: Sequence[Choice], rules: Sequence[Rule]) -> Iterator[dict[str, Value]]:
    """Combinations of outer values that satisfy the rules, each rule asked as soon as its scope is known."""
    due: list[list[Rule]] = [[] for _ in range(len(outer) + 1)]
    position = {choice.name: index + 1 for index, choice in enumerate(outer)}
    for rule in rules:
        due[max((position[name] for name in rule.scope), default=0)].append(rule)

    def extend(values: dict[str, Value], depth: int) -> Iterator[dict[str, Value]]:
        if not all(rule.satisfied(values) for rule in due[depth]):
            return
        if depth == len(outer):
            yield dict(values)
            return
        for value in outer[depth].values:
            values[outer[depth].name] = value
            yield from extend(values, depth + 1)
        values.pop(outer[depth].name, None)

    return extend({}, 0)


def _relations(
    space: Space, inner: Sequence[Choice], reading: tuple[str, ...], rules: Sequence[Rule]
) -> dict[tuple[Value, ...], Relation]:
    """The rows of inner values and measures, by the values of the outer choices that measures read.

    Layouts with the same pipeline have the same stages, and so the same rows.
    """
    found: dict[tuple[Value, ...], Relation] = {}
    alike: dict[tuple[Hashable, ...], Relation | None] = {}
    by_name = space.by_name
    for key in product(*(by_name[name].values for name in reading)):
        kind = tuple((value.pipeline, value.virtual_stages) if isinstance(value, Layout) else value for value in key)
        if kind not in alike:
            alike[kind] = _relation(space, inner, dict(zip(reading, key, strict=True)), rules)
        relation = alike[kind]
        if relation is not None:
            found[key] = relation
    return found


def _relation(
    space: Space, inner: Sequence[Choice], outer: Mapping[str, Value], rules: Sequence[Rule]
) -> Relation | None:
    """The rows at one combination of the outer choices that measures read; None where the rules leave none."""
    rows: list[tuple[int, ...]] = []
    for positions in product(*(range(len(choice.values)) for choice in inner)):
        values = {**outer, **{choice.name: choice.values[i] for choice, i in zip(inner, positions, strict=True)}}
        if all(rule.satisfied(values) for rule in rules):
            measured = (measure.body({name: values[name] for name in measure.scope}) for measure in space.measures)
            rows.append((*positions, *measured))
    if not rows:
        return None
    columns = list(zip(*rows, strict=True))[len(inner) :]
    return Relation(tuple(rows), tuple((min(column), max(column)) for column in columns))


@lru_cache(maxsize=4)
def _readers(specification: Specification) -> tuple[Reader, Reader]:
    """Readers of the memory and of the time terms; rules play no part in them, so that they serve any set of rules."""
    measures = [measure.name for measure in specification.space.measures]
    return Reader(specification.memory, measures), Reader(specification.time, measures)
