"""Named quantities of elements that effects multiply: how many parameters, the size of a bucket, of a partition.

Each is a function of one rank's share of the model, which the layout decides, and of the further choices that it says
it reads, in elements on one rank. The registry is explicit; catalogs can use no other names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from planner import buckets
from planner import quantized_exchange as quantized
from planner.buckets import GATHERING, REDUCING, UPDATING, partition
from planner.plan import layout_of
from planner.share import Share, node_shards
from planner.terms import Values, ceil_divide

Body = Callable[[Share, Values], int]


@dataclass(frozen=True)
class Quantity:
    """Elements on one rank: `body`, plus `slopes` elements per unit of a measure.

    `reads` names the choices beside the layout whose values the body gets; it gets no others.
    `experts` counts those of them that expert-parallel ranks do not share: they are divided over fewer ranks.
    With `per_token` it counts elements for each token of a rank's micro-batch, with `under_way` for each micro-batch
    whose backward is still to come at a pipeline stage. `meaning` is shown in the docs.
    """

    name: str
    body: Body
    meaning: str
    slopes: Callable[[Share], Mapping[str, int]] = lambda _: {}
    experts: Callable[[Share], int] = lambda _: 0
    per_token: bool = False
    under_way: bool = False
    reads: tuple[str, ...] = ()

    @property
    def scope(self) -> tuple[str, ...]:
        """Every choice that an amount of the quantity depends on."""
        batch = ("micro_batch",) if self.per_token or self.under_way else ()
        return ("layout", *batch, *self.reads)

    def elements(self, share: Share, values: Values) -> int:
        """Elements on one rank; a choice among `values` that the quantity does not say it reads is out of its sight."""
        return self.body(share, {name: values[name] for name in self.reads})

    def per_copy(self, share: Share, values: Values) -> int:
        """Elements of which each rank that shares a copy of the states has its part: experts count once per copy."""
        expert = share.layout.expert
        return self.elements(share, values) + ((expert - 1) * self.experts(share) if expert > 1 else 0)


def _of(body: Callable[[Share], int]) -> Body:
    """A body that reads the share alone."""
    return lambda share, _: body(share)


def _reading(reads: tuple[str, ...], *found: tuple[str, Body, str]) -> Iterable[Quantity]:
    """Quantities that read the same choices beside the layout."""
    return (Quantity(name, body, meaning, reads=reads) for name, body, meaning in found)


def shard_ranks(values: Values) -> int:
    """Ranks that share one copy of the model states."""
    return layout_of(values).shards


def _node_partition(share: Share) -> int:
    """All parameters over the ranks of one node that share them, padded up to a whole number each."""
    return ceil_divide(share.parameters, node_shards(share.job, share.layout))


def _touched(share: Share) -> int:
    """Largest number of elements in the parameters that touch one rank's partition of the flat buffer."""
    return touched_elements(share.sizes, share.layout.shards) if share.sizes else 0


