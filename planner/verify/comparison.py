"""Prediction beside measurement: books, phases and step time of one run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from planner.driver_names import means
from planner.evaluate import Evaluation
from planner.ledger import DeviceLedger
from planner.terms import BOOKS
from planner.units import format_seconds
from planner.verify.time_rows import FIGURES, NO_TIMES, Times

# Books and phases may differ by this share of the larger figure.
TOLERANCE = 0.03
# The steps of a run before the measured one: moments appear in the first, stage 3 gathers ahead from the second on.
WARM_STEPS = 2
STEP = ("forward", "loss", "backward", "optimizer_step")


@dataclass(frozen=True)
class Row:
    """One figure, predicted and measured, in bytes or seconds."""

    name: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, less one; 0 where both are nothing."""
        return self.predicted / self.measured - 1 if self.measured else float(bool(self.predicted))

    @property
    def apart(self) -> float:
        """The difference as a share of the larger figure."""
        largest = max(self.predicted, self.measured)
        return abs(self.predicted - self.measured) / largest if largest else 0.0


@dataclass(frozen=True, eq=False)
class Comparison:
    """A measured run of a plan.

    `books`: the most of each book during a step. `phases`: the peak of each phase, without what driver and libraries
    take, which a process does not see in its own tensors. Both are those of the rank that holds most.
    `others`: reserved memory, driver and libraries, step time; only where the run was on GPUs. `times`: what a profiler
    saw of one more step.
    """

    evaluation: Evaluation
    measured: Mapping[str, Any]
    books: tuple[Row, ...]
    phases: tuple[Row, ...]
    others: tuple[Row, ...]
    times: Times = NO_TIMES

    @property
    def agrees(self) -> bool:
        """Whether every book and every phase is within the tolerance."""
        return all(row.apart <= TOLERANCE for row in (*self.books, *self.phases))

    @property
    def on_gpus(self) -> bool:
        """Whether the run was on GPUs, so that its times mean something."""
        return bool(self.measured["device"] != "cpu")


def compare(evaluation: Evaluation, measured: Mapping[str, Any], times: Times = NO_TIMES) -> Comparison:
    """The comparison of a plan's ledger and step time with what its ranks wrote."""
    gpu, phases = evaluation.ledger["gpu"], measured["phases"]
    return Comparison(
        evaluation, measured,
        books=tuple(row for book in BOOKS if book != "reserve" for row in _book(gpu, phases, book)),
        phases=tuple(
            Row(name, moment.total - moment.books["reserve"], sum(phases[name]["peak"].values()))
            for name, moment in gpu.phases.items() if name in phases
        ),
        others=tuple(_others(evaluation, measured)),
        times=times,
    )  # fmt: skip


def _book(gpu: DeviceLedger, phases: Mapping[str, Any], book: str) -> list[Row]:
    """The most of a book over the phases of a step; nothing where none is predicted."""
    predicted = max(moment.books[book] for moment in gpu.moments if moment.phase in STEP)
    measured = max(phases[name]["most"].get(book, 0) for name in STEP if name in phases)
    return [Row(book, predicted, measured)] if predicted else []


def step_seconds(measured: Mapping[str, Any]) -> float:
    """Seconds of a step: the median of those between the first ones and the measured last one, where there are any."""
    import statistics

    seconds = measured["seconds"]
    return float(statistics.median(seconds[WARM_STEPS:-1] or seconds[WARM_STEPS:] or seconds))


def _others(evaluation: Evaluation, measured: Mapping[str, Any]) -> list[Row]:
    """Reserved memory, the whole device, and time: figures of GPUs."""
    if measured["device"] == "cpu":
        return []
    gpu = evaluation.ledger["gpu"]
    return [
        Row("reserved by the allocator", gpu.reserved(evaluation.job.runtime.fragmentation), measured["peak_reserved"]),
        Row("driver and libraries", gpu.reserve, measured["used"] - measured["reserved"]),
        Row("step time", evaluation.step_time.seconds, step_seconds(measured)),
    ]


def advice(found: Comparison) -> tuple[str, ...]:
    """What to calibrate, one sentence for each figure that is off."""
    lines = [
        f"{row.name}: predicted {row.error:+.1%}; compare its lines with `planner ledger`"
        for row in (*found.books, *found.phases) if row.apart > TOLERANCE
    ]  # fmt: skip
    for row in found.others:
        if row.name == "step time" and not _within(found, row.measured):
            lines.append(f"step time: predicted {row.error:+.1%}; fit the GPU's efficiencies with `planner calibrate`")
        elif row.name != "step time" and row.apart > TOLERANCE:
            lines.append(f"{row.name}: predicted {row.error:+.1%}; fit the runtime's margin with `planner calibrate`")
    return (*lines, *_time_advice(found)) if found.on_gpus else tuple(lines)


def _time_advice(found: Comparison) -> Iterator[str]:
    """What to calibrate by the profiled step: terms outside of their range that matter, and a GPU of another kind."""
    for row in found.times.rows:
        matters = max(row.predicted, row.measured) > TOLERANCE * found.times.seconds
        if matters and row.outside and row.name in FIGURES:
            both = f"predicted {format_seconds(row.predicted)}, measured {format_seconds(row.measured)}"
            told = both if row.error is None else f"predicted {row.error:+.1%}"
            yield f"{row.name}: {told}; calibrate {FIGURES[row.name]}"
    name, gpu = str(found.measured["gpu"]), found.evaluation.job.cluster.gpu
    if not means(name, gpu):
        yield f"measured on {name}, and the job's GPU is {gpu.key}: times are those of another GPU"


def _within(found: Comparison, seconds: float) -> bool:
    """Whether a time lies in the predicted range."""
    return found.evaluation.low_seconds <= seconds <= found.evaluation.high_seconds
