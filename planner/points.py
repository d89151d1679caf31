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

from planner.choices import Choice, Space
from planner.evaluate import cached_time_terms
from planner.memory import memory_terms
from planner.plan import Value
from planner.specification import Specification
from planner.terms import LANES, WINDOWS, Rule, Term


@dataclass(frozen=True)
class Form:
    """`constant` plus the sum of `slopes` times the measures, in the order of the space's measures."""

    constant: int
    slopes: tuple[int, ...]

    def least(self, boxes: Sequence[tuple[int, int]]) -> int:
        """The smallest value over boxes of the measures."""
        pairs = zip(self.slopes, boxes, strict=True)
        return self.constant + sum(slope * (low if slope > 0 else high) for slope, (low, high) in pairs)

    def most(self, boxes: Sequence[tuple[int, int]]) -> int:
        """The largest value over boxes of the measures."""
        pairs = zip(self.slopes, boxes, strict=True)
        return self.constant + sum(slope * (high if slope > 0 else low) for slope, (low, high) in pairs)

    def plus(self, other: Form) -> Form:
        """The sum of two forms."""
        return Form(self.constant + other.constant, tuple(map(int.__add__, self.slopes, other.slopes)))


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
    forms = _forms(specification)
    points = tuple(
        Point(
            values,
            key := tuple(values[name] for name in reading),
            sum(weights[choice.name] * choice.values.index(values[choice.name]) for choice in outer),
            *forms.at(tuple(values.values()), values, relations[key].boxes),
        )
        for values in _legal(outer, [rule for rule in rules if not names & set(rule.scope)])
        if tuple(values[name] for name in reading) in relations
    )
    inner_weights = tuple(weights[choice.name] for choice in inner)
    return Points(space, inner, inner_weights, tuple(m.name for m in space.measures), points, relations)


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
def _forms(specification: Specification) -> _Forms:
    """The forms of a specification; rules play no part in them."""
    return _Forms(specification)


class _Forms:
    """Adds the terms up at a point; terms of one scope are read once for each combination of its values."""

    def __init__(self, specification: Specification) -> None:
        self.measures = tuple(measure.name for measure in specification.space.measures)
        self.memory_groups = _groups(memory_terms(specification.job))
        self.time_groups = _groups(cached_time_terms(specification.job, "typical"))
        self.cache: dict[tuple[object, ...], dict[tuple[str, str], Form]] = {}
        self.points: dict[object, tuple[Mapping[str, tuple[Form, ...]], tuple[Form, ...]]] = {}

    def at(
        self, key: tuple[Value, ...], values: Mapping[str, Value], boxes: tuple[tuple[int, int], ...]
    ) -> tuple[Mapping[str, tuple[Form, ...]], tuple[Form, ...]]:
        """(memory forms by device, time forms) at a point, read once for its values and boxes."""
        found = self.points.get((key, boxes))
        if found is None:
            found = self.points[key, boxes] = (self.memory(values, boxes), self.time(values, boxes))
        return found

    def memory(self, values: Mapping[str, Value], boxes: Sequence[tuple[int, int]]) -> dict[str, tuple[Form, ...]]:
        """The forms of each device's moments, without those that another moment always exceeds."""
        sums = self._sums(self.memory_groups, "memory", values)
        devices: dict[str, list[Form]] = {}
        for (device, _), form in sums.items():
            devices.setdefault(device, []).append(form)
        return {device: _undominated(forms, boxes) for device, forms in devices.items()}

    def time(self, values: Mapping[str, Value], boxes: Sequence[tuple[int, int]]) -> tuple[Form, ...]:
        """The forms of which the largest is the step time: one for each way to pick a lane in every window."""
        sums = self._sums(self.time_groups, "time", values)
        zero = Form(0, (0,) * len(self.measures))
        options = [zero]
        for window in WINDOWS:
            serial = sums.get((window, "serial"))
            lanes = _undominated([sums[window, lane] for lane in LANES[1:] if (window, lane) in sums], boxes)
            options = [total.plus(serial) for total in options] if serial else options
            options = [total.plus(lane) for total in options for lane in lanes] if lanes else options
        return _undominated(options, boxes)

    def _sums(
        self, groups: Sequence[tuple[tuple[str, ...], Sequence[Term]]], kind: str, values: Mapping[str, Value]
    ) -> dict[tuple[str, str], Form]:
        """The sum of all groups' forms by place."""
        sums: dict[tuple[str, str], Form] = {}
        for index, (scope, terms) in enumerate(groups):
            key = (kind, index, *(values[name] for name in scope))
            found = self.cache.get(key)
            if found is None:
                found = self.cache[key] = _read(terms, {name: values[name] for name in scope}, self.measures)
            for place, form in found.items():
                sums[place] = sums[place].plus(form) if place in sums else form
        return sums


def _groups(terms: Sequence[Term]) -> list[tuple[tuple[str, ...], list[Term]]]:
    """Terms by scope."""
    groups: dict[tuple[str, ...], list[Term]] = {}
    for term in terms:
        groups.setdefault(tuple(sorted(term.scope)), []).append(term)
    return list(groups.items())


def _read(terms: Sequence[Term], values: Mapping[str, Value], measures: Sequence[str]) -> dict[tuple[str, str], Form]:
    """Calls each term's body over its measures to read its affine form, and adds the forms of each place."""
    from planner.terms import MemoryTerm, TimeTerm

    sums: dict[tuple[str, str], Form] = {}
    for term in terms:
        form = affine(term, values, measures)
        if isinstance(term, MemoryTerm):
            places = [(term.device, moment) for moment in term.moments]
        else:
            assert isinstance(term, TimeTerm)  # there are two kinds of terms
            places = [(term.window, term.lane)]
        if form.constant or any(form.slopes):
            for place in places:
                sums[place] = sums[place].plus(form) if place in sums else form
    return sums


def affine(term: Term, values: Mapping[str, Value], measures: Sequence[str]) -> Form:
    """The term's affine form in the measures at one combination of its scope, read from its own body."""
    base = {**values, **dict.fromkeys(term.measures, 0)}
    constant = term.value(base)
    slopes = {name: term.value({**base, name: 1}) - constant for name in term.measures}
    return Form(constant, tuple(slopes.get(name, 0) for name in measures))


def _undominated(forms: Sequence[Form], boxes: Sequence[tuple[int, int]]) -> tuple[Form, ...]:
    """The forms that can be the largest somewhere in the boxes."""
    if len(forms) == 1:
        return tuple(forms)
    kept: list[Form] = []
    for form in sorted(set(forms), key=lambda item: (-item.most(boxes), -item.constant, item.slopes)):
        if not any(_difference(other, form).least(boxes) >= 0 for other in kept):
            kept.append(form)
    return tuple(kept)


def _difference(one: Form, other: Form) -> Form:
    """`one` minus `other`."""
    return Form(one.constant - other.constant, tuple(map(int.__sub__, one.slopes, other.slopes)))