@lru_cache(maxsize=4096)
def touched_elements(sizes: tuple[tuple[int, int], ...], ranks: int) -> int:
    """Cut the flat concatenation of tensors in `ranks` equal parts: the most elements of whole tensors touching a part.

    `sizes` lists runs (elements, count) in the order of the flat buffer.
    Example: tensors 6, 2, 4 over 2 ranks are cut at 6; rank 0 touches 6, rank 1 touches 2 + 4 = 6: 6.
    Tensors 8, 4 are cut at 6: rank 0 touches 8, rank 1 touches 8 + 4 = 12: 12.
    """
    if ranks == 1:
        return sum(size * count for size, count in sizes)
    total = sum(size * count for size, count in sizes)
    part = ceil_divide(total, ranks)
    touched: dict[int, int] = {}
    start = 0
    for size, count in sizes:
        for _ in range(count):
            for rank in range(start // part, (start + size - 1) // part + 1):
                touched[rank] = touched.get(rank, 0) + size
            start += size
    return max(touched.values())


def _owned_slice(share: Share) -> int:
    """The largest slice of a single tensor that one rank owns."""
    return min(share.largest_trainable, partition(share))


def _kept_gradients(share: Share) -> int:
    """Parameters outside checkpointed layers whose gradients exist when the first of those is recomputed.

    With nothing recomputed: all but the input embedding, whose gradient comes last. Slopes take the rest away.
    """
    return max(0, share.trainable - share.embedding)


def _recomputed_parameters(share: Share) -> Mapping[str, int]:
    """Trainable parameters of one checkpointed layer by the measure that counts such layers; gradients to come."""
    part = Fraction(share.trainable, share.parameters or 1)
    return {name: -int(elements * part) for name, elements in share.recomputed.items()}


def _owned_part(share: Share) -> int:
    """What one rank updates where whole tensors are dealt out to ranks: never less than a usual matrix."""
    return max(partition(share), share.usual_matrix)


def _stage_messages(share: Share) -> int:
    """Input of a stage and gradient of its output, for each token."""
    parts = 1 if share.layout.whole_stream else share.layout.tensor
    return 2 * ceil_divide(share.job.architecture.hidden, parts)


def _stage_output(share: Share) -> int:
    """A stage's output, for each token; the last stage's is the loss."""
    return 0 if share.is_last else _stage_messages(share) // 2


def _stage_input(share: Share) -> int:
    """A stage's input, for each token; the first stage reads token numbers."""
    return 0 if share.is_first else _stage_messages(share) // 2


def _flat_copy(share: Share) -> int:
    """Trainable parameters where the GPU has room for a flat copy beside them; else they go through the host."""
    job = share.job
    effects = (effect for effect in job.runtime.effects if effect.kind == "allocate")
    taken = sum(
        int(e.bytes) for e in effects if (e.book, e.device, e.of) == ("reserve", "gpu", "one") and "init" in e.moments
    )
    held = job.training.precision.compute_bytes * (share.parameters + job.frozen_models + share.trainable)
    return share.trainable if taken + held <= job.cluster.gpu.usable_memory else 0


def _pinned_shards(share: Share) -> int:
    """Every tensor's shard pinned by itself: each takes a power of two of bytes (torch ATen CachingHostAllocator.h)."""
    width, ranks = share.job.training.precision.compute_bytes, share.layout.shards
    shards = ((ceil_divide(tensor.elements, ranks) * width, count) for tensor, count in share.counted)
    return sum((1 << (size - 1).bit_length()) * count for size, count in shards) // width


def _trained_experts(share: Share) -> int:
    """Elements of experts that are trained."""
    return share.experts(trainable=True)


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("one", lambda *_: 1, "one: `bytes` is the amount itself"),
    Quantity("parameters", lambda s, _: s.parameters, "all parameters of the rank's part", experts=Share.experts),
    Quantity("trainable", lambda s, _: s.trainable, "parameters that are trained", experts=_trained_experts),
    Quantity("frozen_models", lambda s, _: s.job.frozen_models, "parameters of models that only run forward"),
    Quantity("unquantized", lambda s, _: s.parameters - s.quantized, "parameters held in the precision of compute"),
    Quantity("quantized", lambda s, _: s.quantized, "parameters of a 4-bit base"),
    Quantity("largest_quantized", lambda s, _: s.largest_quantized, "the largest tensor of a 4-bit base"),
    Quantity("flat_copy", _of(_flat_copy), "what is trained, if the GPU has room for it twice"),
    Quantity(
        "bounced", lambda s, _: s.trainable - _flat_copy(s), "what is trained, if the GPU has no room for it twice"
    ),
    Quantity("pinned_shards", _of(_pinned_shards), "every tensor's shard, rounded up to a power of two of bytes"),
    Quantity("partition", _of(partition), "trainable parameters over the ranks that share them"),
    Quantity("node_partition", _of(_node_partition), "all parameters over the ranks of one node that share them"),
    Quantity("touched", _of(_touched), "elements of the tensors that touch one rank's partition"),
    Quantity("largest_tensor", lambda s, _: s.largest_tensor, "the largest single tensor"),
    Quantity("largest_trainable", lambda s, _: s.largest_trainable, "the largest tensor with a gradient"),
    Quantity("two_largest", lambda s, _: 2 * s.largest_trainable, "twice the largest tensor with a gradient"),
    Quantity("owned_slice", _of(_owned_slice), "the largest slice of one tensor that a rank owns"),
    Quantity("largest_layer", lambda s, _: s.largest_layer, "parameters of the largest layer"),
    Quantity("layer_in_use", _of(buckets.layer_in_use), "what stage 3 keeps gathered of the running layer"),
    Quantity("usual_matrix", lambda s, _: s.usual_matrix, "a usual matrix of the largest layer"),
    Quantity("two_matrices", lambda s, _: 2 * s.usual_matrix, "two usual matrices of the largest layer"),
    Quantity("sharded_tensor", _of(buckets.sharded_tensor), "the largest tensor over the ranks that share it"),
    Quantity("root", lambda s, _: s.root, "parameters outside the layers"),
    Quantity("trained_root", lambda s, _: s.trained_root, "what is trained outside the layers"),
    Quantity("inside", lambda s, _: s.parameters - s.root, "parameters of the layers", experts=Share.experts),
    Quantity("multiplied", lambda s, _: s.multiplied, "matrices of the layers that products in narrow formats read"),
    Quantity("two_layers", lambda s, _: 2 * s.largest_layer, "two of the largest layers"),
    Quantity("trained_layer", lambda s, _: s.largest_trained_layer, "what is trained of the largest layer"),
    Quantity("trained_head", lambda s, _: s.head * s.job.trains_head, "the head, if trained"),
    Quantity("head", lambda s, _: s.head, "the matrix that makes logits"),
    Quantity("prefetch_bucket", buckets.prefetch_bucket, "elements gathered ahead (stage 3)", reads=GATHERING[:1]),
    Quantity("weight_scales", _of(quantized.weight_scales), "scales of all weights in 8 bits"),
    Quantity("exchanged", _of(quantized.exchanged), "gradients that travel in 4 bits"),
    Quantity("exchanged_at_once", _of(quantized.exchanged_at_once), "the mean of those gradients"),
    Quantity("exchange_scales", _of(quantized.exchange_scales), "scales of the gradients that travel in 4 bits"),
    Quantity(
        "exchange_scales_at_once", _of(quantized.exchange_scales_at_once), "scales of the mean of those gradients"
    ),
    Quantity("unexchanged", _of(quantized.unexchanged), "gradients that do not travel in 4 bits where others do"),
    Quantity("unexchanged_at_once", _of(quantized.unexchanged_at_once), "the mean of those gradients"),
    Quantity("feed_forward", lambda s, _: s.largest_block, "the largest dense feed-forward block of a layer"),
    Quantity("owned_part", _of(_owned_part), "what one rank owns where whole tensors are dealt out"),
    Quantity("persistent", lambda s, _: s.persistent, "small parameters kept whole (stage 3)"),
    Quantity(
        "kept_gradients",
        _of(_kept_gradients),
        "parameters whose gradients exist at the first recomputation",
        _recomputed_parameters,
    ),  # fmt: skip
    Quantity("all_reduce_bucket", lambda s, _: min(s.trainable, 500_000_000), "stage 0 bucket"),
    Quantity("swap_buffer", lambda s, _: s.job.swap_buffer_size, "elements of one NVMe parameter buffer"),
    Quantity("tied_gradient", lambda s, _: s.tied_gradient, "second gradient of a tied embedding"),
    Quantity("stage_messages", _of(_stage_messages), "a stage's input and its output's gradient", per_token=True),
    Quantity(
        "stage_output", _of(_stage_output), "outputs of the micro-batches under way", per_token=True, under_way=True
    ),
    Quantity("stage_input", _of(_stage_input), "inputs of the micro-batches under way", per_token=True, under_way=True),
    *_reading(
        REDUCING,
        ("after_first_reduction", buckets.after_first_reduction, "what is trained without the first reduction's part"),
        ("split_bucket", buckets.split_bucket, "the largest reduction whose gradients several ranks own"),
        ("split_tensor", buckets.split_tensor, "the largest gradient, if larger than a bucket and a partition"),
        ("copied_bucket", buckets.copied_bucket, "the largest reduction of more than one gradient"),
        ("unreduced", buckets.unreduced, "gradients that stage 3 has not reduced yet"),
        ("reduce_bucket", buckets.reduce_bucket, "elements of the gradient bucket"),
        ("reduced_at_once", buckets.reduced_at_once, "what one reduction carries: the bucket, or one larger matrix"),
        ("unbucketed", buckets.unbucketed, "the largest gradient, if larger than a bucket"),
    ),
    *_reading(
        GATHERING,
        ("gathered", buckets.gathered, "what stage 3 holds gathered in the middle of a pass"),
        (
            "gathered_together",
            buckets.gathered_together,
            "what one call of stage 3 gathers at most, one matrix too much",
        ),
        (
            "gathered_at_once",
            buckets.gathered_at_once,
            "what one gather carries: the prefetch bucket, or a larger matrix",
        ),
        ("scales_at_once", buckets.scales_at_once, "scales of the weights that one gather carries"),
        ("gathered_ahead", buckets.gathered_ahead, "what one call of stage 3 gathers ahead, if anything"),
        ("gathered_late", buckets.gathered_late, "what of a matrix waits at the loss, where the head is gathered too"),
    ),
    *_reading(
        UPDATING,
        ("sub_group", buckets.sub_group, "elements of one optimizer sub-group (stage 3)"),
        ("further_sub_groups", buckets.further_sub_groups, "sub-groups beyond those of the size a job has by itself"),
    ),
)
BY_NAME: Mapping[str, Quantity] = {quantity.name: quantity for quantity in QUANTITIES}
