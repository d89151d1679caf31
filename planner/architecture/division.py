"""How one rank's part of a model's tensors follows from tensor and expert parallelism.

Column- and row-parallel matrices, a vocabulary-parallel embedding and head (Shoeybi et al. 2019, arXiv:1909.08053,
section 3), whole experts to expert-parallel ranks (Lepikhin et al. 2020, arXiv:2006.16668). Norms, routers, learned
positions and the latent projections of multi-head latent attention stay whole (megatron-core: TELinear in duplicated
mode). The bias after a row-parallel matrix, one vector per block, is counted as divided.
"""

from __future__ import annotations

from dataclasses import replace

from planner.architecture.shape import Attention, LayerKind, Tensor

WHOLE_ROLES = ("norm", "router", "positions", "other")
# Down-projections to a latent that every head reads.
LATENTS = ("kv_a_proj", "q_a_proj")
KEYS_AND_VALUES = ("k_proj", "v_proj", "key", "value")
FUSED = ("qkv", "query_key_value", "c_attn", "Wqkv", "qkv_proj")


def divided_kind(kind: LayerKind, tensor_ranks: int, expert_ranks: int) -> LayerKind:
    """The layer as one rank holds it: its tensors' shapes divided, everything else as it is."""
    if tensor_ranks == expert_ranks == 1:
        return kind
    return replace(kind, tensors=tuple(divided(tensor, tensor_ranks, expert_ranks, kind) for tensor in kind.tensors))


def divided(tensor: Tensor, tensor_ranks: int, expert_ranks: int, kind: LayerKind | None = None) -> Tensor:
    """One rank's part of a tensor; the dimension that is cut is rounded up."""
    if tensor.role == "expert":
        return _cut(_cut(tensor, expert_ranks), tensor_ranks, axis=len(tensor.shape) - 1)
    if tensor.role in WHOLE_ROLES or any(name in tensor.name for name in LATENTS):
        return tensor
    attention = kind.attention if kind is not None else None
    if attention is not None and tensor.role == "attention" and attention.kind == "gqa":
        return _attention_part(tensor, attention, tensor_ranks)
    return _cut(tensor, tensor_ranks)


def _attention_part(tensor: Tensor, attention: Attention, ranks: int) -> Tensor:
    """Query, key, value and output matrices by heads; fewer key and value heads than ranks are repeated."""
    own = min(ranks, attention.kv_heads)
    if any(name in tensor.name for name in FUSED):
        whole = attention.heads + 2 * attention.kv_heads
        kept = -(-attention.heads // ranks) + 2 * -(-attention.kv_heads // own)
        return replace(tensor, shape=(-(-tensor.shape[0] * kept // whole), *tensor.shape[1:]))
    return _cut(tensor, own if any(name in tensor.name for name in KEYS_AND_VALUES) else ranks)


def _cut(tensor: Tensor, ranks: int, axis: int = 0) -> Tensor:
    """The tensor with one dimension divided, rounded up."""
    shape = list(tensor.shape)
    shape[axis] = -(-shape[axis] // ranks)
    return replace(tensor, shape=tuple(shape))
