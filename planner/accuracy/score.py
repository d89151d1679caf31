"""Holds the planner's figures against measured runs: peak memory, step time, and whether a run fits at all.

Errors are relative: predicted over measured, minus 1. A source is one laboratory or repository; figures over all
sources are medians of the sources' mean absolute errors, so that a long table does not outvote a short one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median
from typing import Any

from planner.accuracy.run_job import run_case
from planner.accuracy.run_log import Run, read_run_log
from planner.accuracy.run_model import Skipped
from planner.accuracy.run_time import seconds_measured
from planner.evaluate import Evaluation, evaluate
from planner.ledger import DeviceLedger, stage_ledgers
from planner.lookup import Lookup, read_lookup
from planner.units import GIB


@dataclass(frozen=True)
class Comparison:
    """One predicted and one measured figure in the same unit; `metric` says which."""

    metric: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True)
class Score:
    """One run held against the planner: memory in bytes, time in seconds, None where the run states no such figure.

    `verdict` is the ledger's for the GPU; `fits` whether the run ran, None where that is not to be scored.
    `time_unknown` says why a measured time is not scored beside the rest.
    """

    run: Run
    memory: Comparison | None
    time: Comparison | None
    verdict: str
    fits: bool | None
    time_unknown: str = ""

    @property
    def false_fit(self) -> bool:
        """The run ended out of memory, and the ledger says it fits."""
        return self.fits is False and self.verdict == "fits"

    @property
    def false_no(self) -> bool:
        """The run ran, and the ledger says it does not fit."""
        return self.fits is True and self.verdict == "no"


@dataclass(frozen=True)
class Summary:
    """Errors of several comparisons; None where there are none. `worst` is the error that is largest without its sign,
    `worst_run` the run that it belongs to."""

    rows: int
    mean_absolute_error: float | None = None
    bias: float | None = None
    worst: float | None = None
    worst_run: str = ""


@dataclass(frozen=True)
class SourceAccuracy:
    """The figures of one source."""

    source: str
    memory: Summary
    time: Summary
    false_fits: int
    false_nos: int


@dataclass(frozen=True)
class Accuracy:
    """Every run that was scored, and how many were skipped by reason."""

    scores: tuple[Score, ...]
    skipped: Mapping[str, int]

    @cached_property
    def sources(self) -> tuple[SourceAccuracy, ...]:
        """The figures of each source that has a scored run, in the order of the log."""
        keys = dict.fromkeys(score.run.source for score in self.scores)
        return tuple(_source(key, [score for score in self.scores if score.run.source == key]) for key in keys)

    @property
    def skipped_times(self) -> Mapping[str, int]:
        """Scored runs whose measured step time is left out, by reason."""
        return Counter(score.time_unknown for score in self.scores if score.time_unknown)

    @property
    def memory_median(self) -> float | None:
        """Median over sources of the mean absolute error of memory."""
        return _median(source.memory.mean_absolute_error for source in self.sources)

    @property
    def time_median(self) -> float | None:
        """Median over sources of the mean absolute error of step time."""
        return _median(source.time.mean_absolute_error for source in self.sources)

    @property
    def false_fits(self) -> int:
        """Runs out of memory that the ledger says fit."""
        return sum(score.false_fit for score in self.scores)

    @property
    def false_nos(self) -> int:
        """Runs that ran and that the ledger says do not fit."""
        return sum(score.false_no for score in self.scores)


def accuracy(path: Path, catalogs: Iterable[Path] = ()) -> Accuracy:
    """The planner's figures, with `catalogs` beside the shipped ones, held against every run of a log.

    Raises InputError for a malformed log or catalog.
    """
    lookup = read_lookup(catalogs)
    scores: list[Score] = []
    skipped: Counter[str] = Counter()
    for run in read_run_log(path):
        try:
            scores.append(score_run(run, lookup))
        except Skipped as reason:
            skipped[" ".join(str(reason).split())] += 1
    return Accuracy(tuple(scores), dict(sorted(skipped.items(), key=lambda item: (-item[1], item[0]))))


def score_run(run: Run, lookup: Lookup | None = None) -> Score:
    """One run held against the planner, with the shipped catalogs or those of `lookup`.

    Raises Skipped with the reason where that is not possible.
    """
    if run.use not in (None, "score") or (run.score_memory is False and run.score_time is False):
        raise Skipped("not for scoring")
    metric, measured = memory_measured(run)
    seconds, fits = seconds_measured(run), _ran(run)
    if not metric and seconds is None and fits is None:
        raise Skipped("no measurement to score")
    case = run_case(run, lookup)
    if case.time_unknown and not metric and fits is None:
        raise Skipped(case.time_unknown)
    evaluation = evaluate(case.job, case.plan)
    timed = seconds is not None and not case.time_unknown
    return Score(
        run=run,
        memory=Comparison(metric, memory_predicted(evaluation, metric, run.memory_ranks or ""), measured)
        if metric
        else None,
        time=Comparison("step", evaluation.step_time.seconds, seconds or 0.0) if timed else None,
        verdict=evaluation.ledger["gpu"].verdict,
        fits=fits,
        time_unknown=case.time_unknown if seconds is not None else "",
    )


# ── what a run states ────────────────────────────────────────────────────────────────────────────────────────────────


def memory_measured(run: Run) -> tuple[str, float]:
    """The metric and the bytes of the peak to score; an empty metric where there is none.

    Of several the one that needs the least beside the ledger: allocated, then reserved, then the device's.
    """
    if run.score_memory is not False and run.fits != "oom":
        for metric in ("allocated", "reserved", "device"):
            peak = getattr(run, f"peak_{metric}_gib")
            if peak is not None:
                return metric, peak * GIB
    return "", 0.0


def _ran(run: Run) -> bool | None:
    """Whether the run fitted; a measured figure says that it did. None where the verdict is not to be scored."""
    if run.score_memory is False:
        return None
    if run.fits is not None:
        return run.fits != "oom"
    peaks = (run.peak_allocated_gib, run.peak_reserved_gib, run.peak_device_gib)
    return True if any((*peaks, run.step_seconds, run.tokens_per_second_per_gpu)) else None


# ── what the planner says ────────────────────────────────────────────────────────────────────────────────────────────


def memory_predicted(evaluation: Evaluation, metric: str, ranks: str = "") -> float:
    """Peak bytes of one GPU in the metric of a tool.

    `allocated`: tensors alone, all books but `reserve`. `reserved`: with what the allocator wastes. `device`: with the
    `reserve` book besides, as nvidia-smi shows.
    """
    shown = measured_ledger(evaluation, ranks).shown(evaluation.job.runtime.fragmentation)
    return float(getattr(shown, metric))


def measured_ledger(evaluation: Evaluation, ranks: str) -> DeviceLedger:
    """The GPU's ledger of the rank that a run states: its first, its last, or else the one that holds the most."""
    stages = stage_ledgers(evaluation.job, evaluation.plan)
    one = {"rank0": "first", "last-rank": "last"}.get(ranks, "")
    return stages[one]["gpu"] if one in stages else evaluation.ledger["gpu"]


