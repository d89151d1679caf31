"""The memory ledger as terms: what effects allocate, and the activations of the layers, logits and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from planner.architecture.activations import Amount, LayerActivations
from planner.blocks import BLOCK_CHOICES, PLAIN, Blocks, blocks_of
from planner.effect_terms import Reader, allocation_terms, job_effects
from planner.job import Job
from planner.layouts import WHOLE, stages
from planner.plan import layout_of, whole
from planner.share import Share, measure_name, share_of
from planner.terms import BATCH, MemoryTerm, Values

KEPT = (*BATCH, *BLOCK_CHOICES)
INTERVAL = (*KEPT, "checkpoint_interval", "recompute_policy")
PASSES = ("forward", "loss", "backward_start")
LATE = ("recompute_start", "backward_end")
UnderWay = Callable[[Share, int, int], int]
Waiting = Callable[[Share, Values, UnderWay], int]


@lru_cache(maxsize=64)
def memory_terms(job: Job) -> tuple[MemoryTerm, ...]:
    """Every memory term of the job, stage by stage."""
    effects = job_effects(job)
    return tuple(term for stage in stages(job) for term in _stage_terms(Reader(job, effects, stage)))


def _stage_terms(reader: Reader) -> Iterable[MemoryTerm]:
    """The memory terms of one pipeline stage."""
    return (*allocation_terms(reader), *activation_terms(reader.job, reader.stage))


def activation_terms(job: Job, stage: str) -> tuple[MemoryTerm, ...]:
    """The activations book of a stage.

    The first `checkpoint_count × checkpoint_interval` layers keep only the input of each segment; in backward one
    segment at a time is made again. Kept layers come later in the model, so their activations are gone by then. What is
    kept for backward stands once for each micro-batch under way.
    """
    terms = _Terms(job, stage)
    return (*terms.kept(), *terms.cached(), *terms.live(), *terms.boundaries(), *terms.outside())


class _Terms:
    """The activation terms of one stage."""

    def __init__(self, job: Job, stage: str) -> None:
        self.job, self.stage = job, stage
        self.piped = stage != WHOLE
        self.recomputed = {measure_name(name, stage): kind for name, kind in job.recomputed_kinds.items()}

    def term(
        self,
        name: str,
        size: Callable[[Share, Values], int],
        moments: tuple[str, ...],
        scope: tuple[str, ...] = BATCH,
        measures: Sequence[str] = (),
        device: str = "gpu",
        apart: bool = False,
    ) -> MemoryTerm:
        """An activation term; nothing where the pipeline has no such stage."""
        job, stage = self.job, self.stage

        def body(values: Values) -> int:
            share = share_of(job, values, stage)
            return size(share, values) if share.exists else 0

        return MemoryTerm(name, scope, tuple(measures), body, device, "activations", moments, stage=stage, apart=apart)

    def kept(self) -> Iterable[MemoryTerm]:
        """Layers that are not checkpointed keep all they need for backward."""

        def size(share: Share, values: Values, under_way: UnderWay) -> int:
            count, times, blocks = self.job.tokens(values), self.job.micro_batches(values), blocks_of(values)
            dropped = ((kind, -whole(values, name)) for name, kind in self.recomputed.items())
            counted = (*share.kind_counts, *dropped)
            stored = ((share.of(kind, blocks).stored.at(count), number) for kind, number in counted)
            return sum(under_way(share, held, times) * number for held, number in stored)

        yield from self.waiting("activations of kept layers", size, PASSES, KEPT, tuple(self.recomputed))

    def cached(self) -> Iterable[MemoryTerm]:
        """Checkpointed layers under autocast: its cache holds their 16-bit weights until the forward pass ends."""

        def size(share: Share, values: Values) -> int:
            return sum(share.of(kind).cached.constant * whole(values, name) for name, kind in self.recomputed.items())

        if any(layer.cached.constant for layer in self.job.activations.layers):
            name = "16-bit weights cached by autocast"
            yield self.term(name, size, ("forward", "loss"), scope=("layout",), measures=tuple(self.recomputed))

    def boundaries(self) -> Iterable[MemoryTerm]:
        """Each checkpoint keeps the input of its segment until the segment's backward is done."""
        measure = measure_name("checkpoints", self.stage)

        def size(share: Share, values: Values, under_way: UnderWay) -> int:
            kept = [checkpoint_amount(share.of(kind), values) for kind, _ in share.kind_counts]
            boundary = max(kept, key=lambda amount: amount.per_token).at(self.job.tokens(values))
            return under_way(share, boundary, self.job.micro_batches(values)) * whole(values, measure)

        scope = (*BATCH, "recompute_policy")
        yield from self.waiting("checkpoints", size, (*PASSES, "recompute_start"), scope, (measure,))

    def waiting(
        self, name: str, size: Waiting, moments: tuple[str, ...], scope: tuple[str, ...], measures: tuple[str, ...]
    ) -> Iterable[MemoryTerm]:
        """What waits for its backward, on the GPU or where it is offloaded to, with other micro-batches' in a pipeline.

        At late moments outside `moments` only what other micro-batches keep stands. Copies run ahead of the layers; the
        few tensors on their way are part of the running layer's own.
        """
        scope, job = (*scope, "activation_offload"), self.job

        def on_gpu(share: Share, values: Values) -> int:
            return 0 if _offloads(values) else size(share, values, Share.under_way)

        def others(share: Share, values: Values) -> int:
            return 0 if _offloads(values) else size(share, values, Share.others_under_way)

        def on_host(share: Share, values: Values) -> int:
            held = size(share, values, Share.under_way) if _offloads(values) else 0
            return held * job.ranks_per_node(values)

        yield self.term(name, on_gpu, moments, scope, measures)
        gone = tuple(moment for moment in LATE if moment not in moments)
        if self.piped:
            yield self.term(name, others, gone, scope, measures)
        yield self.term(f"{name} on the host", on_host, moments, scope, measures, device="host")

    def live(self) -> Iterable[MemoryTerm]:
        """What one layer's forward, one layer's backward and one segment's recomputation hold while they run."""
        yield self.term("one layer running forward", self._forward, ("forward",), scope=INTERVAL)
        yield self.term("backward of the last layer", self._start, ("backward_start",), scope=KEPT)
        yield self.term("recomputed segment", self._segment, ("recompute_start",), scope=INTERVAL)
        yield self.term("backward of the first layers", self._end, ("backward_end",), scope=INTERVAL)

    def _forward(self, share: Share, values: Values) -> int:
        count, found = self.job.tokens(values), share.activations
        layers = [share.of(kind, blocks_of(values)) for kind, _ in share.kind_counts]
        checkpointed = values["checkpoint_interval"] != 0
        live = [layer.checkpointed_forward_live if checkpointed else layer.forward_live for layer in layers]
        layer = max(amount.at(count) for amount in live)
        embedded = found.embedded.at(count) if share.is_first else 0
        return max(layer + embedded, (found.final + found.final_forward).at(count) if share.is_last else 0)

    def _start(self, share: Share, values: Values) -> int:
        count, found = self.job.tokens(values), share.activations
        final = (found.final + found.final_backward).at(count) if share.is_last else 0
        return max(_kept_backward(share.kept_layers(blocks_of(values)), count), final)

    def _segment(self, share: Share, values: Values) -> int:
        interval, blocks = whole(values, "checkpoint_interval"), blocks_of(values)
        return segment_bytes(share, interval, self.job.tokens(values), _selects(values), blocks) if interval else 0

    def _end(self, share: Share, values: Values) -> int:
        count = self.job.tokens(values)
        if values["checkpoint_interval"] == 0:
            first = share.of(share.kinds[0], blocks_of(values))
            return first.stored.at(count) + first.backward_live.at(count)
        return self._segment(share, values)

    def outside(self) -> Iterable[MemoryTerm]:
        """Rotary tables, which all layers read; final norm and labels; logits and the loss with its gradient."""

        def tables(share: Share, values: Values) -> int:
            return share.activations.tables.at(self.job.tokens(values))

        def final(share: Share, values: Values) -> int:
            return share.activations.final.at(self.job.tokens(values)) if share.is_last else 0

        def loss(share: Share, values: Values) -> int:
            layout, count = share.layout, self.job.tokens(values)
            found = self.job.activations_under(layout.tensor, layout.whole_stream, str(values["loss"]))
            return max(found.loss_forward.at(count), found.loss_backward.at(count)) if share.is_last else 0

        def idle(share: Share, values: Values) -> int:
            layout, count = share.layout, self.job.tokens(values)
            found = self.job.activations_under(layout.tensor, layout.whole_stream, str(values["loss"]))
            return found.idle_logits.at(count) if share.is_last else 0

        later = (*PASSES, "recompute_start", "backward_end")
        yield self.term("tables that all layers read", tables, later)
        yield from self._biases()
        yield self.term("final norm, labels", final, ("loss",))
        yield self.term("logits and loss", loss, ("loss",), scope=(*BATCH, "loss"))
        yield self.term("block of 16-bit logits", idle, (), scope=(*BATCH, "loss"), apart=True)

    def _biases(self) -> Iterable[MemoryTerm]:
        """Biases of relative positions, where the model has any: an input of every checkpointed layer."""

        def size(share: Share, values: Values) -> int:
            return share.activations.biases.constant

        def checkpointed(share: Share, values: Values) -> int:
            return size(share, values) if values["checkpoint_interval"] != 0 else 0

        if self.job.activations.biases.constant:
            later = (*PASSES[1:], "recompute_start", "backward_end")
            scope = ("layout", "checkpoint_interval")
            yield self.term("relative positions", size, ("forward",), scope=("layout",))
            yield self.term("relative positions of checkpointed layers", checkpointed, later, scope=scope)


