"""What must be recomputed at least, for a layout and micro-batch whose activations do not fit beside what stands.

A bound of the fractional kind: as if layers could be recomputed in parts, always by the way that frees a byte in the
least time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from planner.architecture.shape import LayerKind
from planner.blocks import BLOCK_CHOICES, Blocks, ways
from planner.compute import recomputed_seconds
from planner.exchange import EXCHANGES
from planner.job import Job
from planner.layouts import stages
from planner.memory import checkpoint_amount
from planner.plan import layout_of
from planner.recomputed_modules import modules_seconds
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
                found[stage] = min(self._forced(one, values, room, blocks) for blocks in self.blocks)
        return None if inf in found.values() else found

    @cached_property
    def blocks(self) -> tuple[Blocks, ...]:
        """How blocks of kept layers may run, which store less in tiles and without modules that are made again."""
        tiles, modules = map(self.standing.domains.__getitem__, BLOCK_CHOICES)
        return ways(map(int, tiles), modules)  # type: ignore[arg-type]

    def _forced(self, one: Share, values: Values, room: int, blocks: Blocks) -> float:
        """As `seconds` of one stage that has `room` bytes beside what stands, with blocks that run in one way.

        Beside what waits for its backward some layer runs forward. Modules are made again in layers that are all kept.
        """
        tokens, layers = self.job.tokens(values), [(one.of(kind, blocks), count) for kind, count in one.kind_counts]
        stored = sum(layer.stored.at(tokens) * count for layer, count in layers)
        running = max(
            min(layer.checkpointed_forward_live.at(tokens), layer.forward_live.at(tokens)) for layer, _ in layers
        )
        under_way = one.chunks(self.job.micro_batches(values)) / one.layout.virtual_stages
        short = stored - (room - running) / under_way
        if blocks.modules:
            return inf if short > 0 else self._modules(one, tokens, blocks)
        if short <= 0:
            return 0.0
        freed, once = 0.0, inf
        for kind, count in one.kind_counts:
            found = self._ways(one, kind, tokens, blocks)
            freed += count * max((size for size, _ in found), default=0)
            once = min(once, *(seconds / size for size, seconds in found), inf)
        return short * once if short <= freed else inf

    def _modules(self, one: Share, tokens: int, blocks: Blocks) -> float:
        """Seconds of making modules again in every layer of a stage."""
        modules, outlook = blocks.modules, self.outlook
        return sum(count * modules_seconds(one, kind, tokens, modules, outlook) for kind, count in one.kind_counts)

    def _ways(self, one: Share, kind: LayerKind, tokens: int, blocks: Blocks) -> list[tuple[float, float]]:
        """(bytes freed at most, seconds) of each way to recompute one layer, worked out once for alike divisions."""
        layout = one.layout
        key = (id(kind), layout.tensor, layout.sequence, layout.expert, layout.whole_stream, tokens, blocks)
        if key not in self.ways:
            self.ways[key] = list(self._each_way(one, kind, tokens, blocks))
        return self.ways[key]

    def _each_way(self, one: Share, kind: LayerKind, tokens: int, blocks: Blocks) -> Iterator[tuple[float, float]]:
        """As `_ways`; a checkpoint's own bytes are shared by as many layers as the longest segment has.

        A layer that is made again repeats the exchanges that it waits for.
        """
        longest = max(map(int, self.standing.domains["checkpoint_interval"]))  # type: ignore[arg-type]
        if not longest or all(kind is not found for found in self.job.recomputed_kinds.values()):
            return
        layer = one.of(kind, blocks)
        waited = [found for found in EXCHANGES if not found.lane and getattr(one.layout, found.degree) > 1]
        exchanged = sum(found.seconds(one, kind, tokens, "forward", self.outlook) for found in waited)
        for policy in map(str, self.standing.domains["recompute_policy"]):
            kept = checkpoint_amount(layer, {"recompute_policy": policy}).at(tokens) / longest
            size = layer.stored.at(tokens) - kept
            if size > 0:
                yield size, recomputed_seconds(one, kind, tokens, policy, self.outlook) + exchanged
