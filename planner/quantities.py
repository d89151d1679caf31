"""Named quantities of elements that effects multiply: how many parameters, the size of a bucket, of a partition.

Each is a function of one rank's share of the model (the layout decides it, so every scope is the layout), in elements
on one rank. The registry is explicit; catalogs can use no other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from planner import quantized_exchange as quantized
from planner.plan import layout_of
from planner.share import Share, node_shards
from planner.terms import Values


@dataclass(frozen=True)
class Quantity:
    """Elements on one rank: `body`, plus `slopes` elements per unit of a measure.

    `experts` counts those of them that expert-parallel ranks do not share: they are divided over fewer ranks.
    With `per_token` it counts elements for each token of a rank's micro-batch, with `under_way` for each micro-batch
    whose backward is still to come at a pipeline stage. `meaning` is shown in the docs.
    """

    name: str
    body: Callable[[Share], int]
    meaning: str
    slopes: Callable[[Share], Mapping[str, int]] = lambda _: {}
    experts: Callable[[Share], int] = lambda _: 0
    per_token: bool = False
    under_way: bool = False

    def per_copy(self, share: Share) -> int:
        """Elements of which each rank that shares a copy of the states has its part: experts count once per copy."""
        expert = share.layout.expert
        return self.body(share) + ((expert - 1) * self.experts(share) if expert > 1 else 0)


def ceil_divide(number: int, divisor: int) -> int:
    """`number` over `divisor`, rounded up."""
    return -(-number // divisor)


def shard_ranks(values: Values) -> int:
    """Ranks that share one copy of the model states."""
    return layout_of(values).shards


def _partition(share: Share) -> int:
    """Trainable parameters over the ranks that share them, padded up to a whole number each."""
    experts = share.experts(trainable=True) * (share.layout.expert - 1)
    return ceil_divide(share.trainable + experts, share.layout.shards)


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


@lru_cache(maxsize=4096)
def reductions(sizes: tuple[tuple[int, int], ...], bucket: int) -> tuple[tuple[int, int, int], ...]:
    """What each reduction carries, from the last tensor to the first: where it begins and ends, and how many tensors.

    A bucket is reduced when the next gradient does not fit; a gradient larger than a bucket goes alone.
    Example: tensors 6, 2, 4 and a bucket of 7: 4 and 2 fit, then 6: (6, 12, 2), (0, 6, 1).
    """
    found: list[tuple[int, int, int]] = []
    start = end = sum(size * count for size, count in sizes)
    tensors = 0
    for size, count in reversed(sizes):
        for _ in range(count):
            if tensors and end - start + size > bucket:
                found.append((start, end, tensors))
                end, tensors = start, 0
            start, tensors = start - size, tensors + 1
    return (*found, (start, end, tensors)) if tensors else tuple(found)


def _after_first_reduction(share: Share) -> int:
    """What is trained without what the first reduction carries, whose gradients were moved into the bucket."""
    first = reductions(share.sizes, share.job.reduce_bucket_size)[:1]
    return share.trainable - sum(end - start for start, end, _ in first)


def _split_bucket(share: Share) -> int:
    """The largest reduction whose gradients several ranks own; those of one rank are reduced where they are."""
    ranks, part = share.layout.shards, _partition(share)
    if ranks == 1 or not share.sizes:
        return 0
    found = reductions(share.sizes, share.job.reduce_bucket_size)
    return max((end - start for start, end, _ in found if start // part != (end - 1) // part), default=0)


def _split_tensor(share: Share) -> int:
    """The largest tensor with a gradient where it is larger than a bucket and than what one rank owns."""
    size = share.largest_trainable
    return size if size > max(share.job.reduce_bucket_size, _partition(share)) else 0


def _copied_bucket(share: Share) -> int:
    """The largest reduction of more than one gradient: each of them is added to the partition on its own."""
    found = reductions(share.sizes, share.job.reduce_bucket_size) if share.layout.shards > 1 else ()
    several = max((end - start for start, end, tensors in found if tensors > 1), default=0)
    return max(several, _split_bucket(share))


def _owned_slice(share: Share) -> int:
    """The largest slice of a single tensor that one rank owns."""
    return min(share.largest_trainable, _partition(share))


def _sub_group(share: Share) -> int:
    """Elements of one optimizer sub-group (stage 3), never more than the partition."""
    return min(share.job.sub_group_size, _partition(share))


def _sharded_tensor(share: Share) -> int:
    """The largest tensor over the ranks that share it."""
    return ceil_divide(share.largest_trainable, share.layout.shards)


def _layer_in_use(share: Share) -> int:
    """The running layer; of one larger than the reuse distance that distance and the matrix in use."""
    return min(share.largest_layer, share.job.reuse_distance + share.largest_tensor)


def _gathered(share: Share) -> int:
    """What stage 3 holds gathered: it gathers ahead up to the limit on live parameters, and over it by one matrix."""
    job = share.job
    ahead = job.live_parameters + share.usual_matrix if job.prefetch_bucket_size else 0
    return min(share.parameters, max(_layer_in_use(share), ahead))


def _gathered_together(share: Share) -> int:
    """The prefetch bucket and the matrix that crosses its end."""
    return share.job.prefetch_bucket_size + share.usual_matrix


def _unreduced(share: Share) -> int:
    """A copy of the full bucket, or the gradient that no bucket holds, and the gradient that comes next."""
    return max(share.job.reduce_bucket_size, share.largest_trainable) + share.usual_matrix


def _kept_gradients(share: Share) -> int:
    """Parameters outside checkpointed layers whose gradients exist when the first of those is recomputed.

    With nothing recomputed: all but the input embedding, whose gradient comes last. Slopes take the rest away.
    """
    return max(0, share.trainable - share.embedding)


def _recomputed_parameters(share: Share) -> Mapping[str, int]:
    """Trainable parameters of one checkpointed layer by the measure that counts such layers; gradients to come."""
    part = Fraction(share.trainable, share.parameters or 1)
    return {name: -int(elements * part) for name, elements in share.recomputed.items()}


def _gathered_at_once(share: Share) -> int:
    """What one gather of stage 3 carries: the prefetch bucket, or one larger matrix."""
    return max(share.job.prefetch_bucket_size, share.usual_matrix)


def _scales_at_once(share: Share) -> int:
    """Scales of the 8-bit weights that one gather of stage 3 carries."""
    return ceil_divide(_gathered_at_once(share), quantized.LARGEST_GROUP)


def _reduced_at_once(share: Share) -> int:
    """What one reduction carries: the bucket, or one larger matrix."""
    return max(share.job.reduce_bucket_size, share.usual_matrix)


def _owned_part(share: Share) -> int:
    """What one rank updates where whole tensors are dealt out to ranks: never less than a usual matrix."""
    return max(_partition(share), share.usual_matrix)


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
    Quantity("one", lambda _: 1, "one: `bytes` is the amount itself"),
    Quantity("parameters", lambda s: s.parameters, "all parameters of the rank's part", experts=Share.experts),
    Quantity("trainable", lambda s: s.trainable, "parameters that are trained", experts=_trained_experts),
    Quantity("frozen_models", lambda s: s.job.frozen_models, "parameters of models that only run forward"),
    Quantity("unquantized", lambda s: s.parameters - s.quantized, "parameters held in the precision of compute"),
    Quantity("quantized", lambda s: s.quantized, "parameters of a 4-bit base"),
    Quantity("largest_quantized", lambda s: s.largest_quantized, "the largest tensor of a 4-bit base"),
    Quantity("flat_copy", _flat_copy, "what is trained, if the GPU has room for it twice"),
    Quantity("bounced", lambda s: s.trainable - _flat_copy(s), "what is trained, if the GPU has no room for it twice"),
    Quantity("pinned_shards", _pinned_shards, "every tensor's shard, rounded up to a power of two of bytes"),
    Quantity("partition", _partition, "trainable parameters over the ranks that share them"),
    Quantity("node_partition", _node_partition, "all parameters over the ranks of one node that share them"),
    Quantity("touched", _touched, "elements of the tensors that touch one rank's partition"),
    Quantity("largest_tensor", lambda s: s.largest_tensor, "the largest single tensor"),
    Quantity("largest_trainable", lambda s: s.largest_trainable, "the largest tensor with a gradient"),
    Quantity("two_largest", lambda s: 2 * s.largest_trainable, "twice the largest tensor with a gradient"),
    Quantity("after_first_reduction", _after_first_reduction, "what is trained without the first reduction's part"),
    Quantity("split_bucket", _split_bucket, "the largest reduction whose gradients several ranks own"),
    Quantity("split_tensor", _split_tensor, "the largest gradient, if larger than a bucket and a partition"),
    Quantity("copied_bucket", _copied_bucket, "the largest reduction of more than one gradient"),
    Quantity("owned_slice", _owned_slice, "the largest slice of one tensor that a rank owns"),
    Quantity("largest_layer", lambda s: s.largest_layer, "parameters of the largest layer"),
    Quantity("layer_in_use", _layer_in_use, "what stage 3 keeps gathered of the running layer"),
    Quantity("gathered", _gathered, "what stage 3 holds gathered in the middle of a pass"),
    Quantity("gathered_together", _gathered_together, "what one call of stage 3 gathers at most, one matrix too much"),
    Quantity("usual_matrix", lambda s: s.usual_matrix, "a usual matrix of the largest layer"),
    Quantity("two_matrices", lambda s: 2 * s.usual_matrix, "two usual matrices of the largest layer"),
    Quantity("unreduced", _unreduced, "gradients that stage 3 has not reduced yet"),
    Quantity("sharded_tensor", _sharded_tensor, "the largest tensor over the ranks that share it"),
    Quantity("root", lambda s: s.root, "parameters outside the layers"),
    Quantity("trained_root", lambda s: s.trained_root, "what is trained outside the layers"),
    Quantity("inside", lambda s: s.parameters - s.root, "parameters of the layers", experts=Share.experts),
    Quantity("multiplied", lambda s: s.multiplied, "matrices of the layers that products in narrow formats read"),
    Quantity("two_layers", lambda s: 2 * s.largest_layer, "two of the largest layers"),
    Quantity("trained_layer", lambda s: s.largest_trained_layer, "what is trained of the largest layer"),
    Quantity("trained_head", lambda s: s.head * s.job.trains_head, "the head, if trained"),
    Quantity("head", lambda s: s.head, "the matrix that makes logits"),
    Quantity("reduce_bucket", lambda s: s.job.reduce_bucket_size, "elements of the gradient bucket"),
    Quantity("prefetch_bucket", lambda s: s.job.prefetch_bucket_size, "elements gathered ahead (stage 3)"),
    Quantity("gathered_at_once", _gathered_at_once, "what one gather carries: the prefetch bucket, or a larger matrix"),
    Quantity("reduced_at_once", _reduced_at_once, "what one reduction carries: the bucket, or one larger matrix"),
    Quantity("weight_scales", quantized.weight_scales, "scales of all weights in 8 bits"),
    Quantity("scales_at_once", _scales_at_once, "scales of the weights that one gather carries"),
    Quantity("exchanged", quantized.exchanged, "gradients that travel in 4 bits"),
    Quantity("exchanged_at_once", quantized.exchanged_at_once, "the mean of those gradients"),
    Quantity("exchange_scales", quantized.exchange_scales, "scales of the gradients that travel in 4 bits"),
    Quantity("exchange_scales_at_once", quantized.exchange_scales_at_once, "scales of the mean of those gradients"),
    Quantity("unexchanged", quantized.unexchanged, "gradients that do not travel in 4 bits where others do"),
    Quantity("unexchanged_at_once", quantized.unexchanged_at_once, "the mean of those gradients"),
    Quantity("unbucketed", quantized.unbucketed, "the largest gradient, if larger than a bucket"),
    Quantity("feed_forward", lambda s: s.largest_block, "the largest dense feed-forward block of a layer"),
    Quantity("owned_part", _owned_part, "what one rank owns where whole tensors are dealt out"),
    Quantity("persistent", lambda s: s.persistent, "small parameters kept whole (stage 3)"),
    Quantity("sub_group", _sub_group, "elements of one optimizer sub-group (stage 3)"),
    Quantity(
        "kept_gradients",
        _kept_gradients,
        "parameters whose gradients exist at the first recomputation",
        _recomputed_parameters,
    ),  # fmt: skip
    Quantity("all_reduce_bucket", lambda s: min(s.trainable, 500_000_000), "stage 0 bucket"),
    Quantity("swap_buffer", lambda s: s.job.swap_buffer_size, "elements of one NVMe parameter buffer"),
    Quantity("tied_gradient", lambda s: s.tied_gradient, "second gradient of a tied embedding"),
    Quantity("stage_messages", _stage_messages, "a stage's input and its output's gradient", per_token=True),
    Quantity("stage_output", _stage_output, "outputs of the micro-batches under way", per_token=True, under_way=True),
    Quantity("stage_input", _stage_input, "inputs of the micro-batches under way", per_token=True, under_way=True),
)
BY_NAME: Mapping[str, Quantity] = {quantity.name: quantity for quantity in QUANTITIES}
