"""Seconds of one layer's or the loss's pass on one GPU: FLOPs over what the GPU reaches, plus memory-bound work.

Coefficients with their sources stand in `catalogs/compute.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from planner.architecture.activation_selective import kept_share
from planner.architecture.shape import LayerKind
from planner.hardware import Range
from planner.job import Job
from planner.share import Share
from planner.units import parse_seconds

Pass = Literal["forward", "backward"]


@dataclass(frozen=True)
class Coefficients:
    """The numbers of `catalogs/compute.yaml`, in base units; pairs are (forward, backward)."""

    attention_efficiency: tuple[Range, Range]
    attention_flops: tuple[float, float]
    matrix_flops: tuple[float, float]
    launch_seconds: float
    kernels_per_layer: tuple[int, int]
    layer_traffic: tuple[float, float]
    logits_traffic: tuple[float, float]
    overlap_slowdown: Range


@lru_cache(maxsize=1)
def coefficients() -> Coefficients:
    """The shipped coefficients."""
    from planner.reading import read_document

    text = files("catalogs").joinpath("compute.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = read_document("catalogs/compute.yaml", text=text).data
    attention, kernels, memory = data["attention"], data["kernels"], data["memory_bound"]
    forward = attention["forward_efficiency"]
    share = attention["backward_share"]["value"]
    ends = [forward[end] for end in ("low", "typical", "high")]
    return Coefficients(
        attention_efficiency=(Range(*ends), Range(*(end * share for end in ends))),
        attention_flops=(1.0, attention["backward_flops"]["value"]),
        matrix_flops=(1.0, data["matrix"]["backward_flops"]["value"]),
        launch_seconds=parse_seconds(kernels["launch"]["value"]),
        kernels_per_layer=(kernels["per_layer_forward"]["value"], kernels["per_layer_backward"]["value"]),
        layer_traffic=(memory["forward_traffic"]["value"], memory["backward_traffic"]["value"]),
        overlap_slowdown=Range(*(data["overlap"]["slowdown"][end] for end in ("low", "typical", "high"))),
        logits_traffic=(memory["logits_forward_traffic"]["value"], memory["logits_backward_traffic"]["value"]),
    )


def matrix_rate(job: Job, outlook: str) -> float:
    """FLOP/s that large matrix products reach."""
    gpu, peak = job.cluster.gpu, job.training.precision.peak
    return gpu.peak[peak] * gpu.matrix_efficiency[peak].for_time(outlook)


def memory_rate(job: Job, outlook: str) -> float:
    """Bytes/s that memory-bound kernels reach."""
    gpu = job.cluster.gpu
    return gpu.memory_bandwidth * gpu.memory_efficiency.for_time(outlook)


@lru_cache(maxsize=65536)
def layer_seconds(share: Share, kind: LayerKind, tokens: int, direction: Pass, outlook: str) -> float:
    """Seconds of one pass of one layer over `tokens` tokens on one tensor-parallel rank."""
    job, parts = share.job, share.layout.tensor
    found, side = coefficients(), 0 if direction == "forward" else 1
    flops, activations = job.flops_of(kind), share.of(kind)
    gpu, peak = job.cluster.gpu, job.training.precision.peak
    attention_rate = gpu.peak[peak] * found.attention_efficiency[side].for_time(outlook)
    products = tokens * flops.matmul_per_token * _matrix_factor(job, kind, side) / matrix_rate(job, outlook)
    attention = tokens * flops.attention_per_token * found.attention_flops[side] / attention_rate
    traffic = activations.stored.at(tokens) * found.layer_traffic[side] / memory_rate(job, outlook)
    return (products + attention) / parts + traffic + found.kernels_per_layer[side] * found.launch_seconds


def recomputed_seconds(share: Share, kind: LayerKind, tokens: int, policy: str, outlook: str) -> float:
    """Seconds of making one checkpointed layer again: all of its forward, or what selective recomputation leaves out.

    Results of attention and of every second matrix product are kept under `selective`.
    """
    whole = layer_seconds(share, kind, tokens, "forward", outlook)
    if policy != "selective":
        return whole
    job = share.job
    flops, found, gpu = job.flops_of(kind), coefficients(), job.cluster.gpu
    rate = gpu.peak[job.training.precision.peak] * found.attention_efficiency[0].for_time(outlook)
    attention = tokens * flops.attention_per_token / rate
    products = tokens * flops.matmul_per_token / matrix_rate(job, outlook)
    kept = kept_share(kind, job.architecture.hidden) * products + attention
    return max(0.0, whole - kept / share.layout.tensor)


def _matrix_factor(job: Job, kind: LayerKind, side: int) -> float:
    """Products of a pass per forward product: backward makes the input's gradient, and the weight's where it trains."""
    factor = coefficients().matrix_flops[side]
    return factor if side == 0 else factor / 2 * (1 + job.trainable_share(kind))


def loss_seconds(share: Share, tokens: int, direction: Pass, outlook: str) -> float:
    """Seconds of the output projection and the loss over `tokens` tokens on one tensor-parallel rank."""
    job = share.job
    found, side = coefficients(), 0 if direction == "forward" else 1
    products = tokens * job.flops.head_per_token * found.matrix_flops[side] / matrix_rate(job, outlook)
    traffic = tokens * job.architecture.vocabulary * found.logits_traffic[side] / memory_rate(job, outlook)
    return (products + traffic) / share.layout.tensor
