"""The candidate space: every choice with its values, the measures that follow from them, and derived values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from planner.plan import Plan, Value
from planner.terms import Measure, Values


@dataclass(frozen=True)
class Choice:
    """A decision with a finite, ordered set of values; earlier values win when nothing else tells plans apart."""

    name: str
    values: tuple[Value, ...]

    @cached_property
    def places(self) -> Mapping[Value, int]:
        """Where each value stands first in the order."""
        return {value: place for place, value in reversed(tuple(enumerate(self.values)))}


@dataclass(frozen=True)
class Derived:
    """A value that follows from choices and is shown beside them (`gradient_accumulation`, for example)."""

    name: str
    scope: tuple[str, ...]
    body: Callable[[Values], Value]


@dataclass(frozen=True)
class Space:
    """All candidate plans: the product of the choices' values, before any rule."""

    choices: tuple[Choice, ...]
    measures: tuple[Measure, ...]
    derived: tuple[Derived, ...]

    @cached_property
    def by_name(self) -> Mapping[str, Choice]:
        """Choices by name."""
        return {choice.name: choice for choice in self.choices}

    @property
    def size(self) -> int:
        """Number of candidate plans, rules left aside."""
        return prod(len(choice.values) for choice in self.choices)

    def plans(self) -> Iterator[Plan]:
        """Every candidate plan; exhaustive, for oracles and small spaces only."""
        names = [choice.name for choice in self.choices]
        for values in product(*(choice.values for choice in self.choices)):
            yield Plan(dict(zip(names, values, strict=True)))

    def rank(self, plan: Mapping[str, Value]) -> tuple[int, ...]:
        """Position of each of the plan's values in its choice's order; compares plans when all else is equal."""
        return tuple(choice.values.index(plan[choice.name]) for choice in self.choices)

    def complete(self, plan: Mapping[str, Value]) -> dict[str, Value]:
        """The plan's values with measures added, ready for terms."""
        values = dict(plan)
        for measure in self.measures:
            values[measure.name] = measure.body({name: plan[name] for name in measure.scope})
        return values

    def described(self, plan: Mapping[str, Value]) -> dict[str, Value]:
        """The plan's values with derived values added, ready for people."""
        values = dict(plan)
        for derived in self.derived:
            values[derived.name] = derived.body({name: plan[name] for name in derived.scope})
        return values
