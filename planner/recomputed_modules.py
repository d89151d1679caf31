"""Time of modules that backward makes again in layers without a checkpoint (Megatron's selective recomputation)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.architecture.shape import LayerKind
from planner.blocks import modules_of
from planner.compute import clock
from planner.exchange import STAGE_LANES, Repeats, blocks_that_add_up, tensor_seconds
from planner.job import Job
from planner.layouts import stages
from planner.share import Share, share_of
from planner.terms import TimeTerm, Values

SCOPE = ("layout", "micro_batch", "recompute_modules")
# Modules that end with a sum over tensor-parallel ranks, which is made again with them.
EXCHANGED = ("mlp", "shared_experts")


def module_terms(
    job: Job, windows: dict[str, Repeats], microseconds: Callable[[float], int], outlook: str
) -> Iterable[TimeTerm]:
    """What making modules again adds to every backward, for each window and pipeline stage."""
    if any(blocks.modules for blocks in job.block_ways):
        for stage in stages(job):
            for window, repeats in windows.items():
                if window != "forward":
                    yield _term(job, stage, window, repeats, microseconds, outlook)


def _term(
    job: Job, stage: str, window: str, repeats: Repeats, rounded: Callable[[float], int], outlook: str
) -> TimeTerm:
    """What modules add to one window of a stage."""

    def body(values: Values) -> int:
        share, modules = share_of(job, values, stage), modules_of(values["recompute_modules"])
        if not modules or not share.exists:
            return 0
        tokens = job.tokens(values)
        once = (count * modules_seconds(share, kind, tokens, modules, outlook) for kind, count in share.kind_counts)
        return rounded(repeats(job, values) * sum(once))

    return TimeTerm("recomputed modules", SCOPE, (), body, window, STAGE_LANES[stage])


def modules_seconds(share: Share, kind: LayerKind, tokens: int, modules: tuple[str, ...], outlook: str) -> float:
    """Seconds of making modules of one layer again, with what tensor-parallel ranks exchange for it."""
    if not modules:
        return 0.0
    own = clock(share).modules(kind, tokens, modules, outlook)
    if share.layout.tensor == 1:
        return own
    block, parts = tensor_seconds(share, kind, tokens, "forward", outlook) / blocks_that_add_up(kind), 0.0
    parts += sum(_holds(name, kind) for name in EXCHANGED if name in modules)
    parts += _gathered_latents(share, kind) if "mla_up_proj" in modules else 0.0
    return own + parts * block


def _holds(module: str, kind: LayerKind) -> bool:
    """Whether a layer has such a module."""
    block = kind.feed_forward
    if block is None:
        return False
    return block.shared_width > 0 if module == "shared_experts" else not block.experts


def _gathered_latents(share: Share, kind: LayerKind) -> float:
    """The latents that up-projections gather, as a part of what a block gathers and scatters of the stream."""
    block = kind.attention
    if block is None or block.kind != "mla" or share.layout.whole_stream:
        return 0.0
    return (block.query_latent + block.key_value_latent) / (2 * share.job.architecture.hidden)
