"""Layouts with micro-batches by their floors: what the fastest plan can be made of, worked out as far as it can matter.

A layout is gone through only where its own floor, that of the smallest micro-batches there are, is below what some plan
reaches; of its micro-batches only those with rough floors below it are looked at more closely.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

import numpy

from planner.floors import Floors
from planner.forms import LARGEST
from planner.memory import least_activations
from planner.plan import Layout, Value, layout_of
from planner.points import OuterSpace, legal_values, standing_floors
from planner.specification import Specification

BATCH = ("layout", "micro_batch")
LOOKED_AT = 4  # layouts that are looked at for each of the first batches


@dataclass(eq=False)
class Batch:
    """A layout with a micro-batch; `floor` in microseconds is worked out when it is first asked for."""

    values: Mapping[str, Value]
    floors: Floors = field(repr=False)
    worked_out: int | None = None

    @property
    def floor(self) -> int:
        """No plan with this layout and micro-batch takes less."""
        if self.worked_out is None:
            self.worked_out = self.floors.microseconds(self.values)
        return self.worked_out


class Batches:
    """The legal layouts with micro-batches of a specification."""

    def __init__(self, specification: Specification, outer: OuterSpace) -> None:
        self.job, self.sizes = specification.job, [specification.space.by_name["micro_batch"]]
        self.rules = [rule for rule in outer.rules if set(rule.scope) <= set(BATCH)]
        self.most = specification.capacities.get("gpu", LARGEST)
        self.floors, self.standing = Floors(self.job), standing_floors(specification, None)
        self.layouts = outer.layouts
        self.layout_floors = self.floors.of_layouts(self.layouts)
        self.found: dict[Layout, list[Batch]] = {}

    def of(self, layout: Layout) -> list[Batch]:
        """The micro-batches that are legal under a layout, and whose activations can hold."""
        if layout not in self.found:
            legal = legal_values(self.sizes, self.rules, {"layout": layout})
            some = (values for values in legal if least_activations(self.job, values) <= self.most)
            self.found[layout] = [Batch(values, self.floors) for values in some]
        return self.found[layout]

    def first(self, count: int) -> Iterator[list[Batch]]:
        """Fast ones of the smallest micro-batches, some at a time: those mostly hold, and spare reading much else."""
        order = numpy.argsort(self.layout_floors, kind="stable").tolist()
        roomy = (layout for layout in map(self.layouts.__getitem__, order) if self.standing.holds(layout))
        smallest = (self.of(layout)[0] for layout in roomy if self.of(layout))
        while some := sorted(islice(smallest, LOOKED_AT * count), key=lambda batch: batch.floor):
            yield some[:count]

    def below(self, ceiling: int) -> Iterator[Batch]:
        """All that leave room for the model's states and whose floor may be at most `ceiling`, by rising floors."""
        near = numpy.flatnonzero(self.layout_floors <= ceiling).tolist()
        every = [batch for index in near for batch in self.of(self.layouts[index])]
        rough = self.floors.rough([batch.values for batch in every])
        some = [every[index] for index in numpy.flatnonzero(rough <= ceiling).tolist()]
        for batch in sorted(some, key=lambda batch: batch.floor):
            if self.standing.holds(layout_of(batch.values)):
                yield batch
