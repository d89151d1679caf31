"""Seconds of one pass of a layer, of the embedding, and of the output projection with the loss, on one GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.architecture.shape import LayerKind
from planner.hardware import Gpu
from planner.speed.attention import AttentionShape, Side, attention_seconds
from planner.speed.catalog import efficiency
from planner.speed.matrix import MatrixCurve, curve_at, is_aligned
from planner.speed.memory_bound import copy_seconds, host_seconds, memory_seconds, weight_seconds
from planner.speed.modules import module_operations
from planner.speed.operations import (
    AttentionCall,
    Division,
    LayerOperations,
    Product,
    layer_division,
    layer_operations,
    norm_pass,
)
from planner.speed.passes import Traffic, layer_traffic, loss_cost, pass_cost

Pass = Literal["forward", "backward", "recompute", "selective", "attention", "modules"]
# Precisions whose products run on narrow copies of 16-bit tensors.
NARROW = ("fp8", "fp4")


@dataclass(frozen=True)
class Setting:
    """How a job runs its layers.

    `peak`: precision of the products, a key of `Gpu.peak`. `kernels`: huggingface, liger, megatron or compiled.
    `attention`: see `attention_seconds`. `loss`: an entry of `losses` in catalogs/efficiency/kernels.yaml.
    `weight_casts`: autocast makes 16-bit copies of fp32 weights in every pass. `accumulated_bytes`: bytes per trained
    weight and micro-batch that adding its gradient to what is there reads and writes. `host`: eager, compiled or
    replayed launches. `stops_early`: recomputation ends with the last tensor that backward needs, as torch's checkpoint
    without reentrant autograd does. `dequantized`: frozen weights of linear layers are held in 4 bits. `row_scaled`:
    narrow tensors have a scale for each row. `modules`: what the pass of that name makes again.
    """

    peak: str = "bf16"
    kernels: str = "huggingface"
    attention: str = "flash"
    loss: str = "standard"
    division: Division = Division()
    weight_casts: bool = False
    accumulated_bytes: float = 0.0
    host: str = "eager"
    stops_early: bool = True
    dequantized: bool = False
    row_scaled: bool = False
    modules: tuple[str, ...] = ()

    @property
    def wide(self) -> str:
        """Precision of the products that do not run narrow."""
        return "bf16" if self.peak in NARROW else self.peak


@dataclass(frozen=True)
class Parts:
    """Seconds of one pass by what takes them; `host` is what the launches take beside all of it."""

    products: float = 0.0
    attention: float = 0.0
    memory: float = 0.0
    host: float = 0.0

    @property
    def seconds(self) -> float:
        """The GPU's work, or the host's launches where those take longer."""
        return max(self.products + self.attention + self.memory, self.host)


@dataclass(frozen=True)
class _Multiplication:
    """`times` equal products of a pass on a GPU: `share` rows a token; `by_tokens`: tokens are summed over instead."""

    times: float
    curve: MatrixCurve
    share: float
    columns: float
    inner: float
    batch: float
    by_tokens: bool

    def seconds(self, tokens: float) -> float:
        """Seconds for a micro-batch of `tokens`."""
        rows = tokens * self.share
        if rows <= 0:
            return 0.0
        if self.by_tokens:
            return self.times * self.curve.seconds(self.columns, self.inner, rows, self.batch)
        return self.times * self.curve.seconds(rows, self.columns, self.inner, self.batch)


@dataclass(frozen=True)
class _LayerWork:
    """What one pass of a layer does on a GPU, whatever the number of tokens; `host` in seconds.

    `known`: seconds of products and of memory-bound passes by tokens, which ranks that share sequences have alike.
    """

    side: Side
    products: tuple[_Multiplication, ...]
    attentions: tuple[AttentionCall, ...]
    traffic: Traffic
    host: float
    known: dict[float, tuple[float, float]] = field(default_factory=dict)

    def alone(self, gpu: Gpu, tokens: float, outlook: str) -> tuple[float, float]:
        """Seconds of products and of memory-bound passes for a micro-batch of `tokens`, worked out once."""
        found = self.known.get(tokens)
        if found is None:
            traffic = self.traffic
            memory = memory_seconds(gpu, traffic.per_token * tokens, traffic.kernels, outlook)
            memory += weight_seconds(gpu, traffic.constant, 0, outlook)
            if traffic.gathered_per_token:
                memory += copy_seconds(gpu, traffic.gathered_per_token * tokens, 0, outlook)
            found = self.known[tokens] = sum([item.seconds(tokens) for item in self.products]), memory
        return found


def layer_seconds(
    gpu: Gpu,
    kind: LayerKind,
    hidden: int,
    tokens: float,
    sequence: int,
    direction: Pass,
    setting: Setting,
    outlook: str,
) -> float:
    """Seconds of one pass of one layer over a micro-batch of `tokens` tokens on this rank; see `layer_parts`."""
    return layer_parts(gpu, kind, hidden, tokens, sequence, direction, setting, outlook).seconds


def layer_parts(
    gpu: Gpu,
    kind: LayerKind,
    hidden: int,
    tokens: float,
    sequence: int,
    direction: Pass,
    setting: Setting,
    outlook: str,
) -> Parts:
    """Seconds of one pass of one layer by what takes them.

    `tokens`: those of this rank, a share of each sequence with context parallelism; `sequence`: tokens of a whole one.
    `recompute` is a forward that stops before the closing product where `setting.stops_early`. `selective` is that of
    torchtitan's per-operation checkpoints: attention and every second product are kept, the rest is done again;
    `attention` that of Megatron's selective checkpoints: scores and weighted sum alone; `modules` that of the setting's
    modules.
    """
    work = _work(gpu, kind, hidden, direction, setting, outlook)
    products, memory = work.alone(gpu, tokens, outlook)
    return Parts(
        products=products,
        attention=sum([_call(gpu, item, tokens, sequence, work.side, setting, outlook) for item in work.attentions]),
        memory=memory,
        host=work.host,
    )


_WORK: dict[tuple[int, int, int, str, Setting, str], tuple[Gpu, LayerKind, _LayerWork]] = {}
_AT_HAND: dict[tuple[int, int, int, str, int, str], tuple[Gpu, LayerKind, Setting, _LayerWork]] = {}


def _work(gpu: Gpu, kind: LayerKind, hidden: int, direction: Pass, setting: Setting, outlook: str) -> _LayerWork:
    """A pass's work, found by the identity of its objects: their own hashes walk over all they hold."""
    key = (id(gpu), id(kind), hidden, direction, id(setting), outlook)
    found = _AT_HAND.get(key)
    if found is None or found[0] is not gpu or found[1] is not kind or found[2] is not setting:
        if len(_AT_HAND) >= 16384:
            _AT_HAND.clear()
        work = _shared_work(gpu, kind, hidden, direction, setting, outlook)
        found = _AT_HAND[key] = (gpu, kind, setting, work)
    return found[3]


