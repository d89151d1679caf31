"""`planner sweep`: many jobs at once."""

from __future__ import annotations

import os
from pathlib import Path

import click

from planner.cli_parts import CATALOG, answer


@click.command()
@click.argument("paths", metavar="JOB...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("-o", "--out", type=click.Path(path_type=Path), metavar="FILE", help="keep rows in FILE.jsonl or .csv")
@click.option("--workers", type=click.IntRange(min=1), metavar="N", help="jobs at a time; one for each core if absent")
@click.option(
    "--engine", type=click.Choice(["processes", "dask", "ray"]), default="processes", show_default=True,
    help="what solves the jobs: processes here, or an engine of the extra planner[engines]",
)  # fmt: skip
@click.option(
    "--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="longest search of each job"
)
@click.option("--format", "form", type=click.Choice(["text", "json", "csv"]), default="text", help="form of the answer")
@CATALOG
def sweep(
    paths: tuple[Path, ...], out: Path | None, workers: int | None, engine: str, time_limit: float | None, form: str,
    catalogs: tuple[Path, ...],
) -> None:  # fmt: skip
    """Solves many jobs: files, folders of them, or one JOB whose `sweep` lists values of its fields.

    With --out every row is kept as soon as it is there, and a second run solves only what has no row yet. A job that
    fails is a row that says why. After an interrupt the rows so far stay; exit code 4.
    """
    from planner.clock import Clock, interruptible
    from planner.many.sweeping import SweepStopped, sweep_jobs
    from planner.many.task import tasks
    from planner.many.text import sweep_answer, sweep_csv, sweep_text
    from planner.progress import progress_bar

    jobs = tasks(paths, catalogs, time_limit)
    with interruptible(Clock(float("inf"))) as clock, progress_bar("sweep") as progress:
        found = sweep_jobs(jobs, out, engine, workers or os.cpu_count() or 1, clock, progress)
    if form == "csv":
        click.echo(sweep_csv(found), nl=False)
    else:
        answer(form, lambda: sweep_answer(found), lambda colour: sweep_text(found, colour))
    if found.remaining:
        total = found.remaining + len(found.rows)
        kept = f"the same command goes on from {out}" if out is not None else "--out FILE would have kept the rows"
        raise SweepStopped(f"stopped by {found.reason}: {found.remaining} of {total} jobs remain", kept=kept)


COMMANDS = (sweep,)
