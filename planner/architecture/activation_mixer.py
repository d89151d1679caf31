"""What attention and recurrent mixers keep for backward, and what they need while they run."""

from __future__ import annotations

from planner.architecture.amount import ActivationSettings, Amount, total
from planner.architecture.shape import Attention, Recurrence

QUERY_KEY_VALUE = ("q", "k", "v")


def attention_stored(attention: Attention, hidden: int, settings: ActivationSettings) -> Amount:
    """Stored set of one attention block, the copies its projections keep of its input included.

    Cross-attention counts keys and values as if the other sequence were as long as this one.
    """
    inputs = settings.input_bytes(QUERY_KEY_VALUE, attention.fused_qkv) * hidden
    adapters = settings.private_bytes * settings.adapted("o") * attention.heads * attention.head_dim
    outputs = settings.adapter_outputs(*QUERY_KEY_VALUE, "o")
    inner = _latent(attention, settings) if attention.kind == "mla" else _grouped(attention, settings)
    return total([Amount(0, inputs + adapters + outputs), inner, _probabilities(attention, settings),
                  _layer_tables(attention, settings)])


def _grouped(attention: Attention, settings: ActivationSettings) -> Amount:
    element, queries = settings.element, attention.heads * attention.head_dim
    keys = attention.kv_heads * attention.head_dim
    projected = element * (queries + 2 * (queries if _expanded(attention) else keys))
    viewed = attention.fused_qkv and attention.rotary_dim and not attention.split_copies
    if viewed and settings.kernels == "huggingface":
        projected += element * (queries + keys)
    output = (element + settings.narrow_inputs) * queries  # a narrow copy of its own for the output projection
    return Amount(0, projected + output + 4 * attention.heads) + _query_key_norm(attention, settings)


def _expanded(attention: Attention) -> bool:
    """Whether the model code itself copies keys and values for every query head, whatever the kernel."""
    return attention.split_copies and attention.kv_heads > 1


def _query_key_norm(attention: Attention, settings: ActivationSettings) -> Amount:
    """RMSNorm over queries and keys: as any other norm, its output being the unrotated copy that dies."""
    if attention.qk_norm == "none":
        return Amount()
    width = (attention.heads + attention.kv_heads) * attention.head_dim
    rows = attention.heads + attention.kv_heads if attention.qk_norm == "per_head" else 2
    if attention.qk_norm_native:
        return Amount(0, (0 if attention.fused_qkv else settings.element * width) + 4 * rows)
    if settings.kernels != "huggingface":
        return Amount(0, settings.element * width + 4 * rows)
    product = 0 if settings.frozen else (4 if attention.qk_norm_fp32 else settings.element)
    return Amount(8 * attention.head_dim if attention.qk_norm_offset else 0, (4 + product) * width + 4 * rows)


def _latent(attention: Attention, settings: ActivationSettings) -> Amount:
    """Multi-head latent attention: assembled queries and keys, the expanded latent, and norms over two latents."""
    element, heads = settings.element, attention.heads
    key = attention.nope_dim + attention.rotary_dim
    latents = [attention.key_value_latent, *([attention.query_latent] if attention.query_latent else [])]
    internal = 4 + element if settings.kernels == "huggingface" else element
    norms = sum((internal + element) * width + 4 for width in latents)
    expanded = element * heads * (attention.nope_dim + attention.value_dim)
    output = (element + settings.narrow_inputs) * heads * attention.value_dim
    return Amount(0, 2 * element * heads * key + expanded + output + 4 * heads + norms)


def _probabilities(attention: Attention, settings: ActivationSettings) -> Amount:
    """What an implementation that is not flash attention keeps besides, or instead of the log-sum-exp."""
    if settings.attention == "flash":
        return Amount()
    if settings.attention == "eager":
        return Amount(0, _repeats(attention, settings) - 4 * attention.heads + _softmax(attention, settings))
    if _unequal(attention):
        return Amount(0, _decomposed(attention, settings))
    mask = 2 * settings.sequence_length if settings.attention == "sdpa_masked" else 0
    repeats = _repeats(attention, settings) if attention.kv_heads > 1 else 0  # a single head is repeated as a view
    return Amount(0, repeats + _relaid_output(attention, settings) + mask)


def _unequal(attention: Attention) -> bool:
    """Whether queries, keys and values differ in heads or in head size when they reach the kernel."""
    if attention.kind == "mla":
        return attention.nope_dim + attention.rotary_dim != attention.value_dim
    return attention.shared_keys


def _decomposed(attention: Attention, settings: ActivationSettings) -> int:
    """What SDPA keeps, instead of the inputs of a fused kernel, where head counts or head sizes differ.

    No fused kernel takes a single key head for many query heads, or on a CPU values narrower than keys: probabilities,
    scaled queries and keys, and values stay in fp32 (torch 2.13, _scaled_dot_product_attention_math).
    """
    heads, element = attention.heads, settings.element
    scores = 4 * heads * (settings.sequence_length - 1)
    if attention.kind == "mla":
        key = attention.nope_dim + attention.rotary_dim
        inputs = element * heads * (2 * key + attention.nope_dim + attention.value_dim)
        return scores + 4 * heads * (2 * key + attention.value_dim) - inputs
    return scores + (4 - element) * (heads + 2) * attention.head_dim


def _softmax(attention: Attention, settings: ActivationSettings) -> int:
    scores = attention.heads * settings.sequence_length
    upcast = 4 + settings.element if _raised(attention, settings) else settings.element
    return scores * (upcast + (settings.element if attention.softcap else 0))


