"""Lower bounds of the step time for a layout and micro-batch, from the times of one layer on one rank alone.

A layer's time depends on how ranks divide it (tensor, sequence and expert degree) and on its tokens, not on the
pipeline, so that few layer times bound very many layouts. What every plan pays is counted, stage by stage: the layers'
forward and backward with the exchanges inside them, and logits with the cheapest loss. Recomputation, collectives over
the data-parallel ranks, offload and the update only add to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from planner.compute import Pass, clock
from planner.exchange import EXCHANGES
from planner.job import Job
from planner.layouts import stages
from planner.plan import Layout, layout_of
from planner.share import Share, share
from planner.specification import Specification
from planner.step_time import bubble, window_repeats
from planner.terms import MemoryTerm, Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = 1e-9  # of binary fractions, against the terms' own rounding
# Beyond any micro-batch. No kernel and no collective takes longer per token the more tokens there are, but for tiles
# that are not filled, which at this size are less than one part in a million.
VERY_MANY = 2**32
UNFILLED = 1e-6


class Seconds(NamedTuple):
    """Forward and backward seconds of one micro-batch on a rank: of a layer of each kind, and of the ends of a stage.

    `ends` are by (whether the stage holds the embedding, whether it makes logits).
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    ends: dict[tuple[bool, bool], tuple[float, float]]


@dataclass(frozen=True, eq=False)
class _Stages:
    """The stages of a pipeline: for each one the layers of each kind, and whether it is the first and the last."""

    counts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[bool, bool], ...]
    added: dict[int, tuple[tuple[float, ...], ...]] = field(default_factory=dict)

    def passes(self, once: Seconds) -> tuple[tuple[float, ...], ...]:
        """Forward of a stage's layers and of its ends, then backward, for each stage."""
        found = self.added.get(id(once))  # the table of its division keeps it
        if found is None:
            found = self.added[id(once)] = tuple(
                (sum(map(mul, counts, once.forward)), once.ends[ends][0],
                 sum(map(mul, counts, once.backward)), once.ends[ends][1])
                for counts, ends in zip(self.counts, self.ends, strict=True)
            )  # fmt: skip
        return found


@dataclass(frozen=True, eq=False)
class Floors:
    """Floors of one job's step time under one outlook; layouts that divide a layer alike share one table by tokens."""

    job: Job
    outlook: str = "typical"
    tables: dict[tuple[object, ...], dict[int, Seconds]] = field(default_factory=dict)
    of_pipeline: dict[tuple[object, ...], _Stages] = field(default_factory=dict)

    def microseconds(self, values: Values, again: float = 0.0) -> int:
        """No plan with the layout and micro-batch among `values` takes less than this.

        `again`: seconds that the first stage recomputes at least in every backward.
        """
        layout, tokens = layout_of(values), self.job.tokens(values)
        once = self._once(layout, tokens)
        return int(self._step(self._stages(layout), once, values, again) * 1e6 * (1 - TOLERANCE))

    def of_layouts(self, layouts: Sequence[Layout]) -> NDArray[Any]:
        """Array (layouts): lower bounds of `microseconds` with any micro-batch.

        Micro-batches of one sequence wait least and fill up no part of one; backward of all of them is taken together.
        """
        ones: list[Values] = [{"layout": layout, "micro_batch": 1} for layout in layouts]
        return self.rough(ones, together=True)

    def rough(self, batches: Sequence[Values], together: bool = False) -> NDArray[Any]:
        """Array (batches): lower bounds of `microseconds` from what a token takes among very many.

        `together`: the last backward is not taken apart from the others, whose slowest stage may be another.
        """
        numbers: dict[Layout, int] = {}
        passes: list[tuple[tuple[float, ...], ...]] = []
        rows = []
        for values in batches:
            layout = layout_of(values)
            if layout not in numbers:
                numbers[layout] = len(numbers)
                passes.append(self._stages(layout).passes(self._once(layout, VERY_MANY)))
            rows.append((numbers[layout], self.job.micro_batches(values), bubble(values), self.job.tokens(values)))
        if not rows:
            return numpy.zeros(0, dtype=numpy.int64)
        return _rough(passes, numpy.array(rows, dtype=float), together)

    def _step(self, found: _Stages, once: Seconds, values: Values, again: float = 0.0) -> float:
        """Seconds of all micro-batches of a step where one takes `once`, the slowest stage of each window counted."""
        waits, windows = bubble(values), [0.0, 0.0, 0.0]
        forward, backward, last = window_repeats(self.job.micro_batches(values), waits)
        recomputed = again
        for layers_forward, ends_forward, layers_backward, ends_backward in found.passes(once):
            twice = layers_backward + recomputed
            windows[0] = max(windows[0], forward * layers_forward + (forward - waits) * ends_forward)
            windows[1] = max(windows[1], backward * twice + (backward - waits) * ends_backward)
            windows[2] = max(windows[2], last * (twice + ends_backward))
            recomputed = 0.0  # of other stages nothing is known
        return sum(windows)

    def _stages(self, layout: Layout) -> _Stages:
        """The stages of a layout; those of every layout with such a pipeline."""
        key = (layout.pipeline, layout.virtual_stages, layout.spared)
        found = self.of_pipeline.get(key)
        if found is None:
            shares = (share(self.job, layout, stage) for stage in stages(self.job))
            held = [one for one in shares if one.exists]
            ends = tuple((one.is_first, one.is_last) for one in held)
            found = self.of_pipeline[key] = _Stages(tuple(map(self._counts, held)), ends)
        return found

    def _counts(self, one: Share) -> tuple[int, ...]:
        """The layers of a stage, by kinds in the order of the job's."""
        counts = {id(kind): count for kind, count in one.kind_counts}
        return tuple(counts.get(id(kind), 0) for kind, _ in self.job.kind_counts)

    def _once(self, layout: Layout, tokens: int) -> Seconds:
        """The seconds of one micro-batch, worked out once for all layouts that divide a layer alike."""
        table = self.tables.setdefault((layout.tensor, layout.sequence, layout.expert, layout.whole_stream), {})
        if tokens not in table:
            table[tokens] = self._seconds(share(self.job, layout, stages(self.job)[0]), tokens)
        return table[tokens]

    def _seconds(self, one: Share, tokens: int) -> Seconds:
        """The seconds of one micro-batch on the ranks that hold a share, whatever its stage."""
        forward = tuple(self._layers(one, tokens, "forward"))
        backward = tuple(self._layers(one, tokens, "backward"))
        ends = {
            (first, last): (
                self._ends(one, first, last, tokens, "forward"),
                self._ends(one, first, last, tokens, "backward"),
            )
            for first in (False, True)
            for last in (False, True)
        }
        return Seconds(forward, backward, ends)

    def _layers(self, one: Share, tokens: int, direction: Pass) -> Iterable[float]:
        """Seconds of a layer of each kind, with the exchanges that it waits for."""
        times = clock(one)
        waited = [found for found in EXCHANGES if not found.lane and getattr(one.layout, found.degree) > 1]
        for kind, _ in self.job.kind_counts:
            exchanged = sum(found.seconds(one, kind, tokens, direction, self.outlook) for found in waited)
            yield times.layer(kind, tokens, direction, self.outlook) + exchanged

    def _ends(self, one: Share, first: bool, last: bool, tokens: int, direction: Pass) -> float:
        """Seconds of embedding and logits where a stage has them, with the loss that takes least."""
        times, losses = clock(one), map(str, self.job.losses)
        head = min(times.head(tokens, direction, self.outlook, loss) for loss in losses) if last else 0.0
        return head + (times.embedding(tokens, direction, self.outlook) if first else 0.0)


