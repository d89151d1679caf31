"""Runs of the small job whose step times follow from a calibration that is known."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from planner.calibrate.measured import Measured
from planner.calibration import Calibration
from planner.job import Job
from planner.space import job_space
from planner.time_lines import step_time
from tests.jobs import job, plan

LAYERS = 8
MODEL = {"parameters": 1_000_000_000, "layers": LAYERS, "vocabulary": 32000}


def run(name: str, truth: Calibration, micro_batch: int = 1, **training: Any) -> Measured:
    """One run of a model of a billion parameters on two A100, timed as the planner would under `truth`."""
    training = {"global_batch": 2 * micro_batch, **training}
    found = job(model=MODEL, training=training)
    chosen = plan(found, zero_stage=2, micro_batch=micro_batch)
    bare = Measured(name, found, chosen, None)
    return Measured(name, found, chosen, bare.predicted(truth))


def runs(truth: Calibration) -> tuple[Measured, ...]:
    """Runs that differ in length, batch and accumulation, and so in what takes their time."""
    shapes: Iterable[tuple[int, int, int]] = (
        (512, 1, 2), (512, 4, 8), (512, 16, 32), (2048, 1, 2), (2048, 4, 32), (8192, 1, 2), (16384, 1, 2),
        (32768, 1, 2),
    )  # fmt: skip
    return tuple(
        run(f"run-{length}-{micro}", truth, micro, sequence_length=length, global_batch=batch)
        for length, micro, batch in shapes
    )


def seconds(found: Job, run: Measured) -> float:
    """Predicted seconds of a run's plan under another job."""
    return step_time(found, job_space(found).complete(run.plan)).seconds
