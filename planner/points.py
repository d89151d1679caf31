"""The candidate space seen from its outer choices: for each legal combination, affine forms in the measures.

Choices that terms depend on only through measures (the checkpoint count) are *inner*: they stay integer variables. All
others are *outer*: every combination that the rules allow is one point, and at a point each moment's memory and each
way the lanes of a step can line up is one affine form with integer coefficients. No solver in sight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy

from planner.choices import Choice, Space
from planner.forms import Form, Reader, least_time, may_hold, memory_forms, time_forms
from planner.memory import least_activations
from planner.plan import Layout, Value
from planner.relations import Relation, Relations
from planner.specification import Specification
from planner.standing import StandingFloors
from planner.terms import BATCH, TIME, Rule, Term

if TYPE_CHECKING:
    from numpy.typing import NDArray

Active = frozenset[str] | None
IN_THE_RUNTIME = "techniques_exist_in_the_runtime"
PART = 4096  # points whose sums are in memory at once


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
    """All points of a specification, with what the inner choices can be at each.

    `unread`: microseconds that no plan at a point left out is below, where time ran out before all were read.
    """

    space: Space
    inner: tuple[Choice, ...]
    inner_weights: tuple[int, ...]
    measures: tuple[str, ...]
    points: tuple[Point, ...]
    relations: Mapping[tuple[Value, ...], Relation]
    unread: int | None = None


def inner_choices(specification: Specification) -> tuple[Choice, ...]:
    """Choices with whole-number values that no term and no rule beyond the measures' own depends on directly."""
    space = specification.space
    read = {name for measure in space.measures for name in measure.scope}
    terms: tuple[Term, ...] = (*specification.memory, *specification.time)
    direct = {name for term in terms for name in term.scope}
    direct |= {name for rule in specification.rules if not set(rule.scope) <= read for name in rule.scope}
    return tuple(choice for choice in space.choices if choice.name in read - direct)


