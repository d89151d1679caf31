"""What a norm keeps for backward, by norm kind and kernels."""

from __future__ import annotations

from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.shape import LayerKind

STATISTICS = 4
"""Bytes per token of a norm's reciprocal root mean square (a native LayerNorm on CUDA keeps the mean as well)."""


def norm_stored(norm: str, offset: bool, width: int, settings: ActivationSettings, keeps_stream: bool) -> Amount:
    """Internals of one norm over `width` elements, without its output (which its readers keep).

    `keeps_stream`: this norm is the first reader of its input, so that a native kernel's input counts here.
    """
    if settings.kernels != "huggingface":
        return Amount(0, settings.stream * width + STATISTICS if keeps_stream else STATISTICS)
    if norm == "layer_norm":
        return Amount(0, (settings.stream * width if keeps_stream else 0) + STATISTICS)
    if norm == "layer_norm_fp32":
        return Amount(4 * width, 12 * width)
    if norm == "layer_norm_cast":
        return Amount(0, 4 * width + 2 * STATISTICS)
    normalised = 4 if norm == "rms_fp32" else settings.stream
    kept = settings.stream * width if norm == "rms_input" and settings.stream == 2 else 0
    product = 0 if settings.frozen else normalised * width
    return Amount(4 * width if offset else 0, 4 * width + product + kept + STATISTICS)


def stream_kept(kind: LayerKind, settings: ActivationSettings) -> bool:
    """Whether a layer's stored set includes its input itself, which a checkpoint keeps anyway."""
    native = kind.norm in ("layer_norm", "rms_input") or settings.kernels != "huggingface" or settings.stream == 4
    return native or reads_stream(kind)


def reads_stream(kind: LayerKind) -> bool:
    """Whether the blocks read the residual stream itself: norms stand only after the blocks."""
    return kind.post_norm and kind.norms <= block_count(kind)


def block_count(kind: LayerKind) -> int:
    """Blocks of a layer: mixers and feed-forward."""
    blocks = (kind.attention, kind.cross_attention, kind.recurrence, kind.feed_forward)
    return sum(block is not None for block in blocks)


def norm_backward(norm: str, settings: ActivationSettings) -> int:
    """Bytes per element that a norm's backward needs beyond its stored set, the stream's gradient included.

    A norm written out in fp32 holds four fp32 tensors beside the 16-bit gradient.
    """
    native = norm == "layer_norm" or settings.kernels != "huggingface"
    return 3 * settings.stream if native else 16 + settings.stream


def final_norm_work(norm: str, offset: bool, settings: ActivationSettings) -> tuple[int, int]:
    """Bytes per hidden element alive while the final norm runs forward and backward, its stored set included."""
    if settings.kernels != "huggingface":
        return 6, 8
    forward = {"layer_norm": 4, "layer_norm_fp32": 22, "layer_norm_cast": 14}.get(norm, 18 if offset else 16)
    return forward, {"layer_norm": 8, "layer_norm_cast": 13}.get(norm, 24)
