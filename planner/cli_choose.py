"""`planner solve` where the job leaves its cluster or training settings open."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli_parts import answer, json_text, write
from planner.errors import InputError, NoPlan, Stopped

if TYPE_CHECKING:
    from planner.choosing.choosing import Chosen


def solve_open(
    job_path: Path, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], out: Path | None, force: bool,
    time_limit: float | None, top: int,
) -> None:  # fmt: skip
    """The best plan over all that the job leaves open, and what became of the rest. Raises NoPlan or Stopped."""
    from planner.choosing.answer import chosen_answer
    from planner.choosing.choice import leaves_cluster_open, read_choice
    from planner.choosing.choosing import choose
    from planner.choosing.text import chosen_text
    from planner.clock import Clock, interruptible
    from planner.progress import progress_bar
    from planner.second_reading import read_again

    if top != 1:
        what = "cluster" if leaves_cluster_open(job_path) else "variant"
        raise InputError(f"one plan is told for each {what}", path="--top", hint="leave --top out")
    choice = read_choice(job_path, catalogs, pins, time_limit)
    with interruptible(Clock(choice.time_limit)) as clock, progress_bar(f"{choice.what}s") as progress:
        found = choose(choice, clock, progress)
    failure = found.failure
    if isinstance(failure, Stopped):
        raise failure
    told = read_again(chosen_answer(found))
    answer(form, lambda: told, lambda colour: chosen_text(found, colour))
    if isinstance(failure, NoPlan):
        raise failure
    if out is not None:
        write(out, force, _files(found, job_path))
    if found.stopped:
        click.echo(f"stopped by {found.stopped}: the answer is the best so far", err=True)


def _files(found: Chosen, job_path: Path) -> dict[str, str]:
    """What `--out` writes: the answer, and the job with what was chosen for the other commands."""
    from planner.choosing.answer import chosen_answer
    from planner.choosing.choice import job_text
    from planner.choosing.text import chosen_text
    from planner.report import configuration_text

    assert found.best is not None and found.solution is not None  # without a plan nothing is written
    best = found.solution.best
    files = {
        "plan.json": json_text(chosen_answer(found)),
        "plan.txt": chosen_text(found),
        "job.yaml": job_text(found.choice, found.best.candidate, job_path),
    }
    if best.job.runtime.runtime == "deepspeed":
        files["deepspeed.json"] = configuration_text(best) + "\n"
    return files
