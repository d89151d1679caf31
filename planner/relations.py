"""Which values of the inner choices, and of the measures, go together at a combination of outer choices."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from planner.choices import Choice, Space
from planner.plan import Layout, Value
from planner.terms import Rule

Lines = tuple[tuple[int, int], list[tuple[int, int]]]


@dataclass(frozen=True)
class Relation:
    """The inner choices and measures that go together at one combination of the outer choices that measures read.

    Each row holds the positions of the inner choices' values, then the measures' values; `boxes` bound the measures.
    """

    rows: tuple[tuple[int, ...], ...]
    boxes: tuple[tuple[int, int], ...]


class Relations(Mapping[tuple[Value, ...], Relation]):
    """The relations by the values of the outer choices that measures read, each worked out when it is asked for.

    There is none where the rules leave no row. Layouts with the same pipeline have the same stages, so the same rows.
    """

    def __init__(self, space: Space, inner: Sequence[Choice], reading: tuple[str, ...], rules: Sequence[Rule]) -> None:
        self.space, self.inner, self.reading, self.rules = space, inner, reading, rules
        self.known: dict[tuple[Value, ...], Relation | None] = {}
        self.alike: dict[tuple[Hashable, ...], Relation | None] = {}

    def __getitem__(self, key: tuple[Value, ...]) -> Relation:
        found = self._found(key)
        if found is None:
            raise KeyError(key)
        return found

    def __contains__(self, key: object) -> bool:
        return isinstance(key, tuple) and self._found(key) is not None

    def __iter__(self) -> Iterator[tuple[Value, ...]]:
        keys = product(*(self.space.by_name[name].values for name in self.reading))
        return (key for key in keys if key in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _found(self, key: tuple[Value, ...]) -> Relation | None:
        """The relation of a key, None where there is none."""
        if key not in self.known:
            kind = tuple(_stages(value) if isinstance(value, Layout) else value for value in key)
            if kind not in self.alike:
                self.alike[kind] = self._made(dict(zip(self.reading, key, strict=True)))
            self.known[key] = self.alike[kind]
        return self.known[key]

    def _made(self, outer: Mapping[str, Value]) -> Relation | None:
        """The rows at one combination of the outer choices that measures read; None where the rules leave none."""
        rows: list[tuple[int, ...]] = []
        for positions in product(*(range(len(choice.values)) for choice in self.inner)):
            values = {**outer, **{c.name: c.values[i] for c, i in zip(self.inner, positions, strict=True)}}
            if all(rule.satisfied(values) for rule in self.rules):
                measures = self.space.measures
                measured = (measure.body({name: values[name] for name in measure.scope}) for measure in measures)
                rows.append((*positions, *measured))
        if not rows:
            return None
        columns = list(zip(*rows, strict=True))[len(self.inner) :]
        return Relation(tuple(rows), tuple((min(column), max(column)) for column in columns))


def _stages(layout: Layout) -> tuple[Hashable, ...]:
    """What of a layout decides which layers each stage has."""
    return layout.pipeline, layout.virtual_stages, layout.spared


def affine_rows(relation: Relation) -> Lines | None:
    """((low, high), [(constant, slope) of each measure]) where rows are affine in their first column, else None."""
    rows = sorted(relation.rows)
    first = [row[0] for row in rows]
    if first != list(range(first[0], first[-1] + 1)):
        return None
    if len(rows) == 1:
        return (first[0], first[0]), [(value, 0) for value in rows[0][1:]]
    pairs = []
    for column in range(1, len(rows[0])):
        slope = rows[1][column] - rows[0][column]
        constant = rows[0][column] - slope * first[0]
        if any(row[column] != constant + slope * row[0] for row in rows):
            return None
        pairs.append((constant, slope))
    return (first[0], first[-1]), pairs
