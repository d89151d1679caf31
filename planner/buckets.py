"""What buffers of a chosen size hold, and what one message carries with them: bodies of quantities, in elements.

Each takes a rank's share and the values of the choices that its quantity says it reads.
"""

from __future__ import annotations

from functools import lru_cache

from planner import quantized_exchange as quantized
from planner.plan import whole
from planner.share import Share
from planner.terms import Values, ceil_divide

REDUCING = ("reduce_bucket",)
GATHERING = ("prefetch_bucket", "live_parameters")
UPDATING = ("sub_group",)
Sizes = tuple[tuple[int, int], ...]


def partition(share: Share) -> int:
    """Trainable parameters over the ranks that share them, padded up to a whole number each."""
    experts = share.experts(trainable=True) * (share.layout.expert - 1)
    return ceil_divide(share.trainable + experts, share.layout.shards)


# ── reductions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4096)
def reductions(sizes: Sizes, bucket: int) -> tuple[tuple[int, int, int], ...]:
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


def reduce_bucket(_: Share, values: Values) -> int:
    """The bucket itself."""
    return whole(values, "reduce_bucket")


def after_first_reduction(share: Share, values: Values) -> int:
    """What is trained without what the first reduction carries, whose gradients were moved into the bucket."""
    first = reductions(share.sizes, reduce_bucket(share, values))[:1]
    return share.trainable - sum(end - start for start, end, _ in first)


