"""Verifies every job of a folder, one after the other; one that fails does not stop the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InputError, NoPlan
from planner.files import job_files
from planner.verify.comparison import TOLERANCE, Comparison
from planner.verify.report import comparisons_answer, comparisons_text

Found = Sequence[Comparison] | InputError | NoPlan


def each_job(folder: Path, place: Path, verified: Callable[[Path, Path], Sequence[Comparison]]) -> dict[str, Found]:
    """What `verified` finds of each job of the folder, in a run folder of its own in `place`, or the error it ends in.

    Raises InputError for a folder without jobs.
    """
    found: dict[str, Found] = {}
    for path in job_files(folder):
        try:
            found[path.stem] = verified(path, place / path.stem)
        except (InputError, NoPlan) as error:
            found[path.stem] = error
    return found


def failed(found: Mapping[str, Found]) -> bool:
    """Whether a job could not be run."""
    return any(isinstance(one, Exception) for one in found.values())


def jobs_answer(found: Mapping[str, Found]) -> dict[str, Any]:
    """The answer of each job by its name; `agrees` where all of them do."""
    answers = {
        name: {"status": "error", "error": str(one)} if isinstance(one, Exception) else comparisons_answer(one)
        for name, one in found.items()
    }
    agrees = all(answer["status"] == "agrees" for answer in answers.values())
    return {"status": "agrees" if agrees else "differs", "jobs": answers}


def jobs_text(found: Mapping[str, Found]) -> str:
    """Each job's tables under its name, and a line for each below them."""
    parts = [
        f"== {name}\n" + (f"{one}\n" if isinstance(one, Exception) else comparisons_text(one))
        for name, one in found.items()
    ]  # fmt: skip
    width = max(map(len, found), default=0)
    return "\n".join([*parts, *(f"{name:<{width}}  {_verdict(one)}" for name, one in found.items())]) + "\n"


def _verdict(found: Found) -> str:
    """One line for a job."""
    if isinstance(found, Exception):
        return f"failed: {found}"
    off = [row.name for row in (*found[0].books, *found[0].phases, *found[0].others) if row.apart > TOLERANCE]
    return "agrees" if not off else f"apart: {', '.join(off)}"
