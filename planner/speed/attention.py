"""Seconds of softmax attention on one GPU, from the curves in `catalogs/efficiency/attention.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from planner.errors import InputError
from planner.hardware import Gpu
from planner.speed.catalog import curve_name, efficiency, remembered, time_factor
from planner.speed.matrix import is_aligned, matrix_curve, matrix_seconds, power_share
from planner.speed.memory_bound import memory_seconds
from planner.units import parse_seconds

Side = Literal["forward", "backward"]
# Attention runs in 16 bit where products run narrower.
ATTENTION_PEAK: Mapping[str, str] = {"fp8": "bf16", "fp4": "bf16", "tf32": "tf32"}
WRITTEN_OUT = ("eager", "fused-softmax")


@dataclass(frozen=True)
class AttentionShape:
    """One call: `batch` sequences (a fraction where ranks share one) of `sequence` queries, and as many keys.

    `head_dim` of queries and keys, `value_dim` of values. `window` in tokens, 0 for none. `dropout` on the scores.
    """

    batch: float
    sequence: int
    heads: float
    kv_heads: float
    head_dim: int
    value_dim: int
    causal: bool = True
    window: int = 0
    dropout: bool = False

    @property
    def pairs(self) -> float:
        """Pairs of tokens that meet in one head of one sequence: S x W - W x W / 2 with a causal window of W."""
        window = min(self.window or self.sequence, self.sequence)
        return self.sequence * window - (window * window / 2 if self.causal else 0)


@dataclass(frozen=True)
class AttentionCurve:
    """One kernel on one GPU, by pass: `rate` FLOP/s on long sequences, `half_sequence` in tokens, `tile` in queries.

    `work`: FLOP of the pass for each one of forward. `launch` in seconds, `bandwidth` in bytes/s. `dropout`:
    share of the rate that is left with dropout on the scores.
    """

    rate: Mapping[str, float]
    half_sequence: Mapping[str, float]
    tile: Mapping[str, float]
    work: Mapping[str, float]
    launch: float
    bandwidth: float
    multiprocessors: int
    unmasked: float
    dropout: float = 1.0

    def seconds(self, shape: AttentionShape, direction: str) -> float:
        """Seconds of one call."""
        size = -(-shape.head_dim // 32) * 32 + -(-shape.value_dim // 32) * 32
        half = self.half_sequence[direction] * (1.0 if shape.causal else self.unmasked)
        met = min(shape.window or shape.sequence, shape.sequence)
        rate = self.rate[direction] * head_factor(size // 2) / (1 + half / met)
        work = 2.0 * size * shape.pairs * shape.batch * shape.heads
        block = 2.0 * size * met * self.tile[direction] * self.multiprocessors
        elements = shape.batch * shape.sequence * (shape.heads + shape.kv_heads) * (shape.head_dim + shape.value_dim)
        reads = 1.0 if direction == "forward" else 2.0
        drawn = self.dropout if shape.dropout else 1.0
        busy = self.work[direction] * float((work**3 + block**3) ** (1 / 3)) / (rate * drawn)
        return self.launch + max(busy, 2 * reads * elements / self.bandwidth)


def attention_seconds(
    gpu: Gpu, peak: str, shape: AttentionShape, direction: Side, implementation: str, outlook: str
) -> float:
    """Seconds of one pass of one attention call.

    `implementation`: flash, sdpa, flash3, cudnn, flash1, deterministic, or eager and fused-softmax, which write the
    scores out. Raises InputError for others.
    """
    precision = ATTENTION_PEAK.get(peak, peak)
    if implementation in WRITTEN_OUT:
        return _written_out(gpu, precision, shape, direction, implementation, outlook)
    curve, factor = _at(gpu, precision, implementation, outlook)
    return factor * curve.seconds(shape, direction)


@remembered
def _at(gpu: Gpu, peak: str, implementation: str, outlook: str) -> tuple[AttentionCurve, float]:
    """The curve and the multiple of its time that `outlook` means."""
    factor = gpu.calibration.attention * time_factor(efficiency("attention")["outlook"], outlook)
    return attention_curve(gpu, peak, implementation), factor


@remembered
def attention_curve(gpu: Gpu, peak: str, implementation: str) -> AttentionCurve:
    """The curve of an implementation on a GPU. Raises InputError for an unknown implementation."""
    catalog = efficiency("attention")
    if implementation not in catalog["kernels"]:
        known = (*catalog["kernels"], *WRITTEN_OUT)
        raise InputError(f"unknown attention {implementation!r}", expected="one of " + ", ".join(known))
    chosen = catalog["kernels"][implementation]
    family = catalog["curves"][curve_name(gpu, catalog)]
    entry = family.get(chosen.get(gpu.architecture, chosen["other"])) or next(iter(family.values()))
    sides, slower = ("forward", "backward"), catalog["slower"].get(implementation, {})
    return AttentionCurve(
        rate={side: gpu.peak[peak] * entry[side][0] * slower.get(side, 1.0) * power_share(gpu) for side in sides},
        half_sequence={side: entry[side][1] for side in sides},
        tile={side: catalog["tile"][side] for side in sides},
        work={"forward": 1.0, "backward": catalog["backward_flops"]["value"]},
        launch=parse_seconds(catalog["launch"]["value"]),
        bandwidth=gpu.memory_bandwidth * gpu.memory_efficiency.typical,
        multiprocessors=matrix_curve(gpu, peak).multiprocessors,
        unmasked=catalog["unmasked"]["value"],
        dropout=catalog["dropout"]["value"],
    )


def head_factor(head_dim: int) -> float:
    """Share of the rate at head size 128 that another head size reaches; the last's beyond."""
    found = _FACTORS.get(head_dim)
    if found is None:
        found = _FACTORS[head_dim] = _head_factor(head_dim, efficiency("attention")["head_factor"])
    return found


_FACTORS: dict[int, float] = {}


def _head_factor(head_dim: int, entry: Mapping[Any, Any]) -> float:
    """Between two sizes of the catalog on a straight line."""
    known = list(zip(entry["sizes"], entry["shares"], strict=True))
    if head_dim <= known[0][0]:
        return float(known[0][1] * head_dim / known[0][0])
    for (below, low), (above, high) in pairwise(known):
        if head_dim <= above:
            return float(low + (high - low) * (head_dim - below) / (above - below))
    return float(known[-1][1])


def _written_out(
    gpu: Gpu, peak: str, shape: AttentionShape, direction: Side, implementation: str, outlook: str
) -> float:
    """Two products over all pairs, masked or not (twice as many in backward), and the passes over the scores."""
    scores = efficiency("attention")["scores"]
    heads, times = shape.batch * shape.heads, 1 if direction == "forward" else 2
    slower = 1.0 if is_aligned(shape.head_dim, shape.value_dim) else 1.0 / scores["misaligned"]["value"]
    first = matrix_seconds(gpu, peak, shape.sequence, shape.sequence, shape.head_dim, outlook, heads)
    second = matrix_seconds(gpu, peak, shape.sequence, shape.value_dim, shape.sequence, outlook, heads)
    passes = [scores[implementation][direction], *([scores["dropout"][direction]] if shape.dropout else [])]
    elements = heads * shape.sequence * shape.sequence
    touched = sum(size for size, _ in passes) * elements
    return times * slower * (first + second) + memory_seconds(gpu, touched, sum(count for _, count in passes), outlook)