def least_activations(job: Job, values: Values) -> int:
    """Bytes of activations that no plan with this layout and micro-batch can do without on some GPU.

    Some stage makes logits and loss, and every stage runs its layers forward, recomputed later or not; what a kept
    layer stores may be offloaded.
    """
    layout = layout_of(values)
    return _least_activations(job, layout.tensor, layout.whole_stream, job.tokens(values))


@lru_cache(maxsize=65536)
def _least_activations(job: Job, tensor_ranks: int, whole_stream: bool, tokens: int) -> int:
    """As `least_activations`, for what it depends on."""
    running = min(_least_running(job, tensor_ranks, whole_stream, tokens, way) for way in job.block_ways)
    ends = (job.activations_under(tensor_ranks, whole_stream, loss) for loss in job.losses)
    return max(running, min(max(end.loss_forward.at(tokens), end.loss_backward.at(tokens)) for end in ends))


def _least_running(job: Job, tensor_ranks: int, whole_stream: bool, tokens: int, blocks: Blocks) -> int:
    """What the layer that needs most holds while it runs forward, kept or checkpointed, whichever is less."""
    layers = job.activations_under(tensor_ranks, whole_stream, blocks=blocks).layers
    ways = ((layer.checkpointed_forward_live, layer.forward_live) for layer in layers)
    return max(min(recomputed.at(tokens), kept.at(tokens)) for recomputed, kept in ways)


