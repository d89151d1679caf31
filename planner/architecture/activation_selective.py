"""What a checkpointed layer keeps under selective recomputation: every second matrix product, and attention.

The policy of torchtitan's selective activation checkpointing by operation: results of attention kernels, of
reduce-scatters and of every other plain matrix product are kept, the rest is made again (torchtitan/distributed/
activation_checkpoint.py); counted from torch's selective checkpointing of the Hugging Face model code. In a compiled
layer what backward does not read is no output of the forward graph, also where the policy would keep it (torch 2.13
torch/_functorch/partitioners.py; counted from the graphs of a compiled layer).
"""

from __future__ import annotations

from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.shape import Attention, FeedForward, LayerKind


def selective_amounts(kind: LayerKind, hidden: int, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """(kept beside the layer's input, the part of it that the recomputed set counts too or that is freed by then).

    The first kept product, queries before rotation, stands beside the rotated ones that backward needs.
    """
    unread = int(settings.kernels == "compiled" and _ends_unread(kind))
    products = _products(kind, hidden, settings)
    kept = products[: len(products) - unread : 2]
    results = sum(_attention_result(block, settings) for block in (kind.attention, kind.cross_attention) if block)
    streams = 2 - unread if _scatters(settings) else 0
    scattered = streams * settings.element * hidden // settings.stream_parts
    rotated = kept[0] if kept and kind.attention is not None and kind.attention.rotary_dim else 0
    everything = settings.element * sum(kept) + results + scattered
    return Amount(0, everything), Amount(0, everything - settings.element * rotated)


def kept_share(kind: LayerKind, hidden: int) -> float:
    """Share of a layer's plain matrix products, by FLOP, whose results are kept; those are not made again."""
    sizes = _sizes(kind, hidden)
    total = sum(sizes)
    return sum(sizes[::2]) / total if total else 0.0


def _ends_unread(kind: LayerKind) -> bool:
    """Whether the result of a layer's last plain product is only added to the stream: backward reads neither term."""
    dense = kind.feed_forward is not None and not kind.feed_forward.experts
    return dense and not kind.post_norm


def _scatters(settings: ActivationSettings) -> bool:
    return settings.tensor_parallel > 1 and settings.sequence_parallel


def _products(kind: LayerKind, hidden: int, settings: ActivationSettings) -> list[int]:
    """Widths, on one rank, of the results of a layer's plain matrix products, in forward order.

    What a row-parallel matrix makes is as wide as the stream on every rank.
    """
    parts = settings.tensor_parallel
    return [width if whole else -(-width // parts) for width, whole, _ in _matrices(kind, hidden)]


def _sizes(kind: LayerKind, hidden: int) -> list[int]:
    """FLOP per token, over 2, of a layer's plain matrix products, in forward order."""
    return [width * inner for width, _, inner in _matrices(kind, hidden)]


def _matrices(kind: LayerKind, hidden: int) -> list[tuple[int, bool, int]]:
    """(width of the result, whether row-parallel, width of the input) of the plain matrix products, in order."""
    found: list[tuple[int, bool, int]] = []
    for block in (kind.attention, kind.cross_attention):
        found += _attention_matrices(block, hidden) if block is not None else []
    return found + (_feed_forward_matrices(kind.feed_forward, hidden) if kind.feed_forward is not None else [])


def _attention_matrices(block: Attention, hidden: int) -> list[tuple[int, bool, int]]:
    heads, keys = block.heads * block.head_dim, block.kv_heads * block.head_dim
    if block.kind == "mla":
        key = block.nope_dim + block.rotary_dim
        query = [(block.query_latent, True, hidden)] if block.query_latent else []
        return [
            *query,
            (block.heads * key, False, block.query_latent or hidden),
            (block.key_value_latent + block.rotary_dim, True, hidden),
            (block.heads * (block.nope_dim + block.value_dim), False, block.key_value_latent),
            (hidden, True, block.heads * block.value_dim),
        ]
    inwards = [heads + 2 * keys] if block.fused_qkv else [heads, keys, keys]
    return [*((width, False, hidden) for width in inwards), (hidden, True, heads)]


def _feed_forward_matrices(block: FeedForward, hidden: int) -> list[tuple[int, bool, int]]:
    """A dense block's matrices; of a mixture of experts the router, since experts run as grouped products."""
    if block.experts:
        return [(block.experts, True, hidden)]
    return [(block.width, False, hidden)] * (2 if block.gated else 1) + [(hidden, True, block.width)]


def _attention_result(block: Attention, settings: ActivationSettings) -> int:
    """Output and log-sum-exp of an attention kernel that are kept, in bytes per token."""
    if settings.attention_remade:
        return 0
    width = block.value_dim if block.kind == "mla" else block.head_dim
    return (settings.element * block.heads * width + 4 * block.heads) // settings.tensor_parallel
