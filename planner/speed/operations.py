"""What a layer computes: matrix products, attention calls and memory-bound passes of one token, as one rank sees them.

Counts only, no hardware. Backward follows from forward: each product has one for the gradient of its input, and one for
the gradient of its weight where that trains.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from planner.architecture.shape import Attention, FeedForward, LayerKind, Tensor

# Roles whose products run in fp8 where the job asks for it; routers, mixers and adapters stay in 16 bit.
NARROW_ROLES = ("attention", "mlp", "expert")
WRITTEN_OUT_ACTIVATIONS = ("gelu_python", "xielu", "swiglu_clamped")

# Norm kinds of the model code by pass of the catalog; the others are forms of RMSNorm.
NORM_PASSES = {
    "layer_norm": "norm_layer_norm",
    "layer_norm_cast": "norm_layer_norm",
    "layer_norm_fp32": "norm_written_out",
}


@dataclass(frozen=True)
class Division:
    """How a layer is divided: degrees of tensor and expert parallelism; `sequence_parallel`: norms and residuals too.

    `context_parallel` ranks share a sequence; `context` is `ring` (each holds all heads of its tokens, early and late
    ones alike), `uneven_ring` (each holds tokens in order, so that the last rank meets the most) or `heads` (Ulysses:
    each holds its heads of all tokens while attention runs).
    """

    tensor_parallel: int = 1
    sequence_parallel: bool = False
    expert_parallel: int = 1
    context_parallel: int = 1
    context: str = "ring"


@dataclass(frozen=True)
class Product:
    """One matrix product with a weight: rows x inner times inner x columns, `batch` experts at once.

    `share`: rows for each token of the micro-batch, over all of the batch. `narrow`: runs in fp8 where asked for.
    `reads_input_first`: no product before it reads the same input. `closes_layer`: its output goes into the sum at the
    layer's end and nothing else, so that backward never needs it. `aligned`: see `planner.speed.matrix.is_aligned`.
    """

    name: str
    columns: float
    inner: float
    batch: float = 1
    share: float = 1.0
    trained: bool = True
    narrow: bool = True
    reads_input_first: bool = True
    closes_layer: bool = False
    aligned: bool = True

    @property
    def weight(self) -> float:
        """Elements of the weight on this rank."""
        return self.columns * self.inner * self.batch


@dataclass(frozen=True)
class AttentionCall:
    """One attention call of a sequence, heads as one rank has them."""

    heads: float
    kv_heads: float
    head_dim: int
    value_dim: int
    causal: bool
    window: int
    dropout: bool


@dataclass(frozen=True)
class MemoryPass:
    """`elements` per token that pass `name` of the catalog touches in `calls` calls; `gathers`: in another order."""

    name: str
    elements: float
    gathers: bool = False
    calls: int = 1


@dataclass(frozen=True)
class LayerOperations:
    """Everything one layer computes for a token in forward."""

    products: tuple[Product, ...]
    attentions: tuple[AttentionCall, ...]
    passes: tuple[MemoryPass, ...]


def layer_division(kind: LayerKind, division: Division) -> Division:
    """The least division under which a layer has the same operations on a rank.

    Experts are divided where there are any, and who shares a sequence has all operations of its tokens but where
    `heads` are divided for attention.
    """
    experts = division.expert_parallel if any(tensor.role == "expert" for tensor in kind.tensors) else 1
    shared = division.context_parallel if division.context == "heads" else 1
    return replace(division, expert_parallel=experts, context_parallel=shared)


def layer_operations(kind: LayerKind, hidden: int, division: Division) -> LayerOperations:
    """The operations of one layer of `kind` in a model of width `hidden`."""
    blocks = [block for block in (kind.attention, kind.cross_attention) if block is not None]
    return LayerOperations(
        products=tuple(layer_products(kind, hidden, division)),
        attentions=tuple(_attention(block, kind, division) for block in blocks),
        passes=tuple(item for item in _passes(kind, hidden, division) if item.elements),
    )


# ── products ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def layer_products(kind: LayerKind, hidden: int, division: Division) -> Iterator[Product]:
    """Each weight matrix's product; of those that read one input the first says so."""
    matrices = [tensor for tensor in kind.tensors if _multiplies(tensor)]
    last = {tensor.role: tensor for tensor in matrices}
    seen: set[str] = set()
    for tensor in matrices:
        closing = last[tensor.role] is tensor and hidden in tensor.shape
        joins = not closing and tensor.role in seen and tensor.role in ("attention", "mlp") and "_b_" not in tensor.name
        yield _product(tensor, kind, hidden, closing, not joins, division)
        seen.add(tensor.role)