def _shared_work(gpu: Gpu, kind: LayerKind, hidden: int, direction: Pass, setting: Setting, outlook: str) -> _LayerWork:
    """As `_work`, made once for all settings whose divisions mean the same to the layer."""
    alike = replace(setting, division=layer_division(kind, setting.division), attention="", loss="")
    key = (id(gpu), id(kind), hidden, direction, alike, outlook)
    found = _WORK.get(key)
    if found is None or found[0] is not gpu or found[1] is not kind:
        if len(_WORK) >= 16384:
            _WORK.clear()
        found = _WORK[key] = (gpu, kind, _made(gpu, kind, hidden, direction, alike, outlook))
    return found[2]


def _made(gpu: Gpu, kind: LayerKind, hidden: int, direction: Pass, setting: Setting, outlook: str) -> _LayerWork:
    """The work of a pass."""
    side: Side = "backward" if direction == "backward" else "forward"
    if direction == "modules":
        work = module_operations(kind, hidden, setting.division, setting.modules)
    else:
        work = _again(layer_operations(kind, hidden, setting.division), direction, setting.stops_early)
    traffic = layer_traffic(
        work,
        side,
        setting.kernels,
        narrow=setting.peak in NARROW,
        weight_casts=setting.weight_casts,
        accumulated_bytes=setting.accumulated_bytes,
        dequantized=setting.dequantized,
        row_scaled=setting.row_scaled,
    )
    single = [item for product in work.products for item in _multiplications(gpu, product, side, setting, outlook)]
    launches = traffic.kernels + len(single) + len(work.attentions)
    products = tuple(
        item if count == 1 else replace(item, times=item.times * count) for item, count in Counter(single).items()
    )
    host = gpu.calibration.launches * host_seconds(launches, setting.host, side, outlook)
    return _LayerWork(side, products, work.attentions, traffic, host)


def _again(work: LayerOperations, direction: str, stops_early: bool) -> LayerOperations:
    """What a pass does of a layer's operations."""
    if direction == "recompute" and stops_early:
        return replace(work, products=tuple(item for item in work.products if not item.closes_layer))
    if direction == "selective":
        return replace(work, products=work.products[1::2], attentions=())
    if direction == "attention":
        return replace(work, products=(), passes=())
    return work


