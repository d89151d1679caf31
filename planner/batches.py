"""Layouts with micro-batches by their floors: what the fastest plan can be made of, worked out as far as it can matter.

A layout is gone through only where its own floor, that of the smallest micro-batches there are, is below what some plan
reaches; of its micro-batches only those with rough floors below it are looked at more closely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import count, product
from operator import itemgetter

from planner.floors import TOLD_APART, Floors
from planner.forced_recompute import ForcedRecompute
from planner.forms import LARGEST
from planner.memory import least_activations
from planner.plan import Layout, Value, layout_of
from planner.points import OuterSpace, standing_floors
from planner.specification import Specification
from planner.terms import BATCH

OPENED = 128  # layouts that are opened at once


@dataclass(eq=False)
class Batch:
    """A layout with a micro-batch, and of the choices that floors tell apart no value or one of each.

    Floors in microseconds are worked out when they are first asked for; `rough` is below both, 0 as long as none is
    known.
    """

    values: Mapping[str, Value]
    floors: Floors = field(repr=False)
    forced: ForcedRecompute = field(repr=False)
    rough: int = 0

    @cached_property
    def without_recompute(self) -> int:
        """A lower bound of `floor` that asks no memory."""
        return self.floors.microseconds(self.values)

    @cached_property
    def floor(self) -> int:
        """No plan with these values takes less; LARGEST where none can hold."""
        if not self.forced.standing.holds(layout_of(self.values)):
            return LARGEST
        again = self.forced.seconds(self.values)
        if again is None:
            return LARGEST
        return self.floors.microseconds(self.values, again) if any(again.values()) else self.without_recompute

    @cached_property
    def parts(self) -> Sequence[Batch]:
        """The batch by each value of the choices that floors tell apart; itself where nothing is left open."""
        domains = self.forced.standing.domains
        names = [name for name in TOLD_APART if name not in self.values and len(domains[name]) > 1]
        ways = (dict(zip(names, way, strict=True)) for way in product(*(domains[name] for name in names)))
        return [Batch({**self.values, **way}, self.floors, self.forced) for way in ways] if names else [self]


class _Legal:
    """The legal micro-batches of layouts."""

    def __init__(self, specification: Specification, outer: OuterSpace) -> None:
        self.job, self.sizes = specification.job, specification.space.by_name["micro_batch"].values
        self.alone = [rule for rule in outer.rules if set(rule.scope) <= {"layout"}]
        self.joint = [rule.holds for rule in outer.rules if set(rule.scope) == set(BATCH)]
        self.sized = [rule for rule in outer.rules if set(rule.scope) == {"micro_batch"}]
        self.most = specification.capacities.get("gpu", LARGEST)

    def under(self, layout: Layout) -> Iterator[Mapping[str, Value]]:
        """Those that are legal under a layout, and whose activations can hold."""
        if not all(rule.satisfied({"layout": layout}) for rule in self.alone):
            return
        for size in self.sizes:
            values: dict[str, Value] = {"layout": layout, "micro_batch": size}
            legal = all(holds(values) for holds in self.joint) and all(rule.satisfied(values) for rule in self.sized)
            if legal and least_activations(self.job, values) <= self.most:
                yield values


class Batches:
    """The legal layouts with micro-batches of a specification by their times."""

    def __init__(self, specification: Specification, outer: OuterSpace) -> None:
        self.floors, self.standing = Floors(specification.job), standing_floors(specification, None)
        self.forced = ForcedRecompute(specification.job, self.standing)
        self.legal = _Legal(specification, outer)
        floors = self.floors.of_layouts(outer.layouts).tolist()
        self.order = sorted(zip(floors, outer.layouts, strict=True), key=itemgetter(0))
        self.found: dict[Layout, list[Batch]] = {}

    def of(self, layout: Layout) -> list[Batch]:
        """The micro-batches that are legal under a layout, and whose activations can hold."""
        if layout not in self.found:
            self.found[layout] = [Batch(values, self.floors, self.forced) for values in self.legal.under(layout)]
        return self.found[layout]

    def _opened(self, layouts: Iterable[Layout]) -> list[Batch]:
        """The micro-batches under those of the layouts that leave room for the states, with their rough floors."""
        found = [batch for layout in layouts if self.standing.holds_states(layout) for batch in self.of(layout)]
        unknown = [batch for batch in found if not batch.rough]
        for batch, rough in zip(unknown, self.floors.rough([batch.values for batch in unknown]).tolist(), strict=True):
            batch.rough = rough
        return found

    def below(self, ceiling: Callable[[], int]) -> Iterator[Batch]:
        """All that leave room for what stands and whose floor is at most the ceiling, which may fall, by rising floors.

        Layouts are opened and floors worked out when no bound left is below theirs: who stops early spares the others.
        """
        number = count()
        waiting: list[tuple[int, int, Batch | Sequence[Layout]]] = []
        for start in range(0, len(self.order), OPENED):
            group = self.order[start : start + OPENED]
            waiting.append((group[0][0], next(number), [layout for _, layout in group]))
        while waiting:
            bound, _, found = heappop(waiting)
            if bound > ceiling():
                return
            if not isinstance(found, Batch):
                for batch in self._opened(found):
                    heappush(waiting, (batch.rough, next(number), batch))
            elif found.without_recompute > bound:
                heappush(waiting, (found.without_recompute, next(number), found))
            elif len(found.parts) == 1 and found.floor <= bound:
                yield found
            else:
                for part in found.parts:
                    if part.floor < LARGEST:
                        heappush(waiting, (max(bound, part.floor), next(number), part))


class LeanBatches:
    """The legal layouts with micro-batches of a specification by what they take of a GPU."""

    def __init__(self, specification: Specification, outer: OuterSpace) -> None:
        self.standing, self.legal = standing_floors(specification, None), _Legal(specification, outer)
        self.order = sorted(((self.standing.states(layout), layout) for layout in outer.layouts), key=itemgetter(0))

    def below(self, ceiling: Callable[[], int]) -> Iterator[tuple[int, Mapping[str, Value]]]:
        """All that may take at most the ceiling's bytes, which may fall, with what they take at least, rising.

        A layout is known by its states first, then by all that stands under it, then by each of its micro-batches.
        """
        number = count()
        waiting: list[tuple[int, int, Layout | Mapping[str, Value], bool]] = [
            (bound, next(number), layout, False) for bound, layout in self.order
        ]
        while waiting:
            bound, _, found, looked_at = heappop(waiting)
            if bound > ceiling():
                return
            if not isinstance(found, Layout):
                yield bound, found
            elif not looked_at:
                heappush(waiting, (max(bound, self.standing.bytes(found)), next(number), found, True))
            else:
                for values in self.legal.under(found):
                    heappush(waiting, (self.standing.bytes_with(values), next(number), values, True))
