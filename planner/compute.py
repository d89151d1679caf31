"""Seconds of one layer's, the embedding's or the loss's pass on one rank, from what the job says about how it runs.

Formulas stand in `planner.speed`, coefficients with their sources in `catalogs/efficiency/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from statistics import NormalDist
from typing import Any, Literal, cast

from planner.architecture.shape import LayerKind
from planner.hardware import Range
from planner.job import Job
from planner.share import Share
from planner.speed import seconds as speed
from planner.speed.attention import AttentionShape, attention_seconds
from planner.speed.memory_bound import update_seconds
from planner.speed.operations import Division

Pass = Literal["forward", "backward"]
USUAL_HEAD = 128
# What a loss runs as under a set of kernels: torch.compile joins its passes, also in chunks.
LOSS_OF_KERNELS: Mapping[tuple[str, str], str] = {
    ("compiled", "standard"): "compiled",
    ("compiled", "chunked"): "compiled",
    ("megatron", "standard"): "parallel",
}


@lru_cache(maxsize=1)
def coefficients() -> Mapping[str, Any]:
    """The content of `catalogs/compute.yaml`."""
    from planner.reading import read_document

    text = files("catalogs").joinpath("compute.yaml").read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", read_document("catalogs/compute.yaml", text=text).data)


@lru_cache(maxsize=64)
def overlap_slowdown(job: Job) -> Range:
    """Seconds of compute lost per second of a collective beside it, on the job's GPU."""
    entry = coefficients()["overlap"]
    found = entry["architectures"].get(job.cluster.gpu.architecture, entry["other"])
    return Range(found["low"], found["typical"], found["high"])


@lru_cache(maxsize=1024)
def pace(ranks: int, outlook: str) -> float:
    """Time of the slowest of `ranks` cards over that of the slowest in the runs that the efficiencies are from.

    The most of n normal variables is about the quantile (n - 3/8) / (n + 1/4) (Blom 1958).
    """
    entry = coefficients()
    spread: float = entry["variation"][outlook]

    def slowest(count: int) -> float:
        return 1.0 + spread * NormalDist().inv_cdf((count - 0.375) / (count + 0.25))

    return slowest(ranks) / slowest(entry["measured_ranks"]["value"])


# ── how a job runs its layers ────────────────────────────────────────────────────────────────────────────────────────


def attention_kernel(job: Job, kind: LayerKind) -> str:
    """The attention of the speed catalog that a layer runs."""
    asked, block = job.training.attention, kind.attention
    if asked == "eager":
        return "fused-softmax" if job.training.kernels == "megatron" else "eager"
    if block is not None and block.alibi:
        return "flash1"
    if job.training.deterministic:
        # cuDNN's backward is not: Transformer Engine 2.11 pytorch/attention/dot_product_attention
        return "deterministic"
    return "sdpa" if asked == "sdpa" else job.runtime.flash_kernel


def loss_of(job: Job, named: str) -> str:
    """The loss of the speed catalog: the one that is named, or what the job's kernels make of it."""
    return LOSS_OF_KERNELS.get((job.training.kernels, named), named)


