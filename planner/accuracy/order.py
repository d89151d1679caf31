"""Whether the planner ranks runs as they were measured: Kendall's tau over runs that differ only in configuration."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

from planner.accuracy.run_log import Run
from planner.accuracy.score import Score

# Fewer runs of one source that can be compared say little about its order.
ENOUGH = 6
SAME_STEP = 0.005  # measured steps closer than half a percent are a tie: repetitions differ by as much


@dataclass(frozen=True)
class Order:
    """Pairs of comparable runs of a source, how many runs they are of, and tau: agreeing less disagreeing pairs."""

    source: str
    runs: int
    pairs: int
    tau: float


def orders(scores: Sequence[Score]) -> tuple[Order, ...]:
    """The order of each source that has a pair of comparable timed runs, in the order of the log."""
    timed = [score for score in scores if score.time is not None]
    keys = dict.fromkeys(score.run.source for score in timed)
    found = (_order(key, [score for score in timed if score.run.source == key]) for key in keys)
    return tuple(order for order in found if order.pairs)


def median_tau(found: Iterable[Order]) -> float | None:
    """The median over sources with enough comparable runs; None where there is none."""
    known = [order.tau for order in found if order.runs >= ENOUGH]
    return median(known) if known else None


def _order(source: str, scores: Sequence[Score]) -> Order:
    """All pairs inside groups of runs with the same model, machines and batch."""
    groups: dict[Hashable, list[Score]] = {}
    for score in scores:
        groups.setdefault(_task(score.run), []).append(score)
    signs = [sign for group in groups.values() for pair in combinations(group, 2) if (sign := _agreement(*pair))]
    runs = sum(len(group) for group in groups.values() if len(group) > 1)
    return Order(source, runs, len(signs), sum(signs) / len(signs) if signs else 0.0)


def _task(run: Run) -> Hashable:
    """What is trained on what: two runs with the same task differ in their configuration only."""
    model = (run.architecture, run.hidden, run.layers, run.heads, run.kv_heads, run.ffn_hidden, run.vocab, run.experts)
    return (*model, run.method, run.sequence_length, run.global_batch, run.gpu, run.gpus, run.precision)


def _agreement(one: Score, other: Score) -> int:
    """1 where both orders agree, -1 where they do not, 0 where the measured steps are a tie."""
    if one.time is None or other.time is None:
        return 0
    measured = one.time.measured / other.time.measured - 1.0
    if abs(measured) < SAME_STEP:
        return 0
    return 1 if (one.time.predicted > other.time.predicted) == (measured > 0) else -1
