"""The accuracy of the planner as a page of Markdown: what `docs/accuracy.md` is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from planner.accuracy.order import median_tau, orders
from planner.accuracy.score import Accuracy, Summary

_INTRODUCTION = """# Accuracy

Predictions of the shipped catalogs beside published measurements. Made by `make accuracy` out of
[measured/runs.csv](measured/README.md); `planner accuracy docs/measured/runs.csv --rows` shows every run, and your own
runs in the same columns can be scored the same way.

An error is predicted over measured, minus 1. Memory is compared in the metric that a run states: tensors allocated,
what the allocator reserves, or what the device shows. A run that ended out of memory and is said to fit is a false fit,
one that ran and is said not to fit a false no."""


def accuracy_page(found: Accuracy) -> str:
    """The whole page; the same runs give the same text."""
    parts = [_INTRODUCTION, "## By source", _sources(found), _overall(found), "## Order", *_orders(found)]
    if found.skipped or found.skipped_times:
        parts += ["## Not scored", _skipped(found)]
    return "\n\n".join(parts) + "\n"


def _sources(found: Accuracy) -> str:
    heads = (
        "source", "memory rows", "mean error", "bias", "worst", "time rows", "mean error", "bias", "worst",
        "false fits", "false nos",
    )  # fmt: skip
    rows = (
        (s.source, *_summary(s.memory), *_summary(s.time), str(s.false_fits), str(s.false_nos)) for s in found.sources
    )
    return _table(heads, rows)


def _summary(summary: Summary) -> tuple[str, str, str, str]:
    error = "–" if summary.mean_absolute_error is None else f"{100 * summary.mean_absolute_error:.1f} %"
    return str(summary.rows), error, _signed(summary.bias), _signed(summary.worst)


def _overall(found: Accuracy) -> str:
    memory, time = found.memory_median, found.time_median
    return (
        f"Over all {len(found.scores)} scored runs: median of sources {_plain(memory)} for memory and {_plain(time)} "
        f"for step time, {found.false_fits} false fits, {found.false_nos} false nos."
    )


def _orders(found: Accuracy) -> Iterable[str]:
    """Which of two configurations of one task is faster."""
    known = orders(found.scores)
    yield (
        "Kendall's tau over pairs of runs with the same model, machines and batch that differ in configuration: 1 "
        "where every pair is ranked as measured, 0 where the order is a coin's."
    )
    yield _table(
        ("source", "runs", "pairs", "tau"),
        ((order.source, str(order.runs), str(order.pairs), f"{order.tau:.2f}") for order in known),
    )
    middle = median_tau(known)
    yield "No source has enough such runs." if middle is None else f"Median of sources with six or more: {middle:.2f}."


def _skipped(found: Accuracy) -> str:
    counts = {**found.skipped, **{f"step time only: {reason}": count for reason, count in found.skipped_times.items()}}
    return _table(("runs", "reason"), ((str(count), reason) for reason, count in counts.items()))


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _plain(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:+.1f} %"
