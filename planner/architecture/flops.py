"""Forward FLOPs of one token, by layer kind: matrix products and attention apart, since they run at different rates.

One multiply and one add are two FLOP. Attention is causal: a token meets half of the sequence on average; with a
window, the whole window but for the first tokens of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.architecture.shape import Architecture, Attention, LayerKind, Tensor


@dataclass(frozen=True)
class LayerFlops:
    """Forward FLOP per token of one layer: `matmul_per_token` with weights, `attention_per_token` between tokens."""

    matmul_per_token: int
    attention_per_token: int


@dataclass(frozen=True)
class ModelFlops:
    """`layers` aligned with the architecture's groups, vision towers left out; the output projection apart.

    `parameters_active`: parameters in matrix products that one token meets.
    """

    layers: tuple[LayerFlops, ...]
    head_per_token: int
    parameters_active: int


def model_flops(architecture: Architecture, sequence_length: int) -> ModelFlops:
    """Forward FLOP per token of every layer group and of the output projection."""
    groups = [group for group in architecture.layers if group.tower != "vision"]
    layers = tuple(LayerFlops(2 * active(g.kind), _between_tokens(g.kind, sequence_length)) for g in groups)
    head = architecture.vocabulary * architecture.hidden
    inside = sum(active(group.kind) * group.count for group in groups)
    return ModelFlops(layers, 2 * head, inside + head)


def active(kind: LayerKind) -> int:
    """Elements of the weight matrices of a layer that one token meets; of the experts those it is routed to."""
    return sum(_met(tensor, kind) for tensor in kind.tensors)


def _met(tensor: Tensor, kind: LayerKind) -> int:
    """Elements of one tensor that a token is multiplied with."""
    if len(tensor.shape) < 2:
        return 0
    block = kind.feed_forward
    if tensor.role == "expert" and block is not None and block.experts:
        return tensor.elements * block.experts_per_token // block.experts
    return tensor.elements


def _between_tokens(kind: LayerKind, sequence_length: int) -> int:
    """FLOP of scores and weighted sum of all attention blocks, and of a recurrent mixer's state update."""
    blocks = [block for block in (kind.attention, kind.cross_attention) if block is not None]
    recurrence = kind.recurrence
    states = 6 * recurrence.inner * recurrence.state if recurrence else 0
    return sum(_attention(block, sequence_length) for block in blocks) + states


def _attention(attention: Attention, sequence_length: int) -> int:
    """2 FLOP for each element of scores and of the weighted sum, over the tokens that a token meets."""
    query = attention.nope_dim + attention.rotary_dim if attention.kind == "mla" else attention.head_dim
    value = attention.value_dim or attention.head_dim
    return attention.heads * (query + value) * _met_twice(attention, sequence_length)


def _met_twice(attention: Attention, sequence_length: int) -> int:
    """Twice the tokens that a token meets on average: causal over S tokens with a window of W, (W - W²/2S) x 2."""
    window = min(attention.window or sequence_length, sequence_length)
    if attention.cross or not attention.causal:
        return 2 * window
    return 2 * window - window * window // sequence_length
