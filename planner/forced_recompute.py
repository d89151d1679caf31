"""What must be recomputed at least, for a layout and micro-batch whose activations do not fit beside the states.

A bound of the fractional kind: as if layers could be recomputed in parts, always by the way that frees a byte in the
least time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from planner.architecture.shape import LayerKind
from planner.blocks import BLOCK_CHOICES, Blocks, ways
from planner.compute import recomputed_seconds
from planner.floors import StandingFloors
from planner.job import Job
from planner.layouts import stages
from planner.memory import checkpoint_amount
from planner.plan import layout_of
from planner.recomputed_modules import modules_seconds
from planner.share import Share, share
from planner.terms import Values


@dataclass(frozen=True, eq=False)
class ForcedRecompute:
    """Recomputation that no plan of a job can do without; `standing` are the least bytes of its states."""

    job: Job
    standing: StandingFloors
    outlook: str = "typical"
    ways: dict[tuple[object, ...], list[tuple[float, float]]] = field(default_factory=dict)

    def seconds(self, values: Values) -> float:
        """Seconds that backward of a micro-batch takes longer on the first stage; infinity where nothing makes room.

        The first stage has the most micro-batches under way. Where activations can move to the host, nothing is forced.
        """
        limit = self.standing.limit
        if limit is None or "cpu" in self.standing.domains["activation_offload"]:
            return 0.0
        room = limit.capacity - self.standing.bytes(layout_of(values))
        return min(self._forced(values, room, blocks) for blocks in self.blocks)

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """How blocks of kept layers may run, which store less in tiles and without modules that are made again."""
        tiles, modules = map(self.standing.domains.__getitem__, BLOCK_CHOICES)
        return ways(map(int, tiles), modules)  # type: ignore[arg-type]

    def _forced(self, values: Values, room: int, blocks: Blocks) -> float:
        """As `seconds`, with `room` bytes for activations and blocks that run in one way."""
        layout, tokens = layout_of(values), self.job.tokens(values)
        first = share(self.job, layout, stages(self.job)[0])
        stored = sum(first.of(kind, blocks).stored.at(tokens) * count for kind, count in first.kind_counts)
        under_way = first.chunks(self.job.micro_batches(values)) / layout.virtual_stages
        short = stored - room / under_way
        modules = sum(
            count * modules_seconds(first, kind, tokens, blocks.modules, self.outlook)
            for kind, count in first.kind_counts
        )
        if short <= 0 or blocks.modules:  # modules are made again in layers that are all kept
            return inf if short > 0 else modules
        freed, once = 0.0, inf
        for kind, count in first.kind_counts:
            found = self._ways(first, kind, tokens, blocks)
            freed += count * max((size for size, _ in found), default=0)
            once = min(once, *(seconds / size for size, seconds in found), inf)
        return short * once if short <= freed else inf

    def _ways(self, first: Share, kind: LayerKind, tokens: int, blocks: Blocks) -> list[tuple[float, float]]:
        """(bytes freed at most, seconds) of each way to recompute one layer, worked out once for alike divisions."""
        layout = first.layout
        key = (id(kind), layout.tensor, layout.sequence, layout.expert, layout.whole_stream, tokens, blocks)
        if key not in self.ways:
            self.ways[key] = list(self._each_way(first, kind, tokens, blocks))
        return self.ways[key]

    def _each_way(self, first: Share, kind: LayerKind, tokens: int, blocks: Blocks) -> Iterator[tuple[float, float]]:
        """As `_ways`; a checkpoint's own bytes are shared by as many layers as the longest segment has."""
        longest = max(map(int, self.standing.domains["checkpoint_interval"]))  # type: ignore[arg-type]
        if not longest or all(kind is not found for found in self.job.recomputed_kinds.values()):
            return
        layer = first.of(kind, blocks)
        for policy in map(str, self.standing.domains["recompute_policy"]):
            kept = checkpoint_amount(layer, {"recompute_policy": policy}).at(tokens) / longest
            size = layer.stored.at(tokens) - kept
            if size > 0:
                yield size, recomputed_seconds(first, kind, tokens, policy, self.outlook)
