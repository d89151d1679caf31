"""What the quantized collectives of ZeRO++ carry of a rank's share, in elements; which tensors can take them.

Source: deepspeed 0.19.8 runtime/comm/coalesced_collectives.py (all_to_all_quant_reduce) and
runtime/zero/partition_parameters.py (CUDAQuantizer).
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.architecture.shape import Tensor
from planner.architecture.size import REST
from planner.share import Share

LARGEST_GROUP = 8000  # elements of 8-bit weights under one scale, at most
MULTIPLE = 8  # of which the elements of a shard of 8-bit weights are one


def ragged_tensor(share: Share) -> Tensor | None:
    """A tensor that ranks cannot gather in 8 bits: its equal shards are no multiple of eight; None where all can.

    What no shape holds of a model that only its size describes is no tensor of any model.
    """
    whole = MULTIPLE * share.layout.shards
    found = (tensor for tensor, _ in share.counted if tensor.elements % whole)
    return next((tensor for tensor in found if tensor.name != REST), None)


def _trained(share: Share) -> Iterator[tuple[Tensor, int]]:
    """Tensors with a gradient, with how often they occur."""
    return ((tensor, count) for tensor, count in share.counted if tensor.trainable)


def is_exchanged(share: Share, tensor: Tensor) -> bool:
    """Whether a gradient travels in 4 bits: no vector, and two elements or a multiple of that for each GPU."""
    return len(tensor.shape) > 1 and tensor.elements % (2 * share.job.cluster.gpus) == 0


def exchanged(share: Share) -> int:
    """Elements of gradients that travel in 4 bits."""
    return sum(tensor.elements * count for tensor, count in _trained(share) if is_exchanged(share, tensor))


def exchanged_at_once(share: Share) -> int:
    """Elements of the mean of them: each is exchanged on its own."""
    return -(-exchanged(share) // max(1, _tensors(share, True)))


def exchange_scales(share: Share) -> int:
    """Scales of them: as many as rows or columns, whichever are more, and at least one for each GPU."""
    gpus = share.job.cluster.gpus
    found = ((tensor, count) for tensor, count in _trained(share) if is_exchanged(share, tensor))
    return sum(max(*tensor.shape[:2], gpus) * count for tensor, count in found)


def exchange_scales_at_once(share: Share) -> int:
    """Scales of the mean of them."""
    return -(-exchange_scales(share) // max(1, _tensors(share, True)))


def unexchanged(share: Share) -> int:
    """Elements of the gradients that are reduced as they are."""
    return share.trainable - exchanged(share)


def unexchanged_at_once(share: Share) -> int:
    """Elements of the mean of those: each is reduced on its own."""
    return -(-unexchanged(share) // max(1, _tensors(share, False)))


def weight_scales(share: Share) -> int:
    """Scales of all weights in 8 bits."""
    return -(-share.parameters // LARGEST_GROUP)


def _tensors(share: Share, exchanged: bool) -> int:
    """How many gradients are exchanged in 4 bits, or are not."""
    return sum(count for tensor, count in _trained(share) if is_exchanged(share, tensor) == exchanged)
