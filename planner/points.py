"""The candidate space seen from its outer choices: for each legal combination, affine forms in the measures.

Choices that terms depend on only through measures (the checkpoint count) are *inner*: they stay integer variables. All
others are *outer*: every combination that the rules allow is one point, and at a point each moment's memory and each
way the lanes of a step can line up is one affine form with integer coefficients. No solver in sight.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy

from planner.choices import Choice, Space
from planner.forms import Boxes, Form, Reader, memory_forms, time_forms
from planner.plan import Value
from planner.specification import Specification
from planner.terms import Rule, Term


@dataclass(frozen=True)
class Relation:
    """The inner choices and measures that go together at one combination of the outer choices that measures read.

    Each row holds the values of the inner choices, then those of the measures; `boxes` bound the measures.
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


def enumerate_points(specification: Specification, active: frozenset[str] | None = None) -> Points:
    """Every point that the active rules (all of them by default) allow and that the limits do not exclude outright."""
    space, inner = specification.space, inner_choices(specification)
    names = {choice.name for choice in inner}
    outer = [choice for choice in space.choices if choice.name not in names]
    rules = [rule for rule in specification.rules if active is None or rule.constraint in active]
    reading = tuple(choice.name for choice in outer if any(choice.name in measure.scope for measure in space.measures))
    relations = _relations(space, inner, reading, [rule for rule in rules if names & set(rule.scope)])
    weights = _weights(space)
    free = [rule for rule in rules if not names & set(rule.scope)]
    legal = [values for values in _legal(outer, free) if tuple(values[name] for name in reading) in relations]
    keys = [tuple(values[name] for name in reading) for values in legal]
    ranks = [sum(weights[c.name] * c.values.index(values[c.name]) for c in outer) for values in legal]
    memory, time = _forms(specification, legal, [relations[key].boxes for key in keys])
    points = tuple(map(Point, legal, keys, ranks, memory, time))
    inner_weights = tuple(weights[choice.name] for choice in inner)
    return Points(space, inner, inner_weights, tuple(m.name for m in space.measures), points, relations)


def _forms(
    specification: Specification, legal: Sequence[Mapping[str, Value]], boxes: Sequence[Boxes]
) -> tuple[Sequence[Mapping[str, tuple[Form, ...]]], Sequence[tuple[Form, ...]]]:
    """The memory and the time forms of every point."""
    if not legal:
        return (), ()
    memory, time = _readers(specification)
    bounds = numpy.array(boxes, dtype=numpy.int64).reshape(len(legal), -1, 2)
    low, high = bounds[:, :, 0], bounds[:, :, 1]
    return memory_forms(memory, memory.sums(legal), low, high), time_forms(time, time.sums(legal), low, high)


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
    """The rows of inner values and measures, by the values of the outer choices that measures read."""
    rows: dict[tuple[Value, ...], list[tuple[int, ...]]] = {}
    by_name = space.by_name
    for key in product(*(by_name[name].values for name in reading)):
        for combination in product(*(choice.values for choice in inner)):
            values = dict(zip(reading, key, strict=True))
            values |= {choice.name: value for choice, value in zip(inner, combination, strict=True)}
            if all(rule.satisfied(values) for rule in rules):
                measured = (measure.body({n: values[n] for n in measure.scope}) for measure in space.measures)
                rows.setdefault(key, []).append((*(int(value) for value in combination), *measured))  # type: ignore[arg-type]
    return {
        key: Relation(
            tuple(found), tuple((min(column), max(column)) for column in list(zip(*found, strict=True))[len(inner) :])
        )
        for key, found in rows.items()
    }


@lru_cache(maxsize=4)
def _readers(specification: Specification) -> tuple[Reader, Reader]:
    """Readers of the memory and of the time terms; rules play no part in them, so that they serve any set of rules."""
    measures = [measure.name for measure in specification.space.measures]
    return Reader(specification.memory, measures), Reader(specification.time, measures)
