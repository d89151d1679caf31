"""The layouts that a job may take, the pipeline stages that its ledger tells apart, and the layers of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from itertools import product

from planner.errors import InputError
from planner.job import Job
from planner.plan import Layout

DEGREES = ("tensor", "pipeline", "sequence", "expert", "virtual_stages")


def degree_name(degree: str) -> str:
    """The name under which a job or `--set` fixes a degree of a layout."""
    return degree if degree == "virtual_stages" else f"{degree}_parallel"


DEGREE_NAMES = tuple(map(degree_name, DEGREES))
WHOLE = "whole"
# Layers by which the first and the last stage may fall behind the fullest: the embedding costs memory only, logits and
# loss take the time of a layer or two.
SPARED = ((0, 1), (0, 2), (1, 1), (1, 2))
# Model chunks of a pipeline rank that are planned by themselves; a job may name more. Published runs have 2 to 8.
MOST_CHUNKS = 8
# Of the stages between the ends the second one holds the most: it has the most micro-batches under way.
STAGES = ("first", "inner", "last")


@lru_cache(maxsize=64)
def layouts(job: Job) -> tuple[Layout, ...]:
    """Legal layouts: degrees that the runtime has and the job allows, whose product is the number of GPUs.

    Tensor parallelism stays inside a node and divides the heads, expert parallelism divides the experts and lies inside
    the data-parallel ranks, a pipeline has at most as many stages as layers, and is interleaved only where every stage
    has as many model chunks of as many layers. Without pins every rank holds its own share of the batch, unless the
    runtime's catalog entry opens further degrees.
    """
    pinned = job.choices.get("layout")
    if pinned is not None:
        return tuple(value for value in pinned if isinstance(value, Layout))
    found = (_layout(job, *degrees) for degrees in product(*(_degrees(job, name) for name in DEGREES)))
    whole = (one for layout in found if layout is not None for one in _sharded(job, layout))
    legal = tuple(one for layout in whole for stream in _streams(job, layout) for one in _balanced(job, stream))
    if legal:
        return legal
    named = {name: job.choices[name] for name in DEGREE_NAMES if name in job.choices}
    text = ", ".join(f"{name} {' or '.join(map(str, values))}" for name, values in named.items())
    raise InputError(
        f"{text}: no such layout of {job.cluster.gpus} GPUs",
        path=f"choices.{next(iter(named), 'layout')}",
        expected="degrees that divide the GPUs, the model's heads, experts and tokens, and a layer for each stage",
    )


def _sharded(job: Job, layout: Layout) -> Iterable[Layout]:
    """The layout, and where nodes repeat and experts are whole, hybrid sharding: states divided inside a node only.

    Source: Zhao et al. 2023, PyTorch FSDP, arXiv:2304.11277 section 3.2.2.
    """
    yield layout
    inside = job.cluster.gpus_per_node // layout.tensor
    divides = layout.shards % max(1, inside) == 0 and inside % layout.sequence == 0
    if job.runtime.hybrid and 1 < inside < layout.shards and divides and layout.expert == 1:
        yield replace(layout, shard=inside)


def _streams(job: Job, layout: Layout) -> Iterable[Layout]:
    """The layout, and where the runtime has both, with the residual stream whole on every tensor-parallel rank."""
    yield layout
    if job.runtime.either_stream and layout.tensor > 1:
        yield replace(layout, whole_stream=not layout.whole_stream)


def _balanced(job: Job, layout: Layout) -> Iterable[Layout]:
    """The layout, and where the runtime has uneven stages, with layers moved from its ends to the stages between.

    Only as many as the fullest stage has room for: p stages of as many layers as the fullest hold more than there are.
    """
    yield layout
    if not job.runtime.uneven_stages or layout.pipeline < 3 or layout.virtual_stages > 1:
        return
    layers = len(job.layer_kinds)
    told = {tuple(stage_layers(layers, layout, stage)[1] for stage in STAGES)}
    for spared in SPARED:
        other = replace(layout, spared=spared)
        counts = tuple(stage_layers(layers, other, stage)[1] for stage in STAGES)
        room = -(-layers // layout.pipeline) * layout.pipeline - layers
        if sum(spared) <= room and min(counts) > 0 and counts not in told:
            told.add(counts)
            yield other


def _degrees(job: Job, name: str) -> tuple[int, ...]:
    """The values of one degree: those that the job names and the model can have, else all that the runtime opens."""
    named = job.choices.get(degree_name(name))
    if named is not None:
        return tuple(value for value in named if isinstance(value, int) and _suits(job, name, value))
    return tuple(_possible(job, name)) if name in job.runtime.degrees else (1,)


def _possible(job: Job, name: str) -> Iterable[int]:
    """Values of a degree that the model and the cluster allow, rising."""
    most = {
        "tensor": job.cluster.gpus_per_node,
        "pipeline": len(job.layer_kinds),
        "sequence": job.cluster.gpus_per_node,
        "expert": job.experts,
        "virtual_stages": len(job.layer_kinds),
    }[name]
    if name == "virtual_stages":
        yield from (chunks for chunks in range(1, min(most, MOST_CHUNKS) + 1) if most % chunks == 0)
        return
    ranks = job.cluster.gpus_per_node if name in ("tensor", "sequence") else job.cluster.gpus
    for degree in range(1, min(max(1, most), job.cluster.gpus) + 1):
        if ranks % degree == 0 and _suits(job, name, degree):
            yield degree


def _suits(job: Job, name: str, degree: int) -> bool:
    """Whether the model can be cut that way: heads, experts and tokens evenly, a layer at least for each stage."""
    if name in ("pipeline", "virtual_stages"):
        return degree <= len(job.layer_kinds)
    whole = {"tensor": job.heads, "sequence": job.training.sequence_length, "expert": job.experts}
    return whole[name] % degree == 0


def _layout(job: Job, tensor: int, pipeline: int, sequence: int, expert: int, chunks: int) -> Layout | None:
    """The layout with these degrees, data parallelism taking the remaining ranks; None where they do not divide."""
    data, rest = divmod(job.cluster.gpus, tensor * pipeline * sequence)
    if rest or not data or (data * sequence) % expert:
        return None
    if chunks > 1 and (pipeline == 1 or len(job.layer_kinds) % (pipeline * chunks)):
        return None
    whole = job.runtime.whole_stream and tensor > 1
    return Layout(tensor, pipeline, sequence, expert, data, chunks, whole_stream=whole)


@lru_cache(maxsize=64)
def cuts(job: Job) -> tuple[Layout, ...]:
    """A layout of each way in which the job's layouts cut the layers into stages."""
    return tuple({(layout.pipeline, layout.spared): layout for layout in layouts(job)}.values())


