"""Lower bounds of the step time for a layout and micro-batch, from the times of one layer on one rank alone.

A layer's time depends on how ranks divide it (tensor, sequence and expert degree) and on its tokens, not on the
pipeline, so that few layer times bound very many layouts. What every plan pays is counted, stage by stage: the layers'
forward and backward with the exchanges inside them, those that run beside them, what a pipeline's stages send each
other, and logits with the cheapest loss. Recomputation, collectives over the data-parallel ranks, offload and the
update only add to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from operator import mul
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy

from planner.compute import Pass, clock
from planner.exchange import EXCHANGES, Exchange, messages_hide, messages_seconds
from planner.job import Job
from planner.layouts import stages
from planner.plan import Layout, layout_of
from planner.share import Share, share
from planner.step_time import bubble, window_repeats
from planner.terms import Values

if TYPE_CHECKING:
    from numpy.typing import NDArray

TOLERANCE = 1e-9  # of binary fractions, against the terms' own rounding
# Beyond any micro-batch. No kernel and no collective takes longer per token the more tokens there are, but for tiles
# that are not filled, which at this size are less than one part in a million.
VERY_MANY = 2**32
UNFILLED = 1e-6


# Choices, beside layout and micro-batch, of which a floor may know the value; of one that it does not know it takes the
# value that takes least.
TOLD_APART = ("loss",)
Told = tuple[str, ...]  # their values in that order, empty where one is not known
UNTOLD: Told = ("",) * len(TOLD_APART)
# Whether a stage holds the embedding, and whether it makes logits.
ENDS = ((False, False), (False, True), (True, False), (True, True))


class Seconds(NamedTuple):
    """Forward and backward seconds of one micro-batch on a rank: of a layer of each kind, and of the ends of a stage.

    `beside`: forward and backward of what runs beside the layers, by kind. `ends` are by the pairs of `ENDS`.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    beside: tuple[tuple[float, ...], tuple[float, ...]]
    ends: dict[tuple[bool, bool], tuple[float, float]]


class Passes(NamedTuple):
    """Forward of a stage's layers and of its ends, then backward, then forward and backward of what runs beside."""

    layers_forward: float
    ends_forward: float
    layers_backward: float
    ends_backward: float
    beside_forward: float
    beside_backward: float


@dataclass(frozen=True, eq=False)
class _Stages:
    """The stages of a pipeline: for each one the layers of each kind, and whether it is the first and the last."""

    names: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]
    ends: tuple[tuple[bool, bool], ...]
    added: dict[int, tuple[Passes, ...]] = field(default_factory=dict)

    def passes(self, once: Seconds) -> tuple[Passes, ...]:
        """The passes of each stage."""
        found = self.added.get(id(once))  # the table of its division keeps it
        if found is None:
            found = self.added[id(once)] = tuple(
                Passes(sum(map(mul, counts, once.forward)), once.ends[ends][0],
                       sum(map(mul, counts, once.backward)), once.ends[ends][1],
                       counted * sum(map(mul, counts, once.beside[0])), counted * sum(map(mul, counts, once.beside[1])))
                for counts, ends, counted in zip(self.counts, self.ends, self.counted, strict=True)
            )  # fmt: skip
        return found

    @cached_property
    def counted(self) -> tuple[bool, ...]:
        """The one stage whose layers are counted in the lane of what runs beside them: that with the most."""
        fullest = max(range(len(self.counts)), key=lambda index: sum(self.counts[index]))
        return tuple(index == fullest for index in range(len(self.counts)))