@dataclass(frozen=True, eq=False)
class Clock:
    """Times of a job's layers on one rank of a division; every answer is worked out once."""

    job: Job
    division: Division
    settings: dict[tuple[str, str], speed.Setting] = field(default_factory=dict)
    found: dict[tuple[object, ...], float] = field(default_factory=dict)
    blocks: dict[int, LayerKind] = field(default_factory=dict)

    def setting(self, attention: str, loss: str = "standard") -> speed.Setting:
        """How layers with this attention, and logits with this loss, run."""
        if (attention, loss) not in self.settings:
            job = self.job
            self.settings[attention, loss] = speed.Setting(
                peak=job.training.precision.peak,
                kernels=job.training.kernels,
                attention=attention,
                loss=loss_of(job, loss),
                division=self.division,
                weight_casts=job.casts,
                accumulated_bytes=job.runtime.accumulated_bytes,
                host="compiled" if job.training.kernels == "compiled" else "eager",
                stops_early=job.runtime.stops_early,
                dequantized=job.training.method == "qlora",
                row_scaled=job.training.fp8_scaling == "row",
            )
        return self.settings[attention, loss]

    @property
    def vocabulary(self) -> int:
        """Rows of the embedding: Megatron fills them up so that each rank has a multiple of 128."""
        rows = self.job.architecture.vocabulary
        unit = 128 * self.division.tensor_parallel if self.job.training.kernels == "megatron" else 1
        return -(-rows // unit) * unit

    def layer(self, kind: LayerKind, tokens: int, direction: speed.Pass, outlook: str) -> float:
        """Seconds of one pass of one layer over a micro-batch of `tokens` tokens of this rank."""
        key = (id(kind), tokens, direction, outlook)  # kinds live as long as the job
        seconds = self.found.get(key)
        if seconds is None:
            alone = self._pass(kind, kind, tokens, direction, outlook)
            alone += self._undescribed_attention(kind, tokens, direction, outlook)
            seconds = self.found[key] = alone * pace(self.job.cluster.gpus, outlook)
        return seconds

    def block(self, kind: LayerKind, tokens: float, direction: speed.Pass, outlook: str) -> float:
        """Seconds of one pass of a layer's feed-forward block alone."""
        key = ("block", id(kind), tokens, direction, outlook)
        if key not in self.found:
            if id(kind) not in self.blocks:
                self.blocks[id(kind)] = _block_alone(kind)
            alone = self._pass(kind, self.blocks[id(kind)], tokens, direction, outlook)
            self.found[key] = alone * pace(self.job.cluster.gpus, outlook)
        return self.found[key]

    def modules(self, kind: LayerKind, tokens: int, modules: tuple[str, ...], outlook: str) -> float:
        """Seconds of making modules of a layer again."""
        key = ("modules", id(kind), tokens, modules, outlook)
        if key not in self.found:
            alone = self._pass(kind, kind, tokens, "modules", outlook, modules)
            self.found[key] = alone * pace(self.job.cluster.gpus, outlook)
        return self.found[key]

    def _pass(
        self,
        kind: LayerKind,
        part: LayerKind,
        tokens: float,
        direction: speed.Pass,
        outlook: str,
        modules: tuple[str, ...] = (),
    ) -> float:
        """Seconds of one pass of a part of a layer, or of some modules of it, on a card of usual pace."""
        job, setting = self.job, self.setting(attention_kernel(self.job, kind))
        if modules:
            setting = replace(setting, modules=modules)
        hidden, length = job.architecture.hidden, job.training.sequence_length
        return speed.layer_seconds(job.cluster.gpu, part, hidden, tokens, length, direction, setting, outlook)

    def _undescribed_attention(self, kind: LayerKind, tokens: int, direction: speed.Pass, outlook: str) -> float:
        """Seconds of attention that only a trace tells of: its FLOP as those of full heads of usual width."""
        job, length = self.job, self.job.training.sequence_length
        if kind.attention is not None or kind.recurrence is not None or direction == "selective":
            return 0.0
        heads = job.flops_of(kind).attention_per_token / (2 * USUAL_HEAD * length)
        if not heads:
            return 0.0
        side: Pass = "backward" if direction == "backward" else "forward"
        shape = AttentionShape(tokens / length, length, heads, heads, USUAL_HEAD, USUAL_HEAD)
        kernel = attention_kernel(job, kind)
        return attention_seconds(job.cluster.gpu, job.training.precision.peak, shape, side, kernel, outlook)

    def head(self, tokens: int, direction: Pass, outlook: str, loss: str = "standard") -> float:
        """Seconds of the last norm, the output projection and the loss."""
        key = ("head", tokens, direction, outlook, loss)
        if key not in self.found:
            job, architecture = self.job, self.job.architecture
            self.found[key] = pace(job.cluster.gpus, outlook) * speed.head_seconds(
                job.cluster.gpu, architecture.hidden, self.vocabulary, tokens, direction,
                self.setting("", loss), outlook, norm=job.layer_kinds[-1].norm, trained=job.trains_head,
            )  # fmt: skip
        return self.found[key]

    def embedding(self, tokens: int, direction: Pass, outlook: str) -> float:
        """Seconds of looking the embedding up, or of its gradient."""
        key = ("embedding", tokens, direction, outlook)
        if key not in self.found:
            job, architecture = self.job, self.job.architecture
            self.found[key] = speed.embedding_seconds(
                job.cluster.gpu, architecture.hidden, self.vocabulary, tokens, direction,
                self.setting(""), outlook,
            )  # fmt: skip
        return self.found[key]


def _block_alone(kind: LayerKind) -> LayerKind:
    """The layer without its attention and its norms."""
    tensors = tuple(tensor for tensor in kind.tensors if tensor.role == "mlp")
    return replace(kind, tensors=tensors, attention=None, cross_attention=None, recurrence=None, norms=0)


@lru_cache(maxsize=4096)
def _clock(job: Job, tensor: int, sequence_parallel: bool, expert: int, sequence: int) -> Clock:
    """The clock of a division, made once."""
    return Clock(job, Division(tensor, sequence_parallel, expert, sequence, job.runtime.context))


def clock(share: Share) -> Clock:
    """The clock of the ranks that hold a share."""
    layout = share.layout
    return _clock(share.job, layout.tensor, not layout.whole_stream, layout.expert, layout.sequence)


# ── what terms ask for ───────────────────────────────────────────────────────────────────────────────────────────────


def layers_seconds(share: Share, tokens: int, direction: Pass, outlook: str) -> float:
    """Seconds of one pass over all layers of a share."""
    times = clock(share)
    return sum(count * times.layer(kind, tokens, direction, outlook) for kind, count in share.kind_counts)


def ends_seconds(share: Share, tokens: int, direction: Pass, outlook: str, loss: str = "standard") -> float:
    """Seconds of one pass over the embedding, and over logits and loss, where a share has them."""
    times = clock(share)
    first = times.embedding(tokens, direction, outlook) if share.is_first else 0.0
    return first + (times.head(tokens, direction, outlook, loss) if share.is_last else 0.0)


def recomputed_seconds(share: Share, kind: LayerKind, tokens: int, policy: str, outlook: str) -> float:
    """Seconds of making one checkpointed layer again: all of its forward, or what the policy leaves out."""
    return clock(share).layer(kind, tokens, "selective" if policy == "selective" else "recompute", outlook)


def block_seconds(share: Share, kind: LayerKind, tokens: float, direction: speed.Pass, outlook: str) -> float:
    """Seconds of one pass of a layer's feed-forward block alone, in a recomputation without its closing product."""
    return clock(share).block(kind, tokens, direction, outlook)


def updated_seconds(job: Job, traffic: float, tensors: int, outlook: str) -> float:
    """Seconds of an optimizer update on the GPU whose kernels touch `traffic` bytes of `tensors` tensors."""
    streamed = traffic / job.training.optimizer.step_bandwidth_share
    return update_seconds(job.cluster.gpu, streamed, 1.0, tensors, outlook)