def split_bucket(share: Share, values: Values) -> int:
    """The largest reduction whose gradients several ranks own; those of one rank are reduced where they are."""
    ranks, part = share.layout.shards, partition(share)
    if ranks == 1 or not share.sizes:
        return 0
    found = reductions(share.sizes, reduce_bucket(share, values))
    return max((end - start for start, end, _ in found if start // part != (end - 1) // part), default=0)


def split_tensor(share: Share, values: Values) -> int:
    """The largest tensor with a gradient where it is larger than a bucket and than what one rank owns."""
    size = share.largest_trainable
    return size if size > max(reduce_bucket(share, values), partition(share)) else 0


def copied_bucket(share: Share, values: Values) -> int:
    """The largest reduction of more than one gradient: each of them is added to the partition on its own."""
    found = reductions(share.sizes, reduce_bucket(share, values)) if share.layout.shards > 1 else ()
    several = max((end - start for start, end, tensors in found if tensors > 1), default=0)
    return max(several, split_bucket(share, values))


def unreduced(share: Share, values: Values) -> int:
    """A copy of the full bucket, or the gradient that no bucket holds, and the gradient that comes next."""
    return max(reduce_bucket(share, values), share.largest_trainable) + share.usual_matrix


def unbucketed(share: Share, values: Values) -> int:
    """The largest gradient where no bucket holds it."""
    return share.largest_trainable if share.largest_trainable > reduce_bucket(share, values) else 0


def reduced_at_once(share: Share, values: Values) -> int:
    """What one reduction carries: with the job's own bucket that, or one larger matrix.

    Another bucket makes as many more or fewer reductions as the tensors, one by one, fill more or fewer of it.
    """
    own, asked = share.job.reduce_bucket_size, reduce_bucket(share, values)
    carried = max(own, share.usual_matrix)
    if asked == own:
        return carried
    return _rescaled(carried, len(reductions(share.sizes, own)), len(reductions(share.sizes, asked)))


def _rescaled(carried: int, before: int, now: int) -> int:
    """What a message carries on average where there are `now` in place of `before` of them."""
    return max(1, carried * before // max(1, now))


# ── gathers of stage 3 ───────────────────────────────────────────────────────────────────────────────────────────────


@lru_cache(maxsize=4096)
def gathers(sizes: tuple[int, ...], bucket: int) -> int:
    """How many calls gather tensors of these sizes in order, each taking on tensors until it has the bucket.

    At least one tensor a call. Example: tensors 6, 2, 4 and a bucket of 7: 6 and 2, then 4: 2 calls.
    """
    calls, carried = 0, bucket
    for size in sizes:
        if carried >= bucket:
            calls, carried = calls + 1, 0
        carried += size
    return calls


@lru_cache(maxsize=1024)
def _gathered_tensors(share: Share) -> tuple[int, ...]:
    """Elements of the tensors that are gathered, in order; small ones are kept whole."""
    ordered = (*share.outside, *(tensor for kind in share.held for tensor in kind.tensors))
    limit = share.job.persistence_threshold
    return tuple(tensor.elements for tensor in ordered if tensor.elements > limit)


def _calls(share: Share, bucket: int, live: int) -> int:
    """Calls that gather all of a share, times its parameters.

    Until `live` elements are gathered each call has the bucket; from then on one has what was let go, a tensor.
    """
    tensors, found = _gathered_tensors(share), min(live, share.parameters)
    return found * gathers(tensors, bucket) + (share.parameters - found) * len(tensors)


def prefetch_bucket(share: Share, values: Values) -> int:
    """Elements to gather ahead, never more than the model has."""
    return min(whole(values, "prefetch_bucket"), share.job.architecture.parameters)


def _kept(share: Share) -> int:
    """What stays gathered for its next use: the running layer, within the reuse distance."""
    return min(share.largest_layer, share.job.reuse_distance)


def gathered_ahead(share: Share, values: Values) -> int:
    """What one call gathers ahead: the bucket, or what the limit on live parameters leaves beside the running layer."""
    room = whole(values, "live_parameters") - _kept(share)
    return max(0, min(prefetch_bucket(share, values), room))


def gathered_late(share: Share, values: Values) -> int:
    """What of a matrix finds no room while the head is there too, and is gathered when it is needed.

    Room for the job's own bucket is enough for a larger matrix: the one that crosses its end comes with it.
    """
    room = whole(values, "live_parameters") - _kept(share) - share.head
    needed = min(share.usual_matrix, share.job.prefetch_bucket_size)
    return max(0, needed - max(0, room)) if gathered_ahead(share, values) else 0


def gathered(share: Share, values: Values) -> int:
    """What stage 3 holds gathered: it gathers ahead up to the limit on live parameters, and over it by one matrix."""
    in_use = layer_in_use(share)
    ahead = whole(values, "live_parameters") + share.usual_matrix if whole(values, "prefetch_bucket") else 0
    return min(share.parameters, max(in_use, ahead))


def layer_in_use(share: Share) -> int:
    """The running layer; of one larger than the reuse distance that distance and the matrix in use."""
    return min(share.largest_layer, share.job.reuse_distance + share.largest_tensor)


def gathered_together(share: Share, values: Values) -> int:
    """The prefetch bucket and the matrix that crosses its end."""
    return min(prefetch_bucket(share, values), whole(values, "live_parameters")) + share.usual_matrix


def gathered_at_once(share: Share, values: Values) -> int:
    """What one gather carries: with the job's own bucket and limit that bucket, or one larger matrix.

    Others make as many more or fewer calls as the tensors, one by one, need.
    """
    job, asked, live = share.job, whole(values, "prefetch_bucket"), whole(values, "live_parameters")
    carried = max(job.prefetch_bucket_size, share.usual_matrix)
    if (asked, live) == (job.prefetch_bucket_size, job.live_parameters):
        return carried
    before = _calls(share, job.prefetch_bucket_size, job.live_parameters)
    return _rescaled(carried, before, _calls(share, gathered_ahead(share, values), live))


def scales_at_once(share: Share, values: Values) -> int:
    """Scales of the 8-bit weights that one gather carries."""
    return ceil_divide(gathered_at_once(share, values), quantized.LARGEST_GROUP)


# ── sub-groups of the optimizer ──────────────────────────────────────────────────────────────────────────────────────


def sub_group(share: Share, values: Values) -> int:
    """Elements of the largest optimizer sub-group (stage 3), never more than the partition."""
    return min(max(sub_groups(share, values), default=0), partition(share))


def sub_groups(share: Share, values: Values) -> tuple[int, ...]:
    """Elements of each optimizer sub-group of a rank (stage 3), in order."""
    return shard_groups(share.sizes_in_order, share.layout.shards, whole(values, "sub_group"))


@lru_cache(maxsize=4096)
def shard_groups(sizes: Sizes, ranks: int, asked: int) -> tuple[int, ...]:
    """Elements of groups of which each takes on shards of tensors until it has `asked` or more.

    Source: deepspeed 0.19.8 runtime/zero/stage3.py:1210.
    Example: tensors 6, 2, 4 over 2 ranks are 3, 1, 2; with 4 asked 3 + 1 are a group, then 2; with 2 asked 3, 1 + 2.
    """
    found, group = [], 0
    for size, count in sizes:
        for _ in range(count):
            group += ceil_divide(size, ranks)
            if group >= asked:
                found.append(group)
                group = 0
    return (*found, group) if group else tuple(found)


def sharded_tensor(share: Share) -> int:
    """The largest tensor over the ranks that share it."""
    return ceil_divide(share.largest_trainable, share.layout.shards)


def further_sub_groups(share: Share, values: Values) -> int:
    """Sub-groups beyond those of the job's own size, whose calls are part of what updates were measured to take."""
    own = shard_groups(share.sizes_in_order, share.layout.shards, share.job.sub_group_size)
    return max(0, len(sub_groups(share, values)) - len(own))