class StandingFloors:
    """Which layouts leave room for the states of the model, whatever the other choices.

    `of_the_runtime`: other choices have only the values that the runtime has.
    """

    def __init__(self, specification: Specification, of_the_runtime: bool = True) -> None:
        first = stages(specification.job)[0]
        self.terms = [term for term in specification.memory if _stands(term) and term.stage == first]
        self.limit = specification.limits.get("gpu")
        known = specification.job.runtime.choices if of_the_runtime else {}
        self.domains = {choice.name: choice.values for choice in specification.space.choices}
        for name, values in known.items():
            self.domains[name] = tuple(value for value in self.domains[name] if value in values)
        self.found: dict[Layout, int] = {}

    def holds(self, layout: Layout) -> bool:
        """Whether states fit that are as small in every term as any value of the other choices makes them."""
        return self.limit is None or self.bytes(layout) <= self.limit.capacity

    def bytes(self, layout: Layout) -> int:
        """What the states of the model take at least."""
        if layout not in self.found:
            self.found[layout] = sum(self._least(term, layout) for term in self.terms)
        return self.found[layout]

    def _least(self, term: MemoryTerm, layout: Layout) -> int:
        """The least of a term under a layout."""
        others = [name for name in term.scope if name != "layout"]
        ways = product(*(self.domains[name] for name in others))
        return min((term.body({"layout": layout, **dict(zip(others, way, strict=True))}) for way in ways), default=0)


def _stands(term: MemoryTerm) -> bool:
    """Whether a term is of the model's states in forward, and depends on no batch."""
    states = term.device == "gpu" and term.book in ("parameters", "gradients", "optimizer_states")
    return states and "forward" in term.moments and not term.measures and "micro_batch" not in term.scope


def _rough(passes: Sequence[Sequence[Sequence[float]]], rows: NDArray[Any], together: bool) -> NDArray[Any]:
    """Array (rows): the microseconds of `Floors._step` from the passes of each row's layout among very many tokens.

    A row holds the number of its layout, micro-batches, how many of them the pipeline waits, and tokens of each.
    """
    stages = numpy.zeros((len(passes), max(map(len, passes)), 4))
    for number, found in enumerate(passes):
        stages[number, : len(found)] = found
    once = stages[rows[:, 0].astype(int)]
    waits, (forward, backward, last) = rows[:, 2:3], window_repeats(rows[:, 1:2], rows[:, 2:3])
    first = forward * once[:, :, 0] + (forward - waits) * once[:, :, 1]
    others = backward * once[:, :, 2] + (backward - waits) * once[:, :, 3]
    end = last * (once[:, :, 2] + once[:, :, 3])
    windows = (first, others + end) if together else (first, others, end)
    seconds = sum(window.max(axis=1) for window in windows) * rows[:, 3] / VERY_MANY
    return numpy.asarray(numpy.floor(seconds * 1e6 * (1 - UNFILLED)), dtype=numpy.int64)
