"""Layer kinds made of traced tensors alone: roles from names, and experts from FLOP."""

from __future__ import annotations

import re
from collections.abc import Iterable

from planner.architecture.overlay_file import OverlayLayer, OverlayTensor
from planner.architecture.shape import FeedForward, LayerKind, Tensor

# Words in a tensor's name by the role they tell, looked for in this order; shared experts are dense blocks.
ROLE_WORDS = (
    ("mlp", ("shared_expert", "shared_mlp")),
    ("expert", ("experts", "expert_")),
    ("router", ("router", "gate.weight", "gate.wg")),
    ("norm", ("norm", "ln_", "ln1", "ln2")),
    ("attention", ("attn", "attention", "q_proj", "k_proj", "v_proj", "o_proj", "qkv")),
    ("mixer", ("mixer", "mamba", "ssm", "conv", "time_mix", "rglru", "recurrent")),
    ("mlp", ("mlp", "ffn", "feed_forward", "fc1", "fc2", "fc_", "channel_mix", "up_proj", "down_proj", "gate_proj")),
)  # fmt: skip
POSITION_WORDS = ("position", "wpe")
HEAD_WORDS = ("head", "embed_out", "output")
_NUMBERED = re.compile(r"\bexperts\.\d+\.")


def layer_kind(layer: OverlayLayer, hidden: int) -> LayerKind:
    """The kind of a traced layer. What attention and mixers are made of stays open; experts that a token meets follow
    from the FLOP of its products."""
    tensors = tuple(_stacked(layer.tensors))
    norms = [tensor for tensor in tensors if tensor.role == "norm" and tensor.shape == (hidden,)]
    biased = any(tensor.name.endswith("bias") for tensor in norms)
    return LayerKind(
        name=layer.kind, tensors=tensors, feed_forward=_experts(layer, tensors, hidden),
        norm="layer_norm" if biased else "rms", norms=sum(not tensor.name.endswith("bias") for tensor in norms),
    )


def outside_tensors(tensors: Iterable[OverlayTensor], vocabulary: int) -> tuple[Tensor, ...]:
    """Embeddings, final norm, head and whatever else stands outside the layers."""
    return tuple(Tensor(tensor.name, tensor.shape, _outside_role(tensor, vocabulary)) for tensor in tensors)


def _outside_role(tensor: OverlayTensor, vocabulary: int) -> str:
    name, tables = tensor.name.lower(), len(tensor.shape) == 2 and tensor.shape[0] >= vocabulary
    if any(word in name for word in POSITION_WORDS):
        return "positions"
    if any(word in name for word in HEAD_WORDS) and tensor.shape[0] == vocabulary:
        return "head"
    return "embedding" if tables else "norm" if len(tensor.shape) == 1 else "other"


def _role(tensor: OverlayTensor) -> str:
    name = tensor.name.lower()
    return next((role for role, words in ROLE_WORDS if any(word in name for word in words)), "other")


def _stacked(tensors: Iterable[OverlayTensor]) -> list[Tensor]:
    """Tensors with their roles; those of numbered experts as one stack."""
    found: dict[str, list[OverlayTensor]] = {}
    for tensor in tensors:
        found.setdefault(_NUMBERED.sub("experts.", tensor.name), []).append(tensor)
    return [
        Tensor(name, same[0].shape if name == same[0].name else (len(same), *same[0].shape), _role(same[0]))
        for name, same in found.items()
    ]


def _experts(layer: OverlayLayer, tensors: tuple[Tensor, ...], hidden: int) -> FeedForward | None:
    """A block of experts: as many meet a token as make up the products that the other matrices leave."""
    stacks = [tensor for tensor in tensors if tensor.role == "expert" and len(tensor.shape) == 3]
    if not stacks:
        return None
    count, stacked = stacks[0].shape[0], sum(tensor.elements for tensor in stacks)
    dense = sum(tensor.elements for tensor in tensors if len(tensor.shape) == 2)
    met = round((layer.matmul_flops_per_token / 2 - dense) / (stacked / count))
    width = max(1, stacked // (3 * count * hidden))
    return FeedForward(width, gated=True, experts=count, experts_per_token=min(max(met, 1), count))