def _multiplications(gpu: Gpu, item: Product, side: Side, setting: Setting, outlook: str) -> Iterator[_Multiplication]:
    """One product forward; backward the product for its input's gradient, and that for its weight's."""
    curve, factor = curve_at(gpu, setting.peak if item.narrow else setting.wide, outlook, item.aligned)
    if setting.row_scaled and item.narrow and setting.peak in NARROW:
        factor /= efficiency("matrix")["row_scaled"]["value"]
    share, columns, inner, batch = item.share / item.batch, item.columns, item.inner, item.batch
    if side == "forward":
        yield _Multiplication(factor, curve, share, columns, inner, batch, False)
        return
    yield _Multiplication(factor, curve, share, inner, columns, batch, False)
    if item.trained:
        slower: float = efficiency("matrix")["weight_gradient"]["value"]
        yield _Multiplication(factor / slower, curve, share, columns, inner, batch, True)


def _call(
    gpu: Gpu, call: AttentionCall, tokens: float, sequence: int, side: Side, setting: Setting, outlook: str
) -> float:
    """One layer's attention. A rank does its share of each sequence (ring), or all of its heads' (Ulysses).

    In each round of a ring its tokens meet those of one rank: with early and late ones alike half of the pairs, as many
    as in one causal call over them.
    """
    division = setting.division
    whole = tokens / sequence * (division.context_parallel if division.context == "heads" else 1)
    rounds = 1 if division.context == "heads" or call.window else division.context_parallel
    shape = AttentionShape(
        whole * rounds,
        -(-sequence // rounds),
        call.heads,
        call.kv_heads,
        call.head_dim,
        call.value_dim,
        call.causal,
        call.window,
        call.dropout,
    )
    seconds = rounds * attention_seconds(gpu, setting.peak, shape, side, setting.attention, outlook)
    if rounds > 1:
        seconds += _merging(gpu, call, tokens, rounds, side, outlook)
    return seconds * _imbalance(division) if call.causal else seconds


def _merging(gpu: Gpu, call: AttentionCall, tokens: float, rounds: int, side: Side, outlook: str) -> float:
    """Adding up a ring's rounds: outputs in forward, gradients of queries, keys and values in backward."""
    width = call.heads * call.value_dim
    if side == "backward":
        width = (call.heads + call.kv_heads) * call.head_dim + call.kv_heads * call.value_dim
    touched = efficiency("attention")["merged"]["value"] * width * tokens
    return memory_seconds(gpu, rounds * touched, rounds, outlook)


def _imbalance(division: Division) -> float:
    """Work of the rank with the last tokens over the mean: in each of c rounds some rank meets a whole block, in the
    first half of one: (c - 1/2) / (c/2)."""
    return 2.0 - 1.0 / division.context_parallel if division.context == "uneven_ring" else 1.0


# ── outside the layers ───────────────────────────────────────────────────────────────────────────────────────────────


def head_seconds(
    gpu: Gpu,
    hidden: int,
    vocabulary: int,
    tokens: float,
    direction: Side,
    setting: Setting,
    outlook: str,
    norm: str = "rms",
    trained: bool = True,
) -> float:
    """Seconds of the final norm, the output projection (in 16 bit under fp8) and the loss over `tokens` tokens."""
    columns = vocabulary / setting.division.tensor_parallel
    aligned = is_aligned(columns, hidden)
    item = Product("head", columns, hidden, trained=trained, narrow=False, aligned=aligned)
    size, count = loss_cost(setting.loss, direction)
    norm_size, norm_count = pass_cost(norm_pass(norm), setting.kernels, direction)
    traffic = tokens * (size * columns + norm_size * hidden)
    weights = weight_seconds(gpu, _head_weight_bytes(setting, direction) * item.weight, 0, outlook)
    products = sum(product.seconds(tokens) for product in _multiplications(gpu, item, direction, setting, outlook))
    return products + weights + memory_seconds(gpu, traffic, count + norm_count, outlook)


def _head_weight_bytes(setting: Setting, direction: Side) -> float:
    """Bytes per weight of autocast's copy, and of adding the gradient up."""
    cast = pass_cost("weight_cast", setting.kernels, direction)[0] if setting.weight_casts else 0.0
    return cast + (setting.accumulated_bytes if direction == "backward" else 0.0)


def embedding_seconds(
    gpu: Gpu, hidden: int, vocabulary: int, tokens: float, direction: Side, setting: Setting, outlook: str
) -> float:
    """Seconds of looking the embedding up; backward adds rows to a gradient that is cleared first."""
    size, count = pass_cost("embedding", setting.kernels, direction)
    cleared = 2.0 * vocabulary * hidden / setting.division.tensor_parallel if direction == "backward" else 0.0
    return copy_seconds(gpu, size * hidden * tokens, count, outlook) + weight_seconds(gpu, cleared, 0, outlook)