def _is_last(kind: LayerKind, tensor: Tensor) -> bool:
    """Whether a dense block's output projection ends the layer; a norm or dropout after it, or weights of experts, need
    its output."""
    ends = "mlp" if kind.feed_forward is not None else "mixer"
    dense = kind.feed_forward is None or not kind.feed_forward.experts
    return tensor.role == ends and dense and not kind.post_norm and not kind.residual_dropout


def _multiplies(tensor: Tensor) -> bool:
    """Whether a tensor is multiplied with tokens: matrices, and stacks of matrices of experts."""
    if tensor.role == "expert":
        return len(tensor.shape) == 3
    return len(tensor.shape) == 2 and tensor.role not in ("positions", "norm") and "A_log" not in tensor.name


def _product(
    tensor: Tensor, kind: LayerKind, hidden: int, closing: bool, reads_first: bool, division: Division
) -> Product:
    """The product of one tensor: the closing one of a block is divided by its inputs, the others by their outputs."""
    columns, inner = _sides(tensor.shape[-2:], hidden, closing)
    whole = tensor.role == "router" or not (closing or hidden in tensor.shape or "_b_" in tensor.name)
    parts = 1 if whole else division.tensor_parallel
    experts = tensor.shape[0] / division.expert_parallel if tensor.role == "expert" else 1
    return Product(
        name=tensor.name,
        columns=columns if closing else max(1.0, columns / parts),
        inner=max(1.0, inner / parts) if closing else inner,
        batch=experts,
        share=_rows(tensor, kind.feed_forward),
        trained=tensor.trainable,
        narrow=tensor.role in NARROW_ROLES,
        reads_input_first=reads_first,
        closes_layer=closing and _is_last(kind, tensor),
        aligned=tensor.role == "router" or all(size % 8 == 0 for size in (columns, inner)),
    )


def _sides(shape: tuple[int, ...], hidden: int, closing: bool) -> tuple[int, int]:
    """(columns, inner) whichever way the model code stores the matrix."""
    outputs, inputs = shape
    if closing:
        return hidden, inputs if outputs == hidden else outputs
    if hidden in shape:
        return outputs if inputs == hidden else inputs, hidden
    return outputs, inputs


def _rows(tensor: Tensor, block: FeedForward | None) -> float:
    """Rows for each token of this rank, over all of the rank's experts: as many come in as go out."""
    if tensor.role != "expert" or block is None:
        return 1.0
    return float(block.experts if block.every_expert else block.experts_per_token)


# ── attention ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _attention(block: Attention, kind: LayerKind, division: Division) -> AttentionCall:
    """One block's call; keys of a head are held whole by every rank that has one of its queries."""
    parts = division.tensor_parallel * (division.context_parallel if division.context == "heads" else 1)
    query, value = head_sizes(block)
    return AttentionCall(
        heads=block.heads / parts,
        kv_heads=max(1.0, block.kv_heads / parts),
        head_dim=query,
        value_dim=value,
        causal=block.causal and not block.cross,
        window=block.window,
        dropout=kind.attention_dropout > 0,
    )


def head_sizes(block: Attention) -> tuple[int, int]:
    """Widths of a query (or key) and of a value of one head."""
    query = block.nope_dim + block.rotary_dim if block.kind == "mla" else block.head_dim
    return query, block.value_dim or block.head_dim


# ── memory-bound passes ──────────────────────────────────────────────────────────────────────────────────────────────