# ── sums over runs ───────────────────────────────────────────────────────────────────────────────────────────────────


def _source(key: str, scores: Sequence[Score]) -> SourceAccuracy:
    return SourceAccuracy(
        source=key,
        memory=_summary((score.run.id, score.memory) for score in scores),
        time=_summary((score.run.id, score.time) for score in scores),
        false_fits=sum(score.false_fit for score in scores),
        false_nos=sum(score.false_no for score in scores),
    )


def _summary(found: Iterable[tuple[str, Comparison | None]]) -> Summary:
    """The errors of the comparisons that exist."""
    errors = [(run, comparison.error) for run, comparison in found if comparison is not None]
    if not errors:
        return Summary(0)
    run, worst = max(errors, key=lambda item: abs(item[1]))
    values = [error for _, error in errors]
    return Summary(len(errors), fmean(map(abs, values)), fmean(values), worst, run)


def _median(values: Iterable[float | None]) -> float | None:
    """The median of the values that exist."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


# ── the answer ───────────────────────────────────────────────────────────────────────────────────────────────────────


def accuracy_answer(found: Accuracy) -> dict[str, Any]:
    """The figures as JSON-ready data.

    Errors are plain numbers (0.1 is ten percent too much), None where nothing is scored. Skipped reasons that start
    with `time:` count runs that are scored in all but their step time.
    """
    return {
        "sources": {
            source.source: {
                "memory": _summary_answer(source.memory),
                "time": _summary_answer(source.time),
                "false_fits": source.false_fits,
                "false_nos": source.false_nos,
            }
            for source in found.sources
        },
        "overall": {
            "memory_median_of_sources": _rounded(found.memory_median),
            "time_median_of_sources": _rounded(found.time_median),
            "false_fits": found.false_fits,
            "false_nos": found.false_nos,
            "rows": len(found.scores),
        },
        "skipped": {**found.skipped, **{f"time: {reason}": count for reason, count in found.skipped_times.items()}},
    }


def _summary_answer(summary: Summary) -> dict[str, Any]:
    return {
        "rows": summary.rows,
        "mean_absolute_error": _rounded(summary.mean_absolute_error),
        "bias": _rounded(summary.bias),
        "worst": _rounded(summary.worst),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)
