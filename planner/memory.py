"""The memory ledger as terms: what effects allocate, and the activations of the layers, logits and loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from planner.architecture.activations import Amount, LayerActivations
from planner.effect_terms import Reader, allocation_terms, job_effects
from planner.job import Job
from planner.plan import whole
from planner.terms import MemoryTerm, Values

TOKENS = ("micro_batch",)
PASSES = ("forward", "loss", "backward_start")


@lru_cache(maxsize=64)
def memory_terms(job: Job) -> tuple[MemoryTerm, ...]:
    """Every memory term of the job."""
    reader = Reader(job, job_effects(job))
    return (*allocation_terms(reader), *activation_terms(job))


def activation_terms(job: Job) -> tuple[MemoryTerm, ...]:
    """The activations book.

    The first `checkpoint_count × checkpoint_interval` layers keep only the input of each segment; in backward one
    segment at a time is made again. Kept layers come later in the model, so their activations are gone by then.
    """
    return tuple(_kept(job)) + tuple(_cached(job)) + tuple(_live(job)) + tuple(_boundaries(job)) + tuple(_outside(job))


def tokens(job: Job, values: Values) -> int:
    """Tokens of one micro-batch on one rank."""
    return whole(values, "micro_batch") * job.training.sequence_length


def _term(name: str, body: Callable[[Values], int], moments: tuple[str, ...], **more: tuple[str, ...]) -> MemoryTerm:
    """An activation term on the GPU."""
    return MemoryTerm(name, more.get("scope", TOKENS), more.get("measures", ()), body, "gpu", "activations", moments)


def _kept(job: Job) -> Iterable[MemoryTerm]:
    """Layers that are not checkpointed keep all they need for backward."""

    def body(values: Values) -> int:
        count = tokens(job, values)
        full = sum(number * job.activations_of(kind).stored.at(count) for kind, number in job.kind_counts)
        kinds = job.recomputed_kinds.items()
        dropped = ((job.activations_of(kind).stored.at(count), whole(values, name)) for name, kind in kinds)
        return full - sum(stored * recomputed for stored, recomputed in dropped)

    yield _term("activations of kept layers", body, PASSES, measures=tuple(job.recomputed_kinds))


def _cached(job: Job) -> Iterable[MemoryTerm]:
    """Checkpointed layers under autocast: its cache holds their 16-bit weights until the forward pass ends."""
    sizes = {name: job.activations_of(kind).cached.constant for name, kind in job.recomputed_kinds.items()}

    def body(values: Values) -> int:
        return sum(size * whole(values, name) for name, size in sizes.items())

    if any(sizes.values()):
        name = "16-bit weights cached by autocast"
        yield _term(name, body, ("forward", "loss"), scope=(), measures=tuple(sizes))


def _boundaries(job: Job) -> Iterable[MemoryTerm]:
    """Each checkpoint keeps the input of its segment until the segment's backward is done."""
    boundary = max((layer.boundary for layer in job.kind_activations), key=lambda amount: amount.per_token)

    def body(values: Values) -> int:
        return boundary.at(tokens(job, values)) * whole(values, "checkpoints")

    yield _term("checkpoints", body, (*PASSES, "recompute_start"), measures=("checkpoints",))


def _live(job: Job) -> Iterable[MemoryTerm]:
    """What one layer's forward, one layer's backward and one segment's recomputation hold while they run."""
    scope = ("micro_batch", "checkpoint_interval")
    layers, found = [job.activations_of(kind) for kind in job.layer_kinds], job.activations

    def largest(pick: Callable[[LayerActivations], Amount], count: int) -> int:
        return max(pick(layer).at(count) for layer in layers)

    def forward(values: Values) -> int:
        checkpointed, count = values["checkpoint_interval"] != 0, tokens(job, values)
        layer = largest(lambda layer: layer.checkpointed_forward_live if checkpointed else layer.forward_live, count)
        return max(layer + found.embedded.at(count), (found.final + found.final_forward).at(count))

    def start(values: Values) -> int:
        count = tokens(job, values)
        return max(_kept_backward(layers, count), (found.final + found.final_backward).at(count))

    def segment(values: Values) -> int:
        return _segment(layers, whole(values, "checkpoint_interval"), tokens(job, values))

    def end(values: Values) -> int:
        count = tokens(job, values)
        if values["checkpoint_interval"] == 0:
            return layers[0].stored.at(count) + layers[0].backward_live.at(count)
        return segment(values)

    yield _term("one layer running forward", forward, ("forward",), scope=scope)
    yield _term("backward of the last layer", start, ("backward_start",))
    yield _term("recomputed segment", segment, ("recompute_start",), scope=scope)
    yield _term("backward of the first layers", end, ("backward_end",), scope=scope)


def _kept_backward(layers: list[LayerActivations], count: int) -> int:
    """The most that a kept layer's backward holds beyond all that is stored; what later layers stored is gone then."""
    most = freed = 0
    for layer in reversed(layers):
        most = max(most, layer.backward_live.at(count) - freed)
        freed += layer.stored.at(count)
    return most


def _segment(layers: list[LayerActivations], interval: int, count: int) -> int:
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


def _outside(job: Job) -> Iterable[MemoryTerm]:
    """Rotary tables, which all layers read; final norm and labels; logits and the loss with its gradient."""
    found = job.activations
    yield _term(
        "tables that all layers read",
        lambda values: found.tables.at(tokens(job, values)),
        (*PASSES, "recompute_start", "backward_end"),
    )
    yield from _biases(job)
    yield _term("final norm, labels", lambda values: found.final.at(tokens(job, values)), ("loss",))
    yield _term(
        "logits and loss",
        lambda values: max(found.loss_forward.at(tokens(job, values)), found.loss_backward.at(tokens(job, values))),
        ("loss",),
    )


def _biases(job: Job) -> Iterable[MemoryTerm]:
    """Biases of relative positions, where the model has any: an input of every checkpointed layer."""
    size = job.activations.biases.constant
    if not size:
        return

    def checkpointed(values: Values) -> int:
        return size if values["checkpoint_interval"] != 0 else 0

    yield _term("relative positions", lambda values: size, ("forward",))
    later = (*PASSES[1:], "recompute_start", "backward_end")
    yield _term("relative positions of checkpointed layers", checkpointed, later, scope=("checkpoint_interval",))
