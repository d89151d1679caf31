"""Named quantities of elements that effects multiply: how many parameters, the size of a bucket, of a partition.

Each is a function of the job and of a few choices (its scope), in elements on one rank. The registry is explicit;
catalogs can use no other names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from planner.job import Job
from planner.plan import layout_of
from planner.terms import Values


@dataclass(frozen=True)
class Quantity:
    """Elements on one rank: `body` over the values of `scope`, plus `slopes` elements per unit of a measure.

    `meaning` is shown in the docs.
    """

    name: str
    scope: tuple[str, ...]
    body: Callable[[Job, Values], int]
    meaning: str
    slopes: Callable[[Job], Mapping[str, int]] = lambda _: {}


def ceil_divide(number: int, divisor: int) -> int:
    """`number` over `divisor`, rounded up."""
    return -(-number // divisor)


def shard_ranks(values: Values) -> int:
    """Ranks that share one copy of the model states: data times sequence parallel ranks."""
    layout = layout_of(values)
    return layout.data * layout.sequence


def _partition(job: Job, values: Values) -> int:
    """Trainable parameters over the ranks that share them, padded up to a whole number each."""
    return ceil_divide(job.trainable_parameters, shard_ranks(values))


def _touched(job: Job, values: Values) -> int:
    """Largest number of elements in the parameters that touch one rank's partition of the flat buffer."""
    return touched_elements(job.tensor_sizes, shard_ranks(values))


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


def _owned_slice(job: Job, values: Values) -> int:
    """The largest slice of a single tensor that one rank owns."""
    return min(job.largest_trainable, _partition(job, values))


def _sub_group(job: Job, values: Values) -> int:
    """Elements of one optimizer sub-group (stage 3), never more than the partition."""
    return min(job.sub_group_size, _partition(job, values))


def _sharded_tensor(job: Job, values: Values) -> int:
    """The largest tensor over the ranks that share it."""
    return ceil_divide(job.largest_trainable, shard_ranks(values))


def _kept_gradients(job: Job, values: Values) -> int:
    """Parameters outside checkpointed layers whose gradients exist when the first of those is recomputed.

    With nothing recomputed: all but the input embedding, whose gradient comes last. Slopes take the rest away.
    """
    return max(0, job.trainable_parameters - job.embedding_parameters)


def _recomputed_parameters(job: Job) -> Mapping[str, int]:
    """Trainable parameters of one checkpointed layer by the measure that counts such layers; gradients to come."""
    share = Fraction(job.trainable_parameters, job.architecture.parameters)
    return {name: -int(kind.parameters * share) for name, kind in job.recomputed_kinds.items()}


def _matrix(job: Job) -> int:
    """Elements of a usual matrix of the largest layer: what is larger than a bucket is gathered and reduced whole."""
    kind = max((kind for kind, _ in job.kind_counts), key=lambda kind: kind.parameters)
    matrices = sum(len(tensor.shape) > 1 for tensor in kind.tensors)
    return kind.parameters // max(1, matrices)


def _one(job: Job, values: Values) -> int:
    """A plain number of bytes."""
    return 1


LAYOUT = ("layout",)
QUANTITIES: tuple[Quantity, ...] = (
    Quantity("one", (), _one, "one: `bytes` is the amount itself"),
    Quantity("parameters", (), lambda job, _: job.architecture.parameters, "all parameters of the model"),
    Quantity("trainable", (), lambda job, _: job.trainable_parameters, "parameters that are trained"),
    Quantity(
        "unquantized",
        (),
        lambda job, _: job.architecture.parameters - job.quantized_parameters,
        "parameters held in the precision of compute",
    ),  # fmt: skip
    Quantity("quantized", (), lambda job, _: job.quantized_parameters, "parameters of a 4-bit base"),
    Quantity("largest_quantized", (), lambda job, _: job.largest_quantized, "the largest tensor of a 4-bit base"),
    Quantity("partition", LAYOUT, _partition, "trainable parameters over the ranks that share them"),
    Quantity("touched", LAYOUT, _touched, "elements of the tensors that touch one rank's partition"),
    Quantity("largest_tensor", (), lambda job, _: job.architecture.largest_tensor, "the largest single tensor"),
    Quantity("largest_trainable", (), lambda job, _: job.largest_trainable, "the largest tensor with a gradient"),
    Quantity("owned_slice", LAYOUT, _owned_slice, "the largest slice of one tensor that a rank owns"),
    Quantity("largest_layer", (), lambda job, _: job.architecture.largest_layer, "parameters of the largest layer"),
    Quantity("sharded_tensor", LAYOUT, _sharded_tensor, "the largest tensor over the ranks that share it"),
    Quantity("root", (), lambda job, _: job.root_parameters, "parameters outside the layers"),
    Quantity(
        "inside",
        (),
        lambda job, _: job.architecture.parameters - job.root_parameters,
        "parameters of the layers",
    ),  # fmt: skip
    Quantity("two_layers", (), lambda job, _: 2 * job.architecture.largest_layer, "two of the largest layers"),
    Quantity("trained_layer", (), lambda job, _: job.largest_trained_layer, "what is trained of the largest layer"),
    Quantity("trained_head", (), lambda job, _: job.head_parameters * job.trains_embedding, "the head, if trained"),
    Quantity("head", (), lambda job, _: job.head_parameters, "the matrix that makes logits"),
    Quantity("reduce_bucket", (), lambda job, _: job.reduce_bucket_size, "elements of the gradient bucket"),
    Quantity("prefetch_bucket", (), lambda job, _: job.prefetch_bucket_size, "elements gathered ahead (stage 3)"),
    Quantity(
        "gathered_at_once",
        (),
        lambda job, _: max(job.prefetch_bucket_size, _matrix(job)),
        "what one gather of stage 3 carries: the prefetch bucket, or one larger matrix",
    ),  # fmt: skip
    Quantity(
        "reduced_at_once",
        (),
        lambda job, _: max(job.reduce_bucket_size, _matrix(job)),
        "what one reduction carries: the bucket, or one larger matrix",
    ),  # fmt: skip
    Quantity("persistent", (), lambda job, _: job.persistent_parameters, "small parameters kept whole (stage 3)"),
    Quantity("sub_group", LAYOUT, _sub_group, "elements of one optimizer sub-group (stage 3)"),
    Quantity(
        "kept_gradients",
        (),
        _kept_gradients,
        "parameters whose gradients exist at the first recomputation",
        _recomputed_parameters,
    ),  # fmt: skip
    Quantity("all_reduce_bucket", (), lambda job, _: min(job.trainable_parameters, 500_000_000), "stage 0 bucket"),
    Quantity("swap_buffer", (), lambda job, _: job.swap_buffer_size, "elements of one NVMe parameter buffer"),
    Quantity("tied_gradient", (), lambda job, _: job.tied_gradient_elements, "second gradient of a tied embedding"),
)
BY_NAME: Mapping[str, Quantity] = {quantity.name: quantity for quantity in QUANTITIES}
