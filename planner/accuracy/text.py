"""The accuracy of the planner as text: one line per source, the medians, what was skipped, and each run on request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.accuracy.score import Accuracy, Comparison, Score, Summary
from planner.units import format_bytes, format_seconds

_NONE = "–"
_HEADINGS = (
    "source", "memory", "error", "bias", "worst", "time", "error", "bias", "worst", "false fits", "false nos",
)  # fmt: skip
_ROW_HEADINGS = ("run", "metric", "predicted", "measured", "error", "step", "measured", "error", "verdict", "ran")


def accuracy_text(found: Accuracy, rows: bool) -> str:
    """The whole answer of `planner accuracy`; `rows` adds a line for every scored run."""
    parts = [f"{_runs(len(found.scores))} scored, {sum(found.skipped.values())} skipped"]
    if found.scores:
        parts += [_sources(found), _overall(found)]
    if rows and found.scores:
        parts.append(_table([_ROW_HEADINGS, *map(_row, found.scores)]))
    if found.skipped or found.skipped_times:
        parts.append(_skipped(found))
    return "\n\n".join(parts) + "\n"


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _sources(found: Accuracy) -> str:
    """A line per source: runs, mean absolute error, mean error and the largest one, of memory and of time."""
    lines = [
        (
            source.source, *_summary(source.memory), *_summary(source.time), str(source.false_fits),
            str(source.false_nos),
        )
        for source in found.sources
    ]  # fmt: skip
    return _table([_HEADINGS, *lines])


def _summary(summary: Summary) -> tuple[str, str, str, str]:
    error = summary.mean_absolute_error
    return str(summary.rows), _share(error), _signed(summary.bias), _signed(summary.worst)


def _overall(found: Accuracy) -> str:
    """Medians over sources, the worst runs, and false verdicts."""
    lines = [
        f"median over sources: memory {_share(found.memory_median)}, time {_share(found.time_median)}",
        f"false fits {found.false_fits}, false nos {found.false_nos}",
    ]
    for name in ("memory", "time"):
        worst = max((getattr(source, name) for source in found.sources), key=lambda item: abs(item.worst or 0.0))
        if worst.rows:
            lines.append(f"farthest off in {name}: {worst.worst_run} ({_signed(worst.worst)})")
    return "\n".join(lines)


def _row(score: Score) -> tuple[str, ...]:
    """One run's figures beside what was measured."""
    memory, time = score.memory, score.time
    ran = {True: "yes", False: "no", None: _NONE}[score.fits]
    return (
        score.run.id,
        memory.metric if memory else _NONE,
        format_bytes(memory.predicted) if memory else _NONE,
        format_bytes(memory.measured) if memory else _NONE,
        _error(memory),
        format_seconds(time.predicted) if time else _NONE,
        format_seconds(time.measured) if time else _NONE,
        _error(time),
        score.verdict,
        ran,
    )


def _error(comparison: Comparison | None) -> str:
    return _signed(comparison.error if comparison else None)


def _skipped(found: Accuracy) -> str:
    """How many runs each reason leaves out, the most first; then what leaves out a step time only."""
    counts = {**found.skipped, **{f"time only: {reason}": count for reason, count in found.skipped_times.items()}}
    width = len(str(max(counts.values())))
    return "\n".join(["skipped", *(f"  {count:>{width}}  {reason}" for reason, count in counts.items())])


def _share(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:.1f}%"


def _signed(value: float | None) -> str:
    return _NONE if value is None else f"{100 * value:+.1f}%"


def _table(lines: Iterable[Sequence[str]]) -> str:
    """Columns as wide as their longest cell, the first to the left and the rest to the right."""
    rows = list(lines)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(_cells(row, widths)) for row in rows)


def _cells(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    """The cells of one line, padded to the widths."""
    for index, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.rjust(width) if index else cell.ljust(width)
