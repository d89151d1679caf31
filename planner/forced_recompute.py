"""What must be recomputed at least, for a layout and micro-batch whose activations do not fit beside the states.

A bound of the fractional kind: as if layers could be recomputed in parts, always by the way that frees a byte in the
least time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from planner.architecture.shape import LayerKind
from planner.compute import recomputed_seconds
from planner.floors import StandingFloors
from planner.job import Job
from planner.layouts import stages
from planner.memory import checkpoint_amount
from planner.plan import layout_of
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
        return min(self._forced(values, room, tiles) for tiles in map(int, self.standing.domains["mlp_tiles"]))  # type: ignore[arg-type]

    def _forced(self, values: Values, room: int, tiles: int) -> float:
        """As `seconds`, with `room` bytes for activations, feed-forward blocks in so many tiles, which store less."""
        layout, tokens = layout_of(values), self.job.tokens(values)
        first = share(self.job, layout, stages(self.job)[0])
        stored = sum(first.of(kind, tiles).stored.at(tokens) * count for kind, count in first.kind_counts)
        under_way = first.chunks(self.job.micro_batches(values)) / layout.virtual_stages
        short = stored - room / under_way
        if short <= 0:
            return 0.0
        freed, once = 0.0, inf
        for kind, count in first.kind_counts:
            found = self._ways(first, kind, tokens, tiles)
            freed += count * max((size for size, _ in found), default=0)
            once = min(once, *(seconds / size for size, seconds in found), inf)
        return short * once if short <= freed else inf

    def _ways(self, first: Share, kind: LayerKind, tokens: int, tiles: int) -> list[tuple[float, float]]:
        """(bytes freed at most, seconds) of each way to recompute one layer, worked out once for alike divisions."""
        layout = first.layout
        key = (id(kind), layout.tensor, layout.sequence, layout.expert, layout.whole_stream, tokens, tiles)
        if key not in self.ways:
            self.ways[key] = list(self._each_way(first, kind, tokens, tiles))
        return self.ways[key]

    def _each_way(self, first: Share, kind: LayerKind, tokens: int, tiles: int) -> Iterator[tuple[float, float]]:
        """As `_ways`; a checkpoint's own bytes are shared by as many layers as the longest segment has."""
        longest = max(map(int, self.standing.domains["checkpoint_interval"]))  # type: ignore[arg-type]
        if not longest or all(kind is not found for found in self.job.recomputed_kinds.values()):
            return
        layer = first.of(kind, tiles)
        for policy in map(str, self.standing.domains["recompute_policy"]):
            kept = checkpoint_amount(layer, {"recompute_policy": policy}).at(tokens) / longest
            size = layer.stored.at(tokens) - kept
            if size > 0:
                yield size, recomputed_seconds(first, kind, tokens, policy, self.outlook)