@dataclass(frozen=True, eq=False)
class Floors:
    """Floors of one job's step time under one outlook; layouts that divide a layer alike share one table by tokens."""

    job: Job
    outlook: str = "typical"
    tables: dict[tuple[object, ...], dict[int, Seconds]] = field(default_factory=dict)
    of_pipeline: dict[tuple[object, ...], _Stages] = field(default_factory=dict)

    def microseconds(self, values: Values, again: Mapping[str, float] | None = None) -> int:
        """No plan with the layout and micro-batch among `values`, and with those of `TOLD_APART`, takes less than this.

        `again`: seconds that each stage recomputes at least in every backward.
        """
        layout, tokens = layout_of(values), self.job.tokens(values)
        message = messages_seconds(self.job, layout, tokens, self.outlook)
        once = self._once(layout, tokens, tuple(str(values.get(name, "")) for name in TOLD_APART))
        return int(self._step(self._stages(layout), once, values, message, again or {}) * 1e6 * (1 - TOLERANCE))

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
        if not batches:
            return numpy.zeros(0, dtype=numpy.int64)
        numbers: dict[Layout, int] = {}
        rows = []
        for values in batches:
            layout = layout_of(values)
            number = numbers.setdefault(layout, len(numbers))
            rows.append((number, self.job.micro_batches(values), bubble(values), self.job.tokens(values)))
        pairs = [(self._stages(layout), self._once(layout, VERY_MANY)) for layout in numbers]
        messages = [messages_seconds(self.job, layout, VERY_MANY, self.outlook) for layout in numbers]
        hide = [messages_hide(self.job, layout) for layout in numbers]
        return _rough(_passes(pairs), numpy.array(messages), numpy.array(hide), numpy.array(rows), together)

    def _step(
        self, found: _Stages, once: Seconds, values: Values, message: float, again: Mapping[str, float]
    ) -> float:
        """Seconds of all micro-batches of a step where one takes `once`, the slowest lane of each window counted.

        `message`: seconds of what a stage sends to the next in one pass.
        """
        waits, windows, beside = bubble(values), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]
        hide = messages_hide(self.job, layout_of(values))
        forward, backward, last = window_repeats(self.job.micro_batches(values), waits)
        received = [message * (waits if hide else times) for times in (forward, backward)]
        for name, one in zip(found.names, found.passes(once), strict=True):
            twice = one.layers_backward + again.get(name, 0.0)
            whole = forward * one.layers_forward + received[0] + (forward - waits) * one.ends_forward
            others = backward * twice + received[1] + (backward - waits) * one.ends_backward
            windows = list(map(max, windows, (whole, others, last * (twice + message + one.ends_backward))))
            ways = (forward * one.beside_forward, backward * one.beside_backward, last * one.beside_backward)
            beside = list(map(max, beside, ways))
        return sum(map(max, windows, beside))

    def _stages(self, layout: Layout) -> _Stages:
        """The stages of a layout; those of every layout with such a pipeline."""
        key = (layout.pipeline, layout.virtual_stages, layout.spared)
        found = self.of_pipeline.get(key)
        if found is None:
            shares = (share(self.job, layout, stage) for stage in stages(self.job))
            held = [one for one in shares if one.exists]
            ends = tuple((one.is_first, one.is_last) for one in held)
            names, counts = tuple(one.stage for one in held), tuple(map(self._counts, held))
            found = self.of_pipeline[key] = _Stages(names, counts, ends)
        return found

    def _counts(self, one: Share) -> tuple[int, ...]:
        """The layers of a stage, by kinds in the order of the job's."""
        counts = {id(kind): count for kind, count in one.kind_counts}
        return tuple(counts.get(id(kind), 0) for kind, _ in self.job.kind_counts)

    def _once(self, layout: Layout, tokens: int, told: Told = UNTOLD) -> Seconds:
        """The seconds of one micro-batch, worked out once for all layouts that divide a layer alike."""
        key = (layout.tensor, layout.sequence, layout.expert, layout.whole_stream, told)
        table = self.tables.setdefault(key, {})
        if tokens not in table:
            table[tokens] = self._seconds(share(self.job, layout, stages(self.job)[0]), tokens, told)
        return table[tokens]

    def _seconds(self, one: Share, tokens: int, told: Told) -> Seconds:
        """The seconds of one micro-batch on the ranks that hold a share, whatever its stage."""
        loss = dict(zip(TOLD_APART, told, strict=True))["loss"]
        losses = (loss,) if loss else tuple(map(str, self.job.losses))
        used = [found for found in EXCHANGES if getattr(one.layout, found.degree) > 1]
        waited, beside = [found for found in used if not found.lane], [found for found in used if found.lane]
        forward = tuple(self._layers(one, tokens, "forward", waited))
        backward = tuple(self._layers(one, tokens, "backward", waited))
        ways = tuple(self._exchanged(one, tokens, way, beside) for way in ("forward", "backward"))
        ends = {
            (first, last): (
                self._ends(one, first, last, tokens, "forward", losses),
                self._ends(one, first, last, tokens, "backward", losses),
            )
            for first, last in ENDS
        }
        return Seconds(forward, backward, (ways[0], ways[1]), ends)

    def _layers(self, one: Share, tokens: int, direction: Pass, waited: Sequence[Exchange]) -> Iterable[float]:
        """Seconds of a layer of each kind, with the exchanges that it waits for."""
        times, exchanged = clock(one), self._exchanged(one, tokens, direction, waited)
        for (kind, _), seconds in zip(self.job.kind_counts, exchanged, strict=True):
            yield times.layer(kind, tokens, direction, self.outlook) + seconds

    def _exchanged(self, one: Share, tokens: int, direction: str, used: Sequence[Exchange]) -> tuple[float, ...]:
        """Seconds of some exchanges of a layer of each kind."""
        return tuple(
            sum(found.seconds(one, kind, tokens, direction, self.outlook) for found in used)
            for kind, _ in self.job.kind_counts
        )

    def _ends(
        self, one: Share, first: bool, last: bool, tokens: int, direction: Pass, losses: Sequence[str]
    ) -> float:
        """Seconds of embedding and logits where a stage has them, with the loss that takes least."""
        times = clock(one)
        head = min(times.head(tokens, direction, self.outlook, loss) for loss in losses) if last else 0.0
        return head + (times.embedding(tokens, direction, self.outlook) if first else 0.0)


