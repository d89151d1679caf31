"""What must be recomputed at least, for a layout and micro-batch whose activations do not fit beside what stands.

A bound of the fractional kind: as if layers could be recomputed in parts, always by the way that frees a byte in the
least time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf

from planner.architecture.shape import LayerKind
from planner.compute import recomputed_seconds
from planner.exchange import EXCHANGES
from planner.job import Job
from planner.layouts import stages
from planner.memory import checkpoint_amount
from planner.plan import layout_of
from planner.share import Share, share
from planner.standing import StandingFloors
from planner.terms import Values


@dataclass(frozen=True, eq=False)
class ForcedRecompute:
    """Recomputation that no plan of a job can do without; `standing` are the least bytes of all else."""

    job: Job
    standing: StandingFloors
    outlook: str = "typical"
    ways: dict[tuple[object, ...], list[tuple[float, float]]] = field(default_factory=dict)

    def seconds(self, values: Values) -> Mapping[str, float] | None:
        """Seconds that backward of a micro-batch takes longer on each stage; None where nothing makes room.

        Where activations can move to the host, nothing is forced.
        """
        limit = self.standing.limit
        if limit is None or "cpu" in self.standing.domains["activation_offload"]:
            return {}
        stands = self.standing.places(layout_of(values))
        found = {}
        for stage in stages(self.job):
            one = share(self.job, layout_of(values), stage)
            if one.exists:
                room = limit.capacity - stands.get((stage, "forward"), 0)
                found[stage] = min(self._forced(one, values, room, tiles) for tiles in self._tiles)
        return None if inf in found.values() else found

    @property
    def _tiles(self) -> tuple[int, ...]:
        """Into how many tiles feed-forward blocks may go."""
        return tuple(map(int, self.standing.domains["mlp_tiles"]))  # type: ignore[arg-type]

    def _forced(self, one: Share, values: Values, room: int, tiles: int) -> float:
        """As `seconds` of one stage that has `room` bytes beside what stands, feed-forward blocks in so many tiles.

        Blocks in tiles store less. Beside what waits for its backward some layer runs forward.
        """
        tokens, layers = self.job.tokens(values), [(one.of(kind, tiles), count) for kind, count in one.kind_counts]
        stored = sum(layer.stored.at(tokens) * count for layer, count in layers)
        running = max(
            min(layer.checkpointed_forward_live.at(tokens), layer.forward_live.at(tokens)) for layer, _ in layers
        )
        under_way = one.chunks(self.job.micro_batches(values)) / one.layout.virtual_stages
        short = stored - (room - running) / under_way
        if short <= 0:
            return 0.0
        freed, once = 0.0, inf
        for kind, count in one.kind_counts:
            found = self._ways(one, kind, tokens, tiles)
            freed += count * max((size for size, _ in found), default=0)
            once = min(once, *(seconds / size for size, seconds in found), inf)
        return short * once if short <= freed else inf

    def _ways(self, one: Share, kind: LayerKind, tokens: int, tiles: int) -> list[tuple[float, float]]:
        """(bytes freed at most, seconds) of each way to recompute one layer, worked out once for alike divisions."""
        layout = one.layout
        key = (id(kind), layout.tensor, layout.sequence, layout.expert, layout.whole_stream, tokens, tiles)
        if key not in self.ways:
            self.ways[key] = list(self._each_way(one, kind, tokens, tiles))
        return self.ways[key]

    def _each_way(self, one: Share, kind: LayerKind, tokens: int, tiles: int) -> Iterator[tuple[float, float]]:
        """As `_ways`; a checkpoint's own bytes are shared by as many layers as the longest segment has.

        A layer that is made again repeats the exchanges that it waits for.
        """
        longest = max(map(int, self.standing.domains["checkpoint_interval"]))  # type: ignore[arg-type]
        if not longest or all(kind is not found for found in self.job.recomputed_kinds.values()):
            return
        layer = one.of(kind, tiles)
        waited = [found for found in EXCHANGES if not found.lane and getattr(one.layout, found.degree) > 1]
        exchanged = sum(found.seconds(one, kind, tokens, "forward", self.outlook) for found in waited)
        for policy in map(str, self.standing.domains["recompute_policy"]):
            kept = checkpoint_amount(layer, {"recompute_policy": policy}).at(tokens) / longest
            size = layer.stored.at(tokens) - kept
            if size > 0:
                yield size, recomputed_seconds(one, kind, tokens, policy, self.outlook) + exchanged