@lru_cache(maxsize=65536)
def segment_bytes(share: Share, interval: int, tokens: int, selective: bool, blocks: Blocks = PLAIN) -> int:
    """What recomputing one segment of `interval` layers holds at most, less what selective recomputation kept of it."""
    layers = share.kept_layers(blocks)
    found = _segment(layers, interval, tokens)
    return found - min(layer.selective_shared.at(tokens) for layer in layers) if selective else found


def _selects(values: Values) -> bool:
    return values["recompute_policy"] == "selective"


def checkpoint_amount(layer: LayerActivations, values: Values) -> Amount:
    """What one checkpoint keeps: the layer's input, and what selective recomputation keeps besides."""
    return layer.boundary + layer.selective if _selects(values) else layer.boundary


def _offloads(values: Values) -> bool:
    return values["activation_offload"] == "cpu"


def _kept_backward(layers: Sequence[LayerActivations], count: int) -> int:
    """The most that a kept layer's backward holds beyond all that is stored; what later layers stored is gone then."""
    most = freed = 0
    for layer in reversed(layers):
        most = max(most, layer.backward_live.at(count) - freed)
        freed += layer.stored.at(count)
    return most


def _segment(layers: Sequence[LayerActivations], interval: int, count: int) -> int:
    """The most that recomputing `interval` consecutive layers holds: all they store and one layer's surplus."""
    if interval == 0:
        return 0
    stored = [layer.stored.at(count) for layer in layers]
    surplus = [layer.checkpointed_backward_live.at(count) - layer.stored.at(count) for layer in layers]
    window = sum(stored[:interval])
    most = window + max(surplus[:interval])
    for first in range(1, len(layers) - interval + 1):
        window += stored[first + interval - 1] - stored[first - 1]
        most = max(most, window + max(surplus[first : first + interval]))
    return most