@dataclass(frozen=True)
class OuterSpace:
    """The outer choices, the rules that hold among them, and the relations by the choices that measures read."""

    choices: tuple[Choice, ...]
    rules: tuple[Rule, ...]
    reading: tuple[str, ...]
    relations: Mapping[tuple[Value, ...], Relation]

    @property
    def layouts(self) -> list[Layout]:
        """The layouts among the choices."""
        known = next(choice.values for choice in self.choices if choice.name == "layout")
        return [value for value in known if isinstance(value, Layout)]

    def under(self, layout: Layout) -> Iterator[dict[str, Value]]:
        """Combinations with a layout that the rules allow."""
        others = [choice for choice in self.choices if choice.name != "layout"]
        return legal_values(others, self.rules, {"layout": layout})

    def with_batch(self, batch: Mapping[str, Value]) -> Iterator[dict[str, Value]]:
        """Combinations that have a relation, with a legal layout and micro-batch, and other values that are given.

        Rules about layout and micro-batch alone are known to hold.
        """
        rest = [choice for choice in self.choices if choice.name not in batch]
        found = legal_values(rest, self._further, batch)
        return (values for values in found if self.key(values) in self.relations)

    @cached_property
    def _further(self) -> tuple[Rule, ...]:
        """The rules that ask more than layout and micro-batch."""
        return tuple(rule for rule in self.rules if not set(rule.scope) <= set(BATCH))

    def boxes(self, legal: Sequence[Mapping[str, Value]]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Arrays (points, measures) of the bounds of the measures."""
        boxes = [self.relations[self.key(values)].boxes for values in legal]
        bounds = numpy.array(boxes, dtype=numpy.int64).reshape(len(legal), -1, 2)
        return bounds[:, :, 0], bounds[:, :, 1]

    def key(self, values: Mapping[str, Value]) -> tuple[Value, ...]:
        """Which relation belongs to a combination of outer values."""
        return tuple(values[name] for name in self.reading)


@lru_cache(maxsize=8)
def outer_space(specification: Specification, active: Active) -> OuterSpace:
    """The outer choices of a specification with the active rules."""
    space, inner = specification.space, inner_choices(specification)
    names = {choice.name for choice in inner}
    outer = tuple(choice for choice in space.choices if choice.name not in names)
    rules = [rule for rule in specification.rules if active is None or rule.constraint in active]
    read = {name for measure in space.measures for name in measure.scope}
    reading = tuple(choice.name for choice in outer if choice.name in read)
    asked = frozenset(rule.constraint for rule in rules if names & set(rule.scope))
    relations = _relations_under(specification, reading, asked)
    return OuterSpace(outer, tuple(rule for rule in rules if not names & set(rule.scope)), reading, relations)


@lru_cache(maxsize=8)
def _relations_under(specification: Specification, reading: tuple[str, ...], asked: frozenset[str]) -> Relations:
    """The relations under the named constraints, the only ones that read inner choices."""
    inner = inner_choices(specification)
    names = {choice.name for choice in inner}
    rules = [rule for rule in specification.rules if rule.constraint in asked and names & set(rule.scope)]
    return Relations(specification.space, inner, reading, rules)


def enumerate_points(specification: Specification, active: Active = None) -> Points:
    """Every point that the active constraints allow: all of them by default, else those that are named."""
    outer = outer_space(specification, active)
    found = (points_of(specification, part, outer, active) for part in roomy_parts(specification, outer, active))
    return gathered(specification, [point for part in found for point in part], outer.relations)


def legal_parts(outer: OuterSpace) -> Iterator[list[dict[str, Value]]]:
    """Combinations of outer values that the rules allow, some thousands at a time: their sums need memory."""
    return parts(outer, legal_values(outer.choices, outer.rules))


def roomy_parts(
    specification: Specification, outer: OuterSpace, active: Active, leanest_first: bool = False
) -> Iterator[list[dict[str, Value]]]:
    """As `legal_parts`, without combinations that must exceed the GPU: layout by layout, as they are or by memory."""
    most = specification.capacities_of(active).get("gpu")
    if most is None:
        yield from legal_parts(outer)
        return
    standing, job = standing_floors(specification, active), specification.job
    some = (layout for layout in outer.layouts if standing.states(layout) <= most)
    roomy = [layout for layout in some if standing.bytes(layout) <= most]
    layouts = sorted(roomy, key=standing.bytes) if leanest_first else roomy
    found = (values for layout in layouts for values in outer.under(layout))
    yield from parts(outer, (values for values in found if least_activations(job, values) <= most))


def standing_floors(specification: Specification, active: Active) -> StandingFloors:
    """What each layout takes at least; without its rule also with values that the runtime has not."""
    return _standing_floors(specification, active is None or IN_THE_RUNTIME in active)


@lru_cache(maxsize=8)
def _standing_floors(specification: Specification, of_the_runtime: bool) -> StandingFloors:
    """As `standing_floors`, made once."""
    return StandingFloors(specification, of_the_runtime)


def parts(outer: OuterSpace, found: Iterable[dict[str, Value]]) -> Iterator[list[dict[str, Value]]]:
    """Those of the combinations that have a relation, some thousands at a time."""
    legal = (values for values in found if outer.key(values) in outer.relations)
    while part := list(islice(legal, PART)):
        yield part


def gathered(
    specification: Specification, points: Sequence[Point], relations: Mapping[tuple[Value, ...], Relation]
) -> Points:
    """The points with what they share."""
    space, inner = specification.space, inner_choices(specification)
    weights = _weights(space)
    inner_weights = tuple(weights[choice.name] for choice in inner)
    return Points(space, inner, inner_weights, tuple(m.name for m in space.measures), tuple(points), relations)


def points_of(
    specification: Specification,
    legal: Sequence[Mapping[str, Value]],
    outer: OuterSpace,
    active: Active,
    sums: NDArray[Any] | None = None,
) -> list[Point]:
    """The legal points that the active limits leave open, with their forms; `sums` of memory where they are known."""
    keys = list(map(outer.key, legal))
    kept, memory, time = _forms(specification, legal, outer, active, sums)
    weights = _weights(specification.space)
    ranks = (sum(weights[c.name] * c.places[legal[index][c.name]] for c in outer.choices) for index in kept)
    return list(map(Point, (legal[i] for i in kept), (keys[i] for i in kept), ranks, memory, time))


def _forms(
    specification: Specification,
    legal: Sequence[Mapping[str, Value]],
    outer: OuterSpace,
    active: Active,
    sums: NDArray[Any] | None,
) -> tuple[Sequence[int], Sequence[Mapping[str, tuple[Form, ...]]], Sequence[tuple[Form, ...]]]:
    """Which points the active limits leave open, with the memory and the time forms of each of those."""
    if not legal:
        return (), (), ()
    memory, time = readers(specification)
    low, high = outer.boxes(legal)
    sums = memory.sums(legal) if sums is None else sums
    capacities = specification.capacities_of(active)
    holds = may_hold(memory, sums, low, high, capacities)
    if TIME in capacities:
        holds &= least_time(time, time.sums(legal), low, high) <= capacities[TIME]
    kept = numpy.flatnonzero(holds)
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


def legal_values(
    choices: Sequence[Choice], rules: Sequence[Rule], given: Mapping[str, Value] | None = None
) -> Iterator[dict[str, Value]]:
    """Combinations of values that satisfy the rules, each rule asked as soon as its scope is known.

    `given` are values that are known beforehand, and part of each combination.
    """
    due: list[list[Rule]] = [[] for _ in range(len(choices) + 1)]
    position = {choice.name: index + 1 for index, choice in enumerate(choices)}
    for rule in rules:
        due[max((position.get(name, 0) for name in rule.scope), default=0)].append(rule)

    def extend(values: dict[str, Value], depth: int) -> Iterator[dict[str, Value]]:
        if not all(rule.satisfied(values) for rule in due[depth]):
            return
        if depth == len(choices):
            yield dict(values)
            return
        for value in choices[depth].values:
            values[choices[depth].name] = value
            yield from extend(values, depth + 1)
        values.pop(choices[depth].name, None)

    return extend(dict(given or {}), 0)


@lru_cache(maxsize=4)
def readers(specification: Specification) -> tuple[Reader, Reader]:
    """Readers of the memory and of the time terms; rules play no part in them, so that they serve any set of rules."""
    measures = [measure.name for measure in specification.space.measures]
    return Reader(specification.memory, measures), Reader(specification.time, measures)