@lru_cache(maxsize=64)
def stages(job: Job) -> tuple[str, ...]:
    """The stages that need a ledger of their own: one for the whole model unless some layout has a pipeline."""
    return STAGES if any(layout.pipeline > 1 for layout in layouts(job)) else (WHOLE,)


def stage_rank(layout: Layout, stage: str) -> int:
    """Position of a stage in its pipeline, from 0."""
    return {"first": 0, WHOLE: 0, "inner": 1, "last": layout.pipeline - 1}[stage]


@lru_cache(maxsize=16384)
def stage_layers(layers: int, layout: Layout, stage: str) -> tuple[int, int]:
    """(first, count) of the layers that a stage holds; no layers where the pipeline has no such stage.

    Stages are equal, and where they cannot be, the earlier ones hold one more. Where only the embedding and the output
    projection make the numbers even, each of the two takes the place of a layer (70 layers over 12 stages: 5, 6 … 6, 5;
    Megatron-LM --account-for-embedding-in-pipeline-split, and the partition of BLOOM). `layout.spared` says otherwise.
    """
    ranks = layout.pipeline
    if ranks == 1:
        return (0, layers) if stage in (WHOLE, "first") else (0, 0)
    each, extra = divmod(layers, ranks)
    if layout.spared:
        each += extra > 0
        first, last = (each - fewer for fewer in layout.spared)
        inner = -(-(layers - first - last) // max(1, ranks - 2)) if ranks > 2 else 0
        counts = {"first": first, "inner": inner, "last": last}
    elif extra and (layers + 2) % ranks == 0:
        each = (layers + 2) // ranks
        counts = {"first": each - 1, "inner": each, "last": each - 1}
    else:
        counts = {"first": each + (extra > 0), "inner": each + (extra > 1), "last": each}
    if stage == "inner" and ranks == 2:
        return 0, 0
    return {"first": 0, "inner": counts["first"], "last": layers - counts["last"]}[stage], counts[stage]


def fullest_stage(layers: int, layout: Layout) -> str:
    """The stage that holds the most layers; of equal ones the first."""
    return max(STAGES, key=lambda stage: stage_layers(layers, layout, stage)[1])


def stage_counts(layers: int, layout: Layout) -> list[int]:
    """Layers of every stage of a pipeline, from its first to its last; they add up to `layers`.

    Those between the second one and the last hold what the others leave, as evenly as may be.
    """
    ranks = layout.pipeline
    if ranks == 1:
        return [layers]
    first, last = stage_layers(layers, layout, "first")[1], stage_layers(layers, layout, "last")[1]
    each, extra = divmod(layers - first - last, max(1, ranks - 2))
    return [first, *(each + (index < extra) for index in range(ranks - 2)), last]


def chunks_under_way(layout: Layout, stage: str, micro_batches: int) -> int:
    """Model chunks of a stage whose activations are alive at once; a stage is cut into `virtual_stages` chunks.

    One forward, one backward: stage r of p holds p - r micro-batches (Narayanan et al. 2021, arXiv:2104.04473, section
    2.2). Interleaved with v chunks per rank: 2 (p - r - 1) + (v - 1) p + 1 chunks (megatron-core
    pipeline_parallel/schedules.py, warm-up).
    """
    ranks, rank, chunks = layout.pipeline, stage_rank(layout, stage), layout.virtual_stages
    if ranks == 1:
        return chunks
    if chunks == 1:
        return min(micro_batches, ranks - rank)
    return min(micro_batches * chunks, 2 * (ranks - rank - 1) + (chunks - 1) * ranks + 1)