def _raised(attention: Attention, settings: ActivationSettings) -> bool:
    """Whether written-out scores become fp32; Megatron's fused softmax reads and writes 16 bits.

    Source: megatron-core fusions/fused_softmax.py.
    """
    return attention.softmax_fp32 and settings.element == 2 and settings.kernels != "megatron"


def _repeats(attention: Attention, settings: ActivationSettings) -> int:
    """Keys and values repeated for every query head."""
    if attention.kind == "mla" or attention.split_copies:
        return 0
    return 2 * settings.element * (attention.heads - attention.kv_heads) * attention.head_dim


def _relaid_output(attention: Attention, settings: ActivationSettings) -> int:
    """Partly rotated queries are joined head by head, and the kernel's output follows that layout: one more copy."""
    return settings.element * attention.heads * attention.head_dim if attention.joined_rotary else 0


def _layer_tables(attention: Attention, settings: ActivationSettings) -> Amount:
    """Cosines and sines that the layer itself repeats, one row per position."""
    if not attention.rotary_interleaved or settings.kernels != "huggingface":
        return Amount()
    return Amount(settings.sequence_length * attention.rotary_dim * (8 if attention.rotary_fp32 else 4))


def attention_work(attention: Attention, hidden: int, settings: ActivationSettings) -> tuple[int, int, int, int]:
    """Bytes per token of the four workings of a site (see Work)."""
    element, stream = settings.element, settings.stream * hidden
    heads, dim = attention.heads, max(attention.head_dim, attention.nope_dim + attention.rotary_dim)
    queries, keys = element * heads * dim, element * attention.kv_heads * dim
    rotated = element * attention.rotary_dim * (4 * heads + 6 * attention.kv_heads)
    rope = rotated if attention.rotary_fp32 else max(queries, 2 * keys if attention.rotary_dim else 0)
    alone = stream + element * hidden + 2 * queries + 2 * keys + rope
    if settings.attention not in ("flash", "eager") and _unequal(attention):
        return _decomposed_work(attention, stream, hidden, settings)
    if settings.attention == "eager":
        return _written_out(attention, stream, queries, keys, alone, settings)
    rounded = -(-dim // 32) * 32
    expanded = 2 * queries if attention.kv_heads < heads else 0
    backward = stream + 4 * heads * (rounded + 1) + queries + 2 * keys + expanded
    return stream, alone, backward, backward


def _decomposed_work(
    attention: Attention, stream: int, hidden: int, settings: ActivationSettings
) -> tuple[int, int, int, int]:
    """Workings of SDPA without a fused kernel: scores and probabilities in fp32, and the inputs once more.

    Queries and keys exist as they came, in fp32, and scaled; values as they came and in fp32.
    """
    key = attention.nope_dim + attention.rotary_dim if attention.kind == "mla" else attention.head_dim
    pair = (attention.heads + attention.kv_heads) * key
    values = attention.kv_heads * (attention.value_dim or key)
    scores = 4 * attention.heads * settings.sequence_length
    beside = settings.element * (pair + values) + 4 * pair
    alone = 2 * scores + beside + 4 * (pair + values) + stream + settings.element * hidden
    return scores + beside + stream, alone, 2 * scores + stream, 2 * scores + stream


def _written_out(
    attention: Attention, stream: int, queries: int, keys: int, alone: int, settings: ActivationSettings
) -> tuple[int, int, int, int]:
    """Workings of attention that writes its scores out: three copies at once, and two gradients of them.

    Scores raised to fp32 exist in 16 bits, in fp32, and as fp32 probabilities; a positional bias adds one more copy.
    """
    scores, element = attention.heads * settings.sequence_length, settings.element
    upcast = _raised(attention, settings)
    repeats = 2 * queries if attention.kv_heads < attention.heads else 0
    copies = (10 if upcast else 3 * element) + (element if attention.alibi else 0)
    working = max(alone, copies * scores + stream + queries + 2 * keys + repeats)
    backward = (6 if upcast else 2 * element) * scores + stream - queries
    return (4 if upcast else element) * scores + stream, working, backward, backward


def recurrence_stored(recurrence: Recurrence, hidden: int, settings: ActivationSettings) -> Amount:
    """Stored set of a recurrent mixer with its fused kernels (mamba_ssm, fla), read from their sources.

    The convolution's output is recomputed in backward; what stays is the input projection (both branches), the gates,
    the gated result, and the states at the borders of chunks of 256 steps in fp32 (2048 steps for `mamba`).
    """
    inputs = settings.input_bytes(("in",)) * hidden
    heads, element = max(recurrence.heads, 1), settings.element
    states = 4 * recurrence.inner * recurrence.state
    if recurrence.kind == "mamba":
        gates = element * (recurrence.rank + 2 * recurrence.state)
        return Amount(0, inputs + 3 * element * recurrence.inner + gates + -(-states // 2048))
    if recurrence.kind == "mamba2":
        gates = element * 2 * recurrence.groups * recurrence.state + (element + 4) * heads
        return Amount(0, inputs + 4 * element * recurrence.inner + gates + -(-states // 256))
    keys = 2 * recurrence.key_dim
    states = 4 * recurrence.value_dim * recurrence.key_dim // (64 * heads)
    return Amount(0, inputs + 2 * element * keys + 5 * element * recurrence.value_dim + 12 * heads + states)


def recurrence_work(recurrence: Recurrence, hidden: int, settings: ActivationSettings) -> tuple[int, int, int, int]:
    """Bytes per token of the four workings of a site (see Work): the recomputed branches and their gradients."""
    stream, inner = settings.stream * hidden, settings.element * max(recurrence.inner, recurrence.value_dim)
    return stream, 2 * stream + 4 * inner, stream + 4 * inner, stream + 4 * inner