def _passes(pairs: Sequence[tuple[_Stages, Seconds]]) -> NDArray[Any]:
    """Array (pairs, stages, fields of `Passes`) of stages whose ranks take so many seconds; 0 where there is none."""
    cut, once = {id(one): one for one, _ in pairs}, {id(seconds): seconds for _, seconds in pairs}
    at = [{key: index for index, key in enumerate(found)} for found in (cut, once)]
    of_cut, of_once = (numpy.array([at[i][id(pair[i])] for pair in pairs]) for i in (0, 1))
    kinds, most = len(pairs[0][1].forward), max(len(one.counts) for one in cut.values())
    counts, ends = numpy.zeros((len(cut), most, kinds)), numpy.zeros((len(cut), most), dtype=numpy.int64)
    counted = numpy.zeros((len(cut), most))
    for index, one in enumerate(cut.values()):
        counts[index, : len(one.counts)] = one.counts
        ends[index, : len(one.ends)] = [ENDS.index(pair) for pair in one.ends]
        counted[index, : len(one.counts)] = one.counted
    layers = numpy.array([(found.forward, found.backward, *found.beside) for found in once.values()])
    ended = numpy.array([[found.ends[pair] for pair in ENDS] for found in once.values()])
    added = counts[of_cut] @ layers[of_once].transpose(0, 2, 1)
    beyond = ended[of_once[:, None], ends[of_cut]]
    beside = added[:, :, 2:] * counted[of_cut][:, :, None]
    columns = (added[:, :, 0], beyond[:, :, 0], added[:, :, 1], beyond[:, :, 1], beside[:, :, 0], beside[:, :, 1])
    return numpy.stack(columns, axis=2)


def _rough(
    stages: NDArray[Any], messages: NDArray[Any], hide: NDArray[Any], rows: NDArray[Any], together: bool
) -> NDArray[Any]:
    """Array (rows): the microseconds of `Floors._step` from the passes of each row's layout among very many tokens.

    A row holds the number of its layout, micro-batches, how many of them the pipeline waits, and tokens of each;
    `messages` (layouts) what a stage sends, `hide` whether all but those that fill the pipeline pass beside its chunks.
    """
    number = rows[:, 0].astype(int)
    once, sent, hidden = stages[number], messages[number][:, None], hide[number][:, None]
    beside = once[:, :, 4:].max(axis=1)
    waits, (forward, backward, last) = rows[:, 2:3], window_repeats(rows[:, 1:2], rows[:, 2:3])
    received = [sent * numpy.where(hidden, waits, times) for times in (forward, backward)]
    first = forward * once[:, :, 0] + received[0] + (forward - waits) * once[:, :, 1]
    others = backward * once[:, :, 2] + received[1] + (backward - waits) * once[:, :, 3]
    end = last * (once[:, :, 2] + sent + once[:, :, 3])
    lanes = [forward[:, 0] * beside[:, 0], backward[:, 0] * beside[:, 1], last * beside[:, 1]]
    windows = [window.max(axis=1) for window in ((first, others + end) if together else (first, others, end))]
    if together:
        lanes[1:] = [lanes[1] + lanes[2]]
    seconds = sum(map(numpy.maximum, windows, lanes)) * rows[:, 3] / VERY_MANY
    return numpy.asarray(numpy.floor(seconds * 1e6 * (1 - UNFILLED)), dtype=numpy.int64)
