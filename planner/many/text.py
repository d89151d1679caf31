"""The rows of a sweep as a table, as CSV and as an answer."""

from __future__ import annotations

from typing import Any

from planner.many.results import csv_text
from planner.many.row import Row
from planner.many.sweeping import Sweep
from planner.units import format_bytes, format_seconds

TITLES = ("status", "cluster", "step", "tokens/s per GPU", "peak", "plan")
RIGHT = ("step", "tokens/s per GPU", "peak")


def sweep_answer(found: Sweep) -> dict[str, Any]:
    """The answer of `planner sweep`."""
    return {
        "rows": list(found.rows), "fields": list(found.fields), "reused": found.reused, "remaining": found.remaining,
    }  # fmt: skip


def sweep_csv(found: Sweep) -> str:
    """The rows as CSV."""
    return csv_text(found.rows, found.fields)


def sweep_text(found: Sweep, _: bool = False) -> str:
    """A line for each job, and how many there are of each kind."""
    titles = ("job", *found.fields, *TITLES)
    table = [titles, *(_cells(found, row) for row in found.rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(titles))]
    lines = [
        "  ".join(
            f"{cell:>{width}}" if title in RIGHT else f"{cell:<{width}}"
            for title, cell, width in zip(titles, cells, widths, strict=True)
        ).rstrip()
        for cells in table
    ]
    return "\n".join([*lines, "", _counts(found)]) + "\n"


def _cells(found: Sweep, row: Row) -> tuple[str, ...]:
    """One row of the table."""
    seconds, size, rate = row["step_seconds"], row["peak_bytes"], row["tokens_per_second_per_gpu"]
    return (
        row["job"],
        *(value_text(row["fields"].get(name, "")) for name in found.fields),
        row["status"],
        row["cluster"] or "",
        "" if seconds is None else format_seconds(seconds),
        "" if rate is None else f"{rate:,.0f}",
        "" if size is None else format_bytes(size),
        " ".join((row["plan"] or row["error"] or "").split()),
    )


def value_text(value: Any) -> str:
    """A swept value in few letters: `node dgx-h100, nodes 2` for a mapping."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {value_text(inner)}" for name, inner in value.items())
    return ", ".join(map(value_text, value)) if isinstance(value, list) else str(value)


def _counts(found: Sweep) -> str:
    """How many jobs ended how."""
    kinds = dict.fromkeys(row["status"] for row in found.rows)
    told = [f"{sum(row['status'] == kind for row in found.rows)} {kind}" for kind in kinds]
    reused = f"; {found.reused} of them were there before" if found.reused else ""
    return f"{len(found.rows)} jobs: {', '.join(told)}{reused}" if found.rows else "0 jobs"
