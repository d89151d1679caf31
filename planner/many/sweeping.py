"""One sweep: what is done already is taken from the results file, the rest is solved, every row is kept at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.clock import Clock
from planner.errors import Stopped
from planner.many.engines import solved
from planner.many.results import Results
from planner.many.row import Row
from planner.many.task import Task, swept

Progress = Callable[[int, int], None]
DONE = ("optimal", "feasible", "infeasible")  # rows that a second run takes as they are


@dataclass(frozen=True)
class Sweep:
    """The rows of all jobs that have one, in the order of the jobs.

    `fields` are the swept ones; `reused` rows were in the file before; `remaining` jobs have no row.
    """

    rows: tuple[Row, ...]
    fields: tuple[str, ...]
    reused: int
    remaining: int
    reason: str = ""


@dataclass
class SweepStopped(Stopped):
    """The sweep ended before all jobs had a row."""

    reason: str
    bound: float | None = None
    kept: str = ""

    def __str__(self) -> str:
        return f"{self.reason}" + (f"; {self.kept}" if self.kept else "")


def sweep_jobs(
    tasks: Sequence[Task], out: Path | None = None, engine: str = "processes", workers: int = 1,
    clock: Clock | None = None, progress: Progress | None = None,
) -> Sweep:  # fmt: skip
    """Solves the tasks that `out` has no answer of; a row of an error, or of time that ran out, is none.

    The file ends with the tasks' rows in their order. Rows of other jobs stay behind them; those of the same job and
    fields that an older text or catalog gave go. Raises InputError for a file or an engine that cannot be used.
    """
    fields, by_digest = tuple(swept(tasks)), {task.digest: task for task in tasks}
    file = Results(out, fields) if out is not None else None
    before = file.read() if file is not None else []
    rows = {row["digest"]: row for row in before if row["digest"] in by_digest and row["status"] in DONE}
    others = _others(before, by_digest)
    reused, clock = len(rows), clock or Clock(float("inf"))
    open_yet = [name for name in by_digest if name not in rows]
    if file is not None:
        file.write(_ordered(rows, by_digest) + others)
    for number, row in solved([by_digest[name] for name in open_yet], engine, workers, clock):
        rows[open_yet[number]] = row = {**row, "digest": open_yet[number]}
        if file is not None:
            file.append(row)
        if progress is not None:
            progress(len(rows), len(by_digest))
    found, remaining = _ordered(rows, by_digest), len(by_digest) - len(rows)
    if file is not None:
        file.write(found + others)
    reason = "" if not remaining else clock.reason if clock.over() else "a process that died"
    return Sweep(tuple(found), fields, reused, remaining, reason)


def _ordered(rows: Mapping[str, Row], by_digest: Iterable[str]) -> list[Row]:
    """The rows in the order of the tasks."""
    return [rows[name] for name in by_digest if name in rows]


def _others(before: Iterable[Row], by_digest: Mapping[str, Task]) -> list[Row]:
    """Rows of a file that are of other jobs."""
    taken = {(task.name, _text(task.fields)) for task in by_digest.values()}
    return [row for row in before if row["digest"] not in by_digest and (row["job"], _text(row["fields"])) not in taken]


def _text(fields: Mapping[str, Any]) -> str:
    """Swept values as they are compared."""
    return json.dumps(fields, sort_keys=True)