def _passes(kind: LayerKind, hidden: int, division: Division) -> Iterable[MemoryPass]:
    """Passes over the stream, inside attention and inside the feed-forward block."""
    tensor = division.tensor_parallel
    stream = hidden / (tensor if division.sequence_parallel else 1)
    blocks = sum(b is not None for b in (kind.attention, kind.cross_attention, kind.recurrence, kind.feed_forward))
    biases = [item.elements for item in kind.tensors if _is_bias(item)]
    yield MemoryPass(norm_pass(kind.norm), kind.norms * stream, calls=kind.norms)
    yield MemoryPass("residual", blocks * stream, calls=blocks)
    yield MemoryPass("dropout", blocks * stream if kind.residual_dropout else 0, calls=blocks)
    yield MemoryPass("fork", hidden * _forks(kind), calls=_forks(kind))
    yield MemoryPass("bias", sum(biases) / tensor, calls=len(biases))
    yield from _adapter_passes(kind, tensor)
    for block in (kind.attention, kind.cross_attention):
        if block is not None:
            yield from attention_passes(block, tensor)
    if kind.recurrence is not None:
        yield MemoryPass("scan", kind.recurrence.inner / tensor)
    if kind.feed_forward is not None:
        yield from _feed_forward_passes(kind.feed_forward, hidden, tensor)


def _adapter_passes(kind: LayerKind, tensor: int) -> Iterable[MemoryPass]:
    """What low-rank adapters do to inputs and outputs of the products that carry one, beside their own products."""
    inputs = [item.shape[1] for item in kind.tensors if item.name.endswith(".lora_A")]
    outputs = [item.shape[0] for item in kind.tensors if item.name.endswith(".lora_B")]
    yield MemoryPass("adapter_input", sum(inputs) / tensor, calls=len(inputs))
    yield MemoryPass("adapter_output", sum(outputs) / tensor, calls=len(outputs))


def norm_pass(norm: str) -> str:
    """The catalog's name of a norm's pass."""
    return NORM_PASSES.get(norm, "norm_rms")


def _is_bias(tensor: Tensor) -> bool:
    return len(tensor.shape) == 1 and tensor.name.endswith("bias") and tensor.role != "norm"


def _forks(kind: LayerKind) -> int:
    """Products that read an input another one reads as well."""
    roles = [t.role for t in kind.tensors if len(t.shape) == 2 and t.role in ("attention", "mlp")]
    return sum(max(0, roles.count(role) - 2) for role in ("attention", "mlp")) + (1 if kind.parallel else 0)


def attention_passes(block: Attention, tensor: int) -> Iterable[MemoryPass]:
    """Rotation, norms of queries and keys, and copies out of a fused projection."""
    rows = (block.heads + block.kv_heads) / tensor
    yield MemoryPass("rotary", rows * block.rotary_dim, calls=2)
    yield MemoryPass("norm_rms", rows * block.head_dim if block.qk_norm != "none" else 0, calls=2)
    copied = (block.heads + 2 * block.kv_heads) / tensor * block.head_dim
    yield MemoryPass("copy", copied if block.split_copies or block.kind == "mla" else 0)


def activation_pass(block: FeedForward, width: float) -> MemoryPass:
    """The activation function of a block over `width` elements of a token."""
    if block.activation in WRITTEN_OUT_ACTIVATIONS:
        return MemoryPass("activation_written_out", width)
    return MemoryPass("gated" if block.gated else "activation", width)


def _feed_forward_passes(block: FeedForward, hidden: int, tensor: int) -> Iterable[MemoryPass]:
    """Activation functions over the width that a token meets, and the way to the experts and back."""
    routed = (block.experts if block.every_expert else block.experts_per_token) if block.experts else 0
    width = (block.width * routed if block.experts else block.width) + block.shared_width
    yield activation_pass(block, width / tensor)
    if block.experts:
        yield MemoryPass("router", block.experts)
        yield MemoryPass("permute", routed * hidden, gathers=True)
