"""Time of feed-forward blocks that go through their tokens in tiles: one more forward, and products of fewer rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.architecture.shape import LayerKind
from planner.compute import block_seconds
from planner.exchange import STAGE_LANES, Repeats
from planner.job import Job
from planner.layouts import stages
from planner.plan import whole
from planner.share import Share, measure_name, share_of
from planner.terms import TimeTerm, Values

SCOPE = ("layout", "micro_batch", "mlp_tiles")
Rounded = Callable[[float], int]


def tile_terms(job: Job, windows: dict[str, Repeats], microseconds: Rounded, outlook: str) -> Iterable[TimeTerm]:
    """What tiles add to the layers' passes, for each window and pipeline stage.

    Forward runs tile by tile. Backward makes each tile again (deepspeed 0.19.8
    runtime/sequence_parallel/ulysses_sp.py, TiledMLP). In a recomputed layer the block runs to its end, closing product
    included, since its input is kept once all of it is done.
    """
    if any(blocks.tiles > 1 for blocks in job.block_ways):
        for stage in stages(job):
            for window, repeats in windows.items():
                yield _term(job, stage, window, repeats, microseconds, outlook)


def _term(job: Job, stage: str, window: str, repeats: Repeats, rounded: Rounded, outlook: str) -> TimeTerm:
    """What tiles add to one window of a stage."""
    recomputed = {measure_name(name, stage): kind for name, kind in job.recomputed_kinds.items()}
    backward = window != "forward"

    def body(values: Values) -> int:
        share, tiles = share_of(job, values, stage), whole(values, "mlp_tiles")
        if tiles == 1 or not share.exists:
            return 0
        times, tokens = repeats(job, values), job.tokens(values)
        more = _backward if backward else _forward
        total = sum(count * more(share, kind, tokens, tiles, outlook) for kind, count in share.kind_counts)
        if not backward:
            return rounded(times * total)
        again = ((name, _recomputed(share, kind, tokens, tiles, outlook)) for name, kind in recomputed.items())
        return rounded(times * total) + sum(rounded(times * seconds) * whole(values, name) for name, seconds in again)

    measures = tuple(recomputed) if backward else ()
    return TimeTerm("feed-forward blocks in tiles", SCOPE, measures, body, window, STAGE_LANES[stage])


def _tiled(share: Share, kind: LayerKind, tokens: int, tiles: int, outlook: str) -> float:
    """Seconds of a block's forward in tiles."""
    return tiles * block_seconds(share, kind, tokens / tiles, "forward", outlook)


def _forward(share: Share, kind: LayerKind, tokens: int, tiles: int, outlook: str) -> float:
    return _tiled(share, kind, tokens, tiles, outlook) - block_seconds(share, kind, tokens, "forward", outlook)


def _backward(share: Share, kind: LayerKind, tokens: int, tiles: int, outlook: str) -> float:
    once = tiles * block_seconds(share, kind, tokens / tiles, "backward", outlook)
    whole_block = block_seconds(share, kind, tokens, "backward", outlook)
    return _tiled(share, kind, tokens, tiles, outlook) + once - whole_block


def _recomputed(share: Share, kind: LayerKind, tokens: int, tiles: int, outlook: str) -> float:
    return _tiled(share, kind, tokens, tiles, outlook) - block_seconds(share, kind, tokens, "recompute", outlook)
