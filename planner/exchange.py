"""What ranks exchange inside a layer or between stages, as time terms: tensor, sequence, expert, pipeline parallelism.

Volumes per micro-batch, u = tokens of a rank × hidden × bytes of compute:
* tensor parallel: each block's output is all-reduced in forward, each block's input gradient in backward, u each
  (Shoeybi et al. 2019, arXiv:1909.08053, section 3). With a divided stream the all-reduce is a reduce-scatter and an
  all-gather (Korthikanti et al. 2022, arXiv:2205.05198, section 4.2), and backward gathers the input once more. What
  backward waits for is the runtime's (`tensor_backward`). Products in fp8 or narrower gather narrow activations
  (torchao float8 float8_tensor_parallel.py; Transformer Engine pytorch/module/layernorm_linear.py).
* context parallel: keys and values of the other ranks in forward, those and their gradients in backward (Liu et al.
  2023, arXiv:2310.01889), beside the attention that they feed.
* expert parallel: tokens to their experts and back, in both passes (Lepikhin et al. 2020, arXiv:2006.16668).
* pipeline: one stage's output to the next, its gradient back, each micro-batch and model chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache

from planner.architecture.shape import LayerKind
from planner.cluster import Group, collective_seconds
from planner.compute import clock, coefficients, overlap_slowdown
from planner.effects import Axis
from planner.job import Job
from planner.layouts import WHOLE, fullest_stage, layouts, stages
from planner.plan import Layout, layout_of, whole
from planner.share import Share, measure_name, node_shards, share_of
from planner.speed.matrix import OPERAND_BYTES
from planner.speed.seconds import NARROW
from planner.terms import BATCH, TimeTerm, Values

# The lane of each pipeline stage: stages run beside each other, and the slowest sets the pace.
STAGE_LANES = {WHOLE: "compute", "first": "compute", "inner": "compute_inner", "last": "compute_last"}

MESSAGES = "pipeline exchange"

Repeats = Callable[[Job, Values], float]


@dataclass(frozen=True)
class Exchange:
    """One kind of exchange: seconds of one layer's forward or backward, and the degree that it belongs to.

    `lane`: where it runs beside the layers' compute; empty where the layers wait for it.
    """

    name: str
    degree: str
    seconds: Callable[[Share, LayerKind, int, str, str], float]
    lane: str = ""


def tensor_seconds(share: Share, kind: LayerKind, tokens: int, direction: str, outlook: str) -> float:
    """Seconds of one layer's exchange between tensor-parallel ranks, one message for each block.

    What runs beside products costs what it takes from them, or what is left when they end.
    """
    each = _tensor_collectives(share, tokens, direction, outlook)
    awaited, beside = (blocks_that_add_up(kind) * part for part in each)
    exposed = awaited * exposed_tensor(share.job, outlook)
    if not beside:
        return exposed
    products = clock(share).layer(kind, tokens, "backward", outlook) / 2  # matrices cut by columns hold about half
    return exposed + max(beside * overlap_slowdown(share.job).at(outlook), beside - products)


def _tensor_collectives(share: Share, tokens: int, direction: str, outlook: str) -> tuple[float, float]:
    """Seconds of one block's collectives that the layers wait for, and of those beside products."""
    layout, job = share.layout, share.job
    group, elements = Group(size=layout.tensor, stride=1), tokens * job.architecture.hidden
    width, way = job.training.precision.compute_bytes, job.runtime.tensor_backward if direction == "backward" else ""
    if layout.whole_stream:
        reduce = collective_seconds(job.cluster, "all_reduce", elements * width, group, outlook)
        return (0.0, reduce) if way == "beside_products" else (reduce, 0.0)
    gather = collective_seconds(job.cluster, "all_gather", elements * gathered_bytes(job), group, outlook)
    scatter = collective_seconds(job.cluster, "reduce_scatter", elements * width, group, outlook)
    if way == "beside_products":
        return gather, gather + scatter
    return (2 * gather if way == "awaited" else gather) + scatter, 0.0


def gathered_bytes(job: Job) -> float:
    """Bytes per element of activations that tensor-parallel ranks gather: narrow where one scale is all they need."""
    peak, whole_scale = job.training.precision.peak, job.training.fp8_scaling == "tensor"
    return OPERAND_BYTES[peak] if peak in NARROW and whole_scale else job.training.precision.compute_bytes


def exposed_tensor(job: Job, outlook: str) -> float:
    """Share of a tensor-parallel exchange that the layers wait for."""
    how = "userbuffers" if job.training.kernels == "megatron" else "asynchronous"
    hidden: float = coefficients()["overlap"]["tensor_hidden"][how][outlook]
    return 1.0 - hidden if job.training.tensor_overlap else 1.0


