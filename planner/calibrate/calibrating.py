"""Calibrates every machine of a log: one entry for each GPU and runtime, one more for a GPU with several runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.calibrate.fit import Fit, Fitted, fit
from planner.calibrate.margin import fit_margin
from planner.calibrate.measured import Measured, Runs, read_runs
from planner.calibrate.overlay_file import Entry, Errors, Figure


@dataclass(frozen=True)
class Calibrated:
    """The entries, and runs that were left out by reason."""

    entries: tuple[Entry, ...]
    skipped: Mapping[str, int]


def calibrate(path: Path, source: str = "", catalogs: Iterable[Path] = ()) -> Calibrated:
    """Calibrates from the runs of a log. Raises InputError where none can be used."""
    return calibrate_runs(read_runs(path, source, catalogs))


def calibrate_runs(runs: Runs) -> Calibrated:
    """Calibrates from runs."""
    return Calibrated(tuple(_entries(runs.measured)), runs.skipped)


def _entries(runs: Sequence[Measured]) -> Iterable[Entry]:
    """Machine by machine in the order of the runs."""
    for gpu in dict.fromkeys(run.job.cluster.gpu.key for run in runs):
        own = [run for run in runs if run.job.cluster.gpu.key == gpu]
        runtimes = list(dict.fromkeys(run.job.runtime.runtime for run in own))
        for runtime in runtimes:
            yield _entry(gpu, runtime, [run for run in own if run.job.runtime.runtime == runtime])
        if len(runtimes) > 1:
            yield _entry(gpu, "", own)


def _entry(gpu: str, runtime: str, runs: Sequence[Measured]) -> Entry:
    """One machine under one runtime, or under all of them, which have no margin in common."""
    found, margin = fit(runs), fit_margin(runs if runtime else [])
    return Entry(
        gpu=gpu,
        runtime=runtime,
        runs=len(runs),
        error=_errors(found),
        time={item.group.name: _figure(item) for item in found.fitted},
        memory=margin.margin,
        cannot_tell={**found.cannot_tell, **(margin.cannot_tell if runtime else {})},
    )


def _errors(found: Fit) -> Errors | None:
    return Errors(before=round(found.before, 4), after=round(found.after, 4)) if found.runs else None


def _figure(item: Fitted) -> Figure:
    value, error = round(item.value, 6), round(item.error, 6)
    return Figure(seconds=value, error=error) if item.group.constant else Figure(times=value, error=error)
