"""What if: the best plans over a few sequence lengths, micro-batches and GPUs, all solved beforehand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.explain.choices import Asker
from planner.explain.sentences import misses
from planner.job import Job
from planner.plan import Value
from planner.space import job_space
from planner.sweep import Progress
from planner.units import format_bytes, format_seconds
from planner.variants import Changes, Source, machine

SHARES = (0.5, 1, 2, 4)  # of the job's sequence length
GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "rtx4090-24gb")
OTHER_GPUS = 2  # of them beside the job's own
# Of a job with more points than this (many layouts) only the nearest questions are asked: each takes seconds.
MANY_POINTS, NEAR_SHARES, NEAR_GPUS = 2000, (1, 2), 1
MOST_MICRO_BATCHES = 8
FREE = 0  # stands for a micro-batch that is left to the planner


@dataclass(frozen=True)
class Axes:
    """The values that are asked for; micro-batch FREE is the planner's own."""

    lengths: tuple[int, ...]
    micro_batches: tuple[int, ...]
    gpus: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Cell:
    """The answer for one length, micro-batch and GPU: a plan, or the nearest miss, or only why there is neither."""

    text: str
    plan: Evaluation | None


@dataclass(frozen=True, eq=False)
class Grid:
    """Every answer by (length, micro-batch, GPU); `here` is the job's own place."""

    axes: Axes
    here: tuple[int, int, str]
    cells: Mapping[tuple[int, int, str], Cell]


def grid_axes(job: Job, near: bool = False) -> Axes:
    """The job's own values with some beside them, or with the `near` ones alone."""
    length = job.training.sequence_length
    lengths = sorted({max(1, int(length * share)) for share in (NEAR_SHARES if near else SHARES)})
    own = job.cluster.gpu.key
    others = [name for name in GPUS if name != own][: NEAR_GPUS if near else OTHER_GPUS]
    return Axes(tuple(lengths), (FREE, *_micro_batches(job)), (own, *others))


def _micro_batches(job: Job) -> Sequence[int]:
    """Micro-batches that the job may have, powers of two where there are many."""
    values = [value for value in job_space(job).by_name["micro_batch"].values if isinstance(value, int)]
    powers = [value for value in values if value & (value - 1) == 0]
    return (values if len(values) <= MOST_MICRO_BATCHES else powers)[:MOST_MICRO_BATCHES]


def solve_grid(source: Source, progress: Progress | None = None) -> Grid:
    """Every cell, one enumeration of the plans for each length and GPU."""
    job = source.job()
    own = Asker(job)
    here = job.training.sequence_length, job.cluster.gpu.key
    axes = grid_axes(job, near=len(own.points.points) > MANY_POINTS)
    cells: dict[tuple[int, int, str], Cell] = {}
    pairs = [(length, gpu) for gpu in axes.gpus for length in axes.lengths]
    for number, (length, gpu) in enumerate(pairs):
        if progress is not None:
            progress(number, len(pairs))
        asker = own if (length, gpu) == here else _asker(source, length, gpu)
        for size in axes.micro_batches:
            cells[length, size, gpu] = asker if isinstance(asker, Cell) else _cell(asker, size)
    return Grid(axes, (here[0], FREE, here[1]), cells)


def _asker(source: Source, length: int, gpu: str) -> Asker | Cell:
    """The questions about the job with a length and GPU, or why it cannot be one."""
    try:
        return Asker(source.varied(_changes(source, length, gpu)))
    except InputError as error:
        return Cell(f"cannot be: {error.message}", None)


def _changes(source: Source, length: int, gpu: str) -> Changes:
    """What a length and a GPU replace in the job's file."""
    return {**machine(source, gpu), "training.sequence_length": length}


def _cell(asker: Asker, size: int) -> Cell:
    """One answer."""
    allowed: dict[str, Sequence[Value]] = {} if size == FREE else {"micro_batch": (size,)}
    if size != FREE and size not in asker.specification.space.by_name["micro_batch"].values:
        return Cell(f"cannot be: micro-batch {size} does not divide the batch of a rank", None)
    best = asker.best(allowed)
    if best is not None:
        return Cell(best_text(best), best)
    miss = asker.nearest(allowed)
    if miss is None:
        return Cell("cannot be: no plan keeps the rules, whatever the memory", None)
    return Cell(f"does not fit: {'; '.join(misses(miss))}", miss)


def best_text(best: Evaluation) -> str:
    """A plan's figures in a line."""
    return (
        f"fits: {format_seconds(best.step_time.seconds)} a step, {best.tokens_per_second_per_gpu:,.0f} tokens/s per "
        f"GPU, {format_bytes(best.peak_bytes)} per GPU"
    )


def rows(grid: Grid) -> Iterator[tuple[str, int, int, Cell]]:
    """Every cell with its GPU, length and micro-batch, in the order of the axes."""
    for gpu in grid.axes.gpus:
        for length in grid.axes.lengths:
            for size in grid.axes.micro_batches:
                yield gpu, length, size, grid.cells[length, size, gpu]
