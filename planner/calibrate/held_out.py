"""How well a calibration holds for runs it has not seen: every third run of a source calibrates, the rest is scored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from typing import Any

from planner.accuracy.run_log import read_run_log
from planner.calibrate.calibrating import calibrate_runs
from planner.calibrate.measured import Measured, Runs, usable
from planner.calibrate.overlay import calibrated
from planner.calibrate.overlay_file import Overlay
from planner.errors import InputError
from planner.job import Job
from planner.lookup import read_lookup
from planner.space import job_space
from planner.time_lines import step_time

THIRD = 3
LEAST_RUNS = 9


@dataclass(frozen=True)
class HeldOut:
    """One source: runs that calibrated, runs scored, and their mean absolute error of step time before and after."""

    source: str
    calibrating: int
    scored: int
    before: float
    after: float


def held_out(path: Path, source: str = "", catalogs: Iterable[Path] = ()) -> tuple[HeldOut, ...]:
    """Every source of a log, or one, that has enough timed runs. Raises InputError where there is none."""
    runs, lookup = read_run_log(path), replace(read_lookup(catalogs), overlays=())
    names = [name for name in dict.fromkeys(run.source for run in runs) if source in ("", name)]
    timed = {
        name: [run for run in usable((r for r in runs if r.source == name), lookup).measured if run.seconds]
        for name in names
    }
    found = tuple(_source(name, own) for name, own in timed.items() if len(own) >= LEAST_RUNS)
    if not found:
        raise InputError(f"no source has {LEAST_RUNS} runs with a step time", str(path), path="--hold-out")
    return found


def _source(name: str, runs: Sequence[Measured]) -> HeldOut:
    """One source's errors."""
    first, rest = runs[::THIRD], [run for index, run in enumerate(runs) if index % THIRD]
    overlay = Overlay(name, calibrate_runs(Runs(tuple(first), {})).entries)
    before = _error((run, run.job) for run in rest)
    after = _error((run, calibrated(run.job, [overlay])) for run in rest)
    return HeldOut(name, len(first), len(rest), before, after)


def _error(pairs: Iterable[tuple[Measured, Job]]) -> float:
    """Mean absolute relative error of the step times of runs under jobs."""
    return fmean(
        abs(step_time(job, job_space(job).complete(run.plan)).seconds / (run.seconds or 1.0) - 1.0)
        for run, job in pairs
    )


def held_out_answer(found: Sequence[HeldOut]) -> dict[str, Any]:
    """Errors as plain numbers by source, and their medians."""
    return {
        "sources": {
            one.source: {
                "calibrating": one.calibrating,
                "scored": one.scored,
                "before": round(one.before, 6),
                "after": round(one.after, 6),
            }
            for one in found
        },
        "median": {name: round(median(getattr(one, name) for one in found), 6) for name in ("before", "after")},
    }


def held_out_text(found: Sequence[HeldOut]) -> str:
    """A line for each source, and the medians."""
    lines = ["source      calibrating  scored   before    after"]
    lines += [f"{o.source:<12}{o.calibrating:>11}{o.scored:>8}{_share(o.before)}{_share(o.after)}" for o in found]
    before, after = (median(getattr(one, name) for one in found) for name in ("before", "after"))
    return "\n".join([*lines, f"{'median':<31}{_share(before)}{_share(after)}"]) + "\n"


def _share(value: float) -> str:
    return f"{100 * value:>7.1f} %"
