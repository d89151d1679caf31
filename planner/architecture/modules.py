"""What a layer keeps no longer where Megatron makes modules of it again in backward (selective recomputation).

Names are those of `--recompute-modules`. `layernorm`, `moe_act` and `mla_up_proj` discard what a module gives to the
next one, which is made again when that one's backward begins; `mlp` and `shared_experts` are checkpoints around a
module, whose input is kept anyway (megatron/core/transformer/transformer_config.py, recompute_modules;
megatron/core/tensor_parallel/random.py, CheckpointWithoutOutput; NVIDIA/Megatron-LM@d98e8a6).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.architecture.activation_feed_forward import INPUTS, feed_forward_stored, routed_rows, shared_bytes
from planner.architecture.activation_norm import reads_stream
from planner.architecture.amount import ActivationSettings
from planner.architecture.shape import LayerKind

Bytes = tuple[int, int]
NOTHING: Bytes = (0, 0)


def discarded(site: str, kind: LayerKind, hidden: int, settings: ActivationSettings) -> int:
    """Bytes per token, on one tensor-parallel rank, that a site keeps no longer.

    They exist while the site runs, forward and backward. What is as wide as the stream is divided as the stream is.
    """
    found = [DISCARDED[name](site, kind, hidden, settings) for name in settings.modules]
    inner, stream = sum(inner for inner, _ in found), sum(stream for _, stream in found)
    return inner // settings.tensor_parallel + stream // settings.stream_parts


def norms_apart(kind: LayerKind) -> tuple[bool, bool]:
    """Whether the norm before attention, and that before the feed-forward block, is a module of its own.

    Others are one with the product that follows (megatron/core/models/gpt/gpt_layer_specs.py), which keeps their
    results: latent attention and mixtures of experts have no single such product.
    """
    attention, block = kind.attention, kind.feed_forward
    return attention is not None and attention.kind == "mla", block is not None and block.experts > 0


def _norm_outputs(site: str, kind: LayerKind, hidden: int, settings: ActivationSettings) -> Bytes:
    first, second = norms_apart(kind)
    apart = first if site == "attention" else second and site == "feed_forward"
    return 0, settings.element * hidden * apart


def _expert_activations(site: str, kind: LayerKind, hidden: int, settings: ActivationSettings) -> Bytes:
    """What the second product of the experts reads."""
    block = kind.feed_forward
    if site != "feed_forward" or block is None or not block.experts:
        return NOTHING
    return settings.kept_element * routed_rows(block) * block.width, 0


def _latent_projections(site: str, kind: LayerKind, hidden: int, settings: ActivationSettings) -> Bytes:
    """Normed latents, and queries, keys and values made of them; the keys' rotated part, one for all heads, is kept."""
    block = kind.attention
    if site != "attention" or block is None or block.kind != "mla":
        return NOTHING
    key = block.nope_dim + block.rotary_dim
    made = block.heads * (2 * key + block.nope_dim + block.value_dim)
    return settings.element * (block.query_latent + block.key_value_latent + made - block.rotary_dim), 0


def _shared_experts(site: str, kind: LayerKind, hidden: int, settings: ActivationSettings) -> Bytes:
    block = kind.feed_forward
    return (shared_bytes(block, settings), 0) if site == "feed_forward" and block is not None else NOTHING


def _dense_block(site: str, kind: LayerKind, hidden: int, settings: ActivationSettings) -> Bytes:
    """All of a dense block: its norm is inside, so that only the stream is left, which that norm keeps.

    A block without a norm of its own before it keeps its input: the stream itself, or what attention reads too.
    """
    block = kind.feed_forward
    if site != "feed_forward" or block is None or block.experts:
        return NOTHING
    normed = settings.input_bytes(INPUTS if block.gated else ("up",), fused=not block.gated) * hidden
    inner = feed_forward_stored(block, hidden, settings).per_token - normed
    return inner, 0 if kind.parallel or reads_stream(kind) else normed


DISCARDED: Mapping[str, Callable[[str, LayerKind, int, ActivationSettings], Bytes]] = {
    "layernorm": _norm_outputs,
    "moe_act": _expert_activations,
    "mla_up_proj": _latent_projections,
    "shared_experts": _shared_experts,
    "mlp": _dense_block,
}