def sequence_seconds(share: Share, kind: LayerKind, tokens: int, direction: str, outlook: str) -> float:
    """Seconds of one layer's keys and values between context-parallel ranks; backward sends their gradients too."""
    layout, job, attention = share.layout, share.job, kind.attention
    if attention is None:
        return 0.0
    heads = -(-attention.kv_heads // min(layout.tensor, attention.kv_heads))
    width = heads * (attention.head_dim + (attention.value_dim or attention.head_dim))
    size = tokens * layout.sequence * width * job.training.precision.compute_bytes
    group = Group(size=layout.sequence, stride=layout.tensor)
    gather = collective_seconds(job.cluster, "all_gather", size, group, outlook)
    back = collective_seconds(job.cluster, "reduce_scatter", size, group, outlook)
    return gather + (back if direction == "backward" else 0.0)


def expert_seconds(share: Share, kind: LayerKind, tokens: int, direction: str, outlook: str) -> float:
    """Seconds of one layer's two all-to-all between expert-parallel ranks, loads taken as even."""
    layout, job, block = share.layout, share.job, kind.feed_forward
    if block is None or not block.experts:
        return 0.0
    rows = tokens * block.experts_per_token / (1 if layout.whole_stream else layout.tensor)
    size = rows * job.architecture.hidden * job.training.precision.compute_bytes
    group = Group(size=layout.expert, stride=layout.tensor)
    return 2 * collective_seconds(job.cluster, "all_to_all", size, group, outlook)


def pipeline_seconds(share: Share, tokens: int, outlook: str) -> float:
    """Seconds of one stage's message to the next, for every model chunk of the stage."""
    return messages_seconds(share.job, share.layout, tokens, outlook)


def messages_seconds(job: Job, layout: Layout, tokens: int, outlook: str) -> float:
    """As `pipeline_seconds`, which is the same for all stages of a layout."""
    if layout.pipeline == 1:
        return 0.0
    parts = 1 if layout.whole_stream else layout.tensor
    return layout.virtual_stages * _message_seconds(job, parts, layout.ranks // layout.pipeline, tokens, outlook)


@lru_cache(maxsize=65536)
def _message_seconds(job: Job, parts: int, stride: int, tokens: int, outlook: str) -> float:
    """Seconds of one message of a stage's output, or of one of `parts` parts of it, to the rank `stride` further on."""
    size = tokens * job.architecture.hidden * job.training.precision.compute_bytes / parts
    return collective_seconds(job.cluster, "send_receive", size, Group(size=2, stride=stride), outlook)


def blocks_that_add_up(kind: LayerKind) -> int:
    """Blocks of a layer whose output ranks add up; parallel attention and feed-forward are added up once."""
    parts = (kind.attention, kind.cross_attention, kind.recurrence, kind.feed_forward)
    found = sum(part is not None for part in parts)
    return 1 if kind.parallel and found > 1 else found


EXCHANGES = (
    Exchange("tensor-parallel exchange", "tensor", tensor_seconds),
    Exchange("sequence-parallel exchange", "sequence", sequence_seconds, lane="communication"),
    Exchange("expert-parallel exchange", "expert", expert_seconds),
)


def exchange_terms(
    job: Job, windows: dict[str, Repeats], microseconds: Callable[[float], int], outlook: str
) -> Iterable[TimeTerm]:
    """The terms of every exchange that some layout of the job has, for each window and pipeline stage."""
    used = [exchange for exchange in EXCHANGES if _used(job, exchange.degree)]
    for stage in stages(job):
        for window, repeats in windows.items():
            for exchange in (exchange for exchange in used if not exchange.lane):
                yield _layers(job, stage, window, repeats, exchange, microseconds, outlook)
            if _used(job, "pipeline"):
                yield _between(job, stage, window, repeats, microseconds, outlook)
    for window, repeats in windows.items():
        for exchange in (exchange for exchange in used if exchange.lane):
            yield _layers(job, "", window, repeats, exchange, microseconds, outlook)
        if _used(job, "virtual_stages") and job.runtime.messages_beside_chunks:
            yield _beside_chunks(job, window, microseconds, outlook)


def _used(job: Job, degree: str) -> bool:
    """Whether some layout has more than one rank along a degree, or more than one chunk."""
    return any(getattr(layout, degree) > 1 for layout in layouts(job))


def _layers(
    job: Job,
    stage: str,
    window: str,
    repeats: Repeats,
    exchange: Exchange,
    rounded: Callable[[float], int],
    outlook: str,
) -> TimeTerm:
    """One exchange of all layers of a stage in one window.

    `stage` is empty where the exchange runs beside the layers: in the one lane for that the stage with the most layers
    is counted.
    """
    told = (stage,) if stage else stages(job)

    def body(values: Values) -> int:
        counted = told[0] if len(told) == 1 else fullest_stage(len(job.layer_kinds), layout_of(values))
        share, times = share_of(job, values, counted), repeats(job, values)
        return _exchanged(share, values, window, times, exchange, rounded, outlook)

    recomputed = tuple(measure_name(name, one) for one in told for name in job.recomputed_kinds)
    measures = () if window == "forward" else recomputed
    return TimeTerm(exchange.name, BATCH, measures, body, window, exchange.lane or STAGE_LANES[stage])


def _exchanged(
    share: Share,
    values: Values,
    window: str,
    times: float,
    exchange: Exchange,
    rounded: Callable[[float], int],
    outlook: str,
) -> int:
    """One exchange of all layers of a share, paid so many times; recomputed layers exchange in backward again."""
    if not share.exists or getattr(share.layout, exchange.degree) == 1:
        return 0
    job, tokens, direction = share.job, share.job.tokens(values), "forward" if window == "forward" else "backward"
    total = rounded(times * _all_layers(share, exchange, tokens, direction, outlook))
    if direction == "forward":
        return total
    recomputed = (measure_name(name, share.stage) for name in job.recomputed_kinds)
    again = zip(_each_kind(share, exchange, tokens, "forward", outlook), recomputed, strict=True)
    return total + sum(rounded(times * seconds) * whole(values, name) for seconds, name in again)


@lru_cache(maxsize=65536)
def _each_kind(share: Share, exchange: Exchange, tokens: int, direction: str, outlook: str) -> tuple[float, ...]:
    """Seconds of one layer's exchange for each kind of layer of the job."""
    return tuple(exchange.seconds(share, kind, tokens, direction, outlook) for kind, _ in share.job.kind_counts)


@lru_cache(maxsize=65536)
def _all_layers(share: Share, exchange: Exchange, tokens: int, direction: str, outlook: str) -> float:
    """Seconds of one exchange of all layers of a share."""
    return sum(n * exchange.seconds(share, kind, tokens, direction, outlook) for kind, n in share.kind_counts)


def _between(
    job: Job, stage: str, window: str, repeats: Repeats, rounded: Callable[[float], int], outlook: str
) -> TimeTerm:
    """What a stage receives from the one before it, and waits for, in one window."""

    def body(values: Values) -> int:
        share, tokens = share_of(job, values, stage), job.tokens(values)
        times = repeats(job, values) - _hidden_messages(share, window, values)
        return rounded(times * pipeline_seconds(share, tokens, outlook)) if share.exists else 0

    return TimeTerm(MESSAGES, BATCH, (), body, window, STAGE_LANES[stage])


def _beside_chunks(job: Job, window: str, rounded: Callable[[float], int], outlook: str) -> TimeTerm:
    """What a stage receives while it computes another chunk, in one window."""

    def body(values: Values) -> int:
        share, tokens = share_of(job, values, "first"), job.tokens(values)
        return rounded(_hidden_messages(share, window, values) * pipeline_seconds(share, tokens, outlook))

    return TimeTerm(MESSAGES, BATCH, (), body, window, "communication")


def messages_hide(job: Job, layout: Layout) -> bool:
    """Whether a stage computes one chunk while another's message is on its way."""
    return layout.virtual_stages > 1 and job.runtime.messages_beside_chunks


def _hidden_messages(share: Share, window: str, values: Values) -> int:
    """Micro-batches of a window whose messages pass while a stage computes another chunk.

    With several chunks a stage has one to compute while another's message is on its way, but for the pipeline's filling
    and draining (megatron/training/arguments.py: overlap_p2p_comm, on with the interleaved schedule alone).
    """
    if not messages_hide(share.job, share.layout):
        return 0
    micro_batches = share.job.micro_batches(values)
    return {"forward": micro_batches, "backward": micro_batches - 1}.get(window, 0)


def data_group(layout: Layout) -> Group:
    """The ranks that share one copy of the model states."""
    return Group(size=layout.shards, stride=layout.tensor)


def node_group(job: Job, layout: Layout) -> Group:
    """The ranks of one node among those that share one copy of the model states."""
    return Group(size=node_shards(job, layout), stride=layout.tensor)


def axis_group(job: Job, layout: Layout, axis: Axis) -> Group:
    """The ranks that a collective over an axis runs among."""
    if axis == "nodes":
        inside = node_shards(job, layout)
        return Group(size=layout.shards // inside, stride=layout.tensor * inside)
    return data_group(layout) if axis == "data" else node_group(job, layout)


def axis_part(job: Job, layout: Layout, axis: Axis) -> float:
    """Of what a node has, the part that each rank takes to such a collective."""
    return 1 / node_shards(job, layout) if axis == "nodes" else 1.0


def replica_group(layout: Layout) -> Group:
    """The ranks that hold the same part of different copies."""
    return Group(size=layout.replicas, stride=layout.tensor * layout.shards)
