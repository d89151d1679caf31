"""Layouts with micro-batches by their floors: what the fastest plan can be made of, worked out as far as it can matter.

A layout is gone through only where its own floor, that of the smallest micro-batches there are, is below what some plan
reaches; of its micro-batches only those with rough floors below it are looked at more closely.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import count, islice
from math import inf
from operator import itemgetter

from planner.floors import Floors
from planner.forced_recompute import ForcedRecompute
from planner.forms import LARGEST
from planner.memory import least_activations
from planner.plan import Layout, Value
from planner.points import OuterSpace, legal_values, standing_floors
from planner.specification import Specification

BATCH = ("layout", "micro_batch")
OPENED = 128  # layouts that are opened at once
LOOKED_AT = 4  # layouts that are looked at for each of the first batches


@dataclass(eq=False)
class Batch:
    """A layout with a micro-batch.

    `floor` in microseconds is worked out when it is first asked for; `rough` is below it, 0 as long as none is known.
    """

    values: Mapping[str, Value]
    floors: Floors = field(repr=False)
    forced: ForcedRecompute = field(repr=False)
    rough: int = 0

    @cached_property
    def floor(self) -> int:
        """No plan with this layout and micro-batch takes less; LARGEST where none can hold."""
        again = self.forced.seconds(self.values)
        return LARGEST if again == inf else self.floors.microseconds(self.values, again)


class Batches:
    """The legal layouts with micro-batches of a specification."""

    def __init__(self, specification: Specification, outer: OuterSpace) -> None:
        self.job, self.sizes = specification.job, [specification.space.by_name["micro_batch"]]
        self.rules = [rule for rule in outer.rules if set(rule.scope) <= set(BATCH)]
        self.most = specification.capacities.get("gpu", LARGEST)
        self.floors, self.standing = Floors(self.job), standing_floors(specification, None)
        self.forced = ForcedRecompute(self.job, self.standing)
        floors = self.floors.of_layouts(outer.layouts).tolist()
        self.order = sorted(zip(floors, outer.layouts, strict=True), key=itemgetter(0))
        self.found: dict[Layout, list[Batch]] = {}

    def of(self, layout: Layout) -> list[Batch]:
        """The micro-batches that are legal under a layout, and whose activations can hold."""
        if layout not in self.found:
            legal = legal_values(self.sizes, self.rules, {"layout": layout})
            some = (values for values in legal if least_activations(self.job, values) <= self.most)
            self.found[layout] = [Batch(values, self.floors, self.forced) for values in some]
        return self.found[layout]

    def _opened(self, layouts: Iterable[Layout]) -> list[Batch]:
        """The micro-batches under those of the layouts that leave room for the states, with their rough floors."""
        found = [batch for layout in layouts if self.standing.holds(layout) for batch in self.of(layout)]
        unknown = [batch for batch in found if not batch.rough]
        for batch, rough in zip(unknown, self.floors.rough([batch.values for batch in unknown]).tolist(), strict=True):
            batch.rough = rough
        return found

    def first(self, some: int) -> Iterator[list[Batch]]:
        """Fast ones of the smallest micro-batches, some at a time: those mostly hold, and spare reading much else."""
        roomy = (layout for _, layout in self.order if self.standing.holds(layout))
        smallest = (self.of(layout)[0] for layout in roomy if self.of(layout))
        while found := sorted(islice(smallest, LOOKED_AT * some), key=lambda batch: batch.floor):
            yield [batch for batch in found[:some] if batch.floor < LARGEST]

    def below(self, ceiling: int) -> Iterator[Batch]:
        """All that leave room for the model's states and whose floor is at most `ceiling`, by rising floors.

        Layouts are opened and floors worked out when no bound left is below theirs: who stops early spares the others.
        """
        number, near = count(), (item for item in self.order if item[0] <= ceiling)
        waiting: list[tuple[int, int, Batch | list[Layout]]] = []
        while group := list(islice(near, OPENED)):
            waiting.append((group[0][0], next(number), [layout for _, layout in group]))
        while waiting:
            bound, _, found = heappop(waiting)
            if isinstance(found, list):
                for batch in self._opened(found):
                    heappush(waiting, (batch.rough, next(number), batch))
            elif found.floor <= bound:
                yield found
            elif found.floor <= ceiling:
                heappush(waiting, (found.floor, next(number), found))
