"""The predicted step time by the terms that a profiler tells apart, beside what it measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.activation_copies import DIRECTIONS
from planner.effect_terms import job_effects
from planner.effects import Collective, Transfer, Update
from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.job import Job
from planner.space import job_space
from planner.time_lines import StepTime, TimeLine, step_time
from planner.verify.step_profile import (
    BACKWARD,
    FORWARD,
    HIDDEN,
    HOST_UPDATE,
    NOTHING,
    OPERATIONS,
    RECOMPUTATION,
    REST,
    TERMS,
    TO_GPU,
    TO_HOST,
    UPDATE,
    Profile,
    profile,
)  # fmt: skip
from planner.verify.trace_events import read_trace

WINDOWS = {"forward": FORWARD, "backward": BACKWARD, "last_backward": BACKWARD, "optimizer_step": UPDATE}
MOVED = {"to_gpu": TO_GPU, "from_gpu": TO_HOST}
DRIVES = "copies to and from NVMe"
# What the step time's terms call a gather that recomputed layers need once more.
AGAIN = ", once more"
# What `planner calibrate` fits for a term, by the names of a calibration.
FIGURES: Mapping[str, str] = {
    **dict.fromkeys((FORWARD, BACKWARD, RECOMPUTATION), "products, attention, memory"),
    **dict.fromkeys(OPERATIONS.values(), "inside_node, between_nodes"),
    **dict.fromkeys((TO_GPU, TO_HOST), "host_link"),
    UPDATE: "weights", HOST_UPDATE: "cpu_optimizer", NOTHING: "launches",
}  # fmt: skip
SLOWED = "what collectives slow down, and copies around them on the device, are counted in the compute of their pass"
ON_GPUS = (SLOWED, "a collective lasts until its last rank has come: waiting for it counts as sending")
ON_PROCESSORS = (
    "the predicted times are a GPU's, the measured ones those of processors: their shares say where time goes, no more",
    SLOWED,
    "host and device are one memory here: copies between them count as compute, an update on the host as the optimizer",
)
UNSEEN = "what drives read and write is no operator of torch, and stands in no trace"


@dataclass(frozen=True)
class TimeRow:
    """Seconds of a term of one step: `low` to `high` predicted, and measured in `count` pieces of work.

    `counted`: the terms of the step time that are in the prediction.
    """

    name: str
    predicted: float
    low: float
    high: float
    measured: float
    count: int
    counted: tuple[str, ...]

    @property
    def error(self) -> float | None:
        """Predicted over measured, less one; None where one of them is nothing."""
        return self.predicted / self.measured - 1 if self.predicted and self.measured else None

    @property
    def outside(self) -> bool:
        """Whether the measured time lies outside the predicted range."""
        return not self.low <= self.measured <= self.high


@dataclass(frozen=True)
class Times:
    """The rows of a profiled step, its seconds, and what they do not tell."""

    seconds: float
    rows: tuple[TimeRow, ...]
    notes: tuple[str, ...]


NO_TIMES = Times(0.0, (), ())


def times_of(evaluation: Evaluation, trace: Path, on_gpu: bool) -> Times:
    """The times of a trace; where it cannot be read, the reason as a note."""
    try:
        found = profile(read_trace(trace), on_gpu)
    except InputError as error:
        return Times(0.0, (), (f"no time by term: {error}",))
    rows = time_rows(evaluation, found)
    notes = (*(ON_GPUS if on_gpu else ON_PROCESSORS), *((UNSEEN,) if any(row.name == DRIVES for row in rows) else ()))
    return Times(found.seconds, rows, notes)


def time_rows(evaluation: Evaluation, found: Profile) -> tuple[TimeRow, ...]:
    """Every term that is predicted or measured; hidden time is negative, and all rows add up to a step."""
    job, values = evaluation.job, job_space(evaluation.job).complete(evaluation.plan)
    outlooks = (evaluation.step_time, *(step_time(job, values, outlook) for outlook in ("low", "high")))
    predicted, low, high = (predicted_terms(job, outlook) for outlook in outlooks)
    counted = lines_by_term(job, evaluation.step_time)
    measured = {name: spent.seconds for name, spent in found.terms.items()}
    measured |= {HIDDEN: -found.hidden, NOTHING: found.nothing}
    return tuple(
        TimeRow(
            name, predicted.get(name, 0.0), low.get(name, 0.0), high.get(name, 0.0), measured.get(name, 0.0),
            found.terms[name].count if name in found.terms else 0,
            tuple(dict.fromkeys(line.name for line in counted.get(name, ()))),
        )
        for name in (*TERMS, DRIVES, HIDDEN, NOTHING) if predicted.get(name) or measured.get(name)
    )  # fmt: skip


def predicted_terms(job: Job, predicted: StepTime) -> dict[str, float]:
    """Seconds of a step time by the profiler's terms."""
    found = lines_by_term(job, predicted)
    seconds = {name: sum(line.microseconds for line in lines) / 1e6 for name, lines in found.items()}
    return {**seconds, HIDDEN: -predicted.hidden / 1e6}


def lines_by_term(job: Job, predicted: StepTime) -> dict[str, list[TimeLine]]:
    """The lines of a step time in each of the profiler's terms."""
    acting = {
        (effect.name, effect.source): _effect_term(effect)
        for effect in job_effects(job) if isinstance(effect, (Collective, Transfer, Update))
    }  # fmt: skip
    found: dict[str, list[TimeLine]] = {}
    for line in predicted.own:
        found.setdefault(_term(line, acting), []).append(line)
    return found


def _term(line: TimeLine, acting: Mapping[tuple[str, str], str]) -> str:
    """The profiler's term of a line; whatever else the GPU does in a window is compute there."""
    known = acting.get((line.name.removesuffix(AGAIN), line.source))
    if known:
        return known
    if line.lane == "host_link":
        return MOVED[DIRECTIONS[line.window]]
    if line.source == "calibration":
        return REST
    return RECOMPUTATION if line.name == "recompute" else WINDOWS[line.window]


def _effect_term(effect: Collective | Transfer | Update) -> str:
    """The term that an effect's time is in."""
    if isinstance(effect, Collective):
        return OPERATIONS[effect.operation]
    if isinstance(effect, Transfer):
        return MOVED.get(effect.direction, DRIVES)
    return HOST_UPDATE if effect.unit == "cpu" else UPDATE
