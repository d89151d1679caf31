"""Measured runs as jobs and plans of the planner, by machine: what a calibration is fitted to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from planner.accuracy.run_job import Case, run_case
from planner.accuracy.run_log import Run, read_run_log
from planner.accuracy.run_model import Skipped
from planner.accuracy.run_time import seconds_measured
from planner.accuracy.score import memory_measured
from planner.calibration import Calibration
from planner.errors import InputError
from planner.job import Job
from planner.lookup import Lookup, read_lookup
from planner.plan import Plan
from planner.reading import nearest
from planner.space import job_space
from planner.terms import Values
from planner.time_lines import step_time


@dataclass(frozen=True)
class Measured:
    """One run: job, plan, measured seconds of the step, bytes of a peak in `metric`; None or empty where unknown."""

    name: str
    job: Job
    plan: Plan
    seconds: float | None
    metric: str = ""
    bytes: float = 0.0
    ranks: str = ""

    def predicted(self, calibration: Calibration) -> float:
        """Seconds of the step under a calibration, whatever the job had."""
        return step_time(with_calibration(self.job, calibration), self._values).seconds

    @cached_property
    def _values(self) -> Values:
        """The plan's values and what follows from them; no calibration changes those."""
        return job_space(self.job).complete(self.plan)


@dataclass(frozen=True)
class Runs:
    """The runs that can be used, and how many cannot by reason."""

    measured: tuple[Measured, ...]
    skipped: Mapping[str, int]


def with_calibration(job: Job, calibration: Calibration) -> Job:
    """The job on the same machine with other multiples."""
    gpu = replace(job.cluster.gpu, calibration=calibration)
    return replace(job, cluster=replace(job.cluster, gpu=gpu))


def read_runs(path: Path, source: str = "", catalogs: Iterable[Path] = ()) -> Runs:
    """The runs of a log, of one source only where it is named, on machines of the shipped catalogs or of `catalogs`.

    Calibrations among these count for nothing here.

    Raises InputError for a malformed log or catalog, and where no run can be used.
    """
    runs, lookup = read_run_log(path), replace(read_lookup(catalogs), overlays=())
    known = list(dict.fromkeys(run.source for run in runs))
    if source and source not in known:
        raise InputError(f"no run of source '{source}'", str(path), path="--source", hint=nearest(source, known))
    found = usable((run for run in runs if source in ("", run.source)), lookup)
    if not found.measured:
        reasons = "; ".join(f"{count} × {reason}" for reason, count in found.skipped.items())
        raise InputError(
            "no run to calibrate from" + (f": {reasons}" if reasons else ""), str(path),
            expected="runs that state a step time or a peak, on GPUs of the catalog",
        )  # fmt: skip
    return found


def usable(runs: Iterable[Run], lookup: Lookup | None = None) -> Runs:
    """The runs that say enough for the planner to predict them."""
    found: list[Measured] = []
    skipped: Counter[str] = Counter()
    for run in runs:
        try:
            found.append(measured(run, lookup))
        except Skipped as reason:
            skipped[" ".join(str(reason).split())] += 1
    return Runs(tuple(found), dict(sorted(skipped.items(), key=lambda item: (-item[1], item[0]))))


def measured(run: Run, lookup: Lookup | None = None) -> Measured:
    """One run. Raises Skipped where it measured nothing, or the planner cannot describe it."""
    if run.use not in (None, "score"):
        raise Skipped("not for scoring")
    seconds, (metric, size) = seconds_measured(run), memory_measured(run)
    if seconds is None and not metric:
        raise Skipped("no measurement")
    case: Case = run_case(run, lookup)
    if case.time_unknown and not metric:
        raise Skipped(case.time_unknown)
    known = None if case.time_unknown else seconds
    return Measured(run.id, case.job, case.plan, known, metric, size, run.memory_ranks or "")
