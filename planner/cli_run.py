"""Commands that bring a plan to run: emit, launch and verify."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from planner.cli_parts import CATALOG, FORMAT, JOB, SET, answer, job_of, planned, write

if TYPE_CHECKING:
    from planner.verify.comparison import Comparison


@click.command()
@JOB
@click.option("--to", "target", required=True, metavar="TARGET", help="what the files are for, such as accelerate")
@SET
@FORMAT
@CATALOG
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="write the files instead of printing them")
@click.option("--force", is_flag=True, help="let --out write over files that exist")
def emit(
    job_path: Path, target: str, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], out: Path | None,
    force: bool,
) -> None:  # fmt: skip
    """The files that run the best plan of JOB with TARGET.

    TARGET is one of deepspeed, trainer, accelerate, fsdp2, torchrun, slurm, deepspeed-launcher, kubernetes, megatron.
    What a target's files cannot say is listed on standard error.
    """
    from planner.emit.targets import emitted, notes, target_for
    from planner.emit.text import emission_answer, emission_text

    job = job_of(job_path, (), catalogs)
    target_for(job, target)
    found = planned(job, pins)
    files, remarks = emitted(found, target), notes(found, target)
    if out is not None:
        write(out, force, dict(files))
    if out is None or form == "json":
        answer(form, lambda: emission_answer(target, files, remarks), lambda _: emission_text(files))
    for remark in remarks:
        click.echo(f"note: {remark}", err=True)


@click.command(context_settings={"ignore_unknown_options": True})
@JOB
@SET
@CATALOG
@click.option("--run", "folder", type=click.Path(path_type=Path), metavar="DIR", help="run folder, a new one in runs/")
@click.option("--launcher", type=click.Choice(["torchrun", "deepspeed", "srun"]), help="what starts the ranks")
@click.option("--hostfile", type=click.Path(path_type=Path), metavar="FILE", help="nodes, a line `HOST slots=N` each")
@click.option("--cpu", is_flag=True, help="run the ranks on processors")
@click.option("--anyway", is_flag=True, help="start even where the machine is not what the job says")
@click.option("--dry-run", is_flag=True, help="print the command, write and start nothing")
@FORMAT
@click.argument("script", nargs=-1, type=click.UNPROCESSED, metavar="-- SCRIPT [ARGUMENTS]...")
def launch(
    job_path: Path, pins: tuple[str, ...], catalogs: tuple[Path, ...], folder: Path | None, launcher: str | None,
    hostfile: Path | None, cpu: bool, anyway: bool, dry_run: bool, form: str, script: tuple[str, ...],
) -> None:  # fmt: skip
    """Starts SCRIPT under the best plan of JOB: plan, configuration, command and versions go into a run folder.

    Leaves with the exit code of the launcher. `{run}` in ARGUMENTS stands for the run folder.
    """
    from planner.launch.command import Where
    from planner.launch.folder import default_path
    from planner.launch.launching import command_answer, command_text, prepare, start

    job = job_of(job_path, (), catalogs)
    found = prepare(planned(job, pins), script, folder or default_path(job.name), Where(launcher or "", hostfile, cpu))
    if dry_run:
        answer(form, lambda: command_answer(found), lambda _: command_text(found))
        return
    click.echo(f"run folder: {found.folder}" + (f" ({found.rehearsal})" if found.rehearsal else ""), err=True)
    sys.exit(start(found, anyway))


@click.command()
@JOB
@SET
@FORMAT
@CATALOG
@click.option("--run", "folder", type=click.Path(path_type=Path), metavar="DIR", help="run folder, a new one in runs/")
@click.option("--log", type=click.Path(path_type=Path), metavar="RUNS.csv", help="append the run to a log of runs")
@click.option("--steps", type=click.IntRange(min=2), default=4, show_default=True, help="steps; the last is measured")
@click.option("--sweep", is_flag=True, help="run the plan's neighbours too: was it the fastest that fits?")
@click.option("--profile/--no-profile", default=True, show_default=True, help="one more step: its time by term")
@click.option("--cpu", is_flag=True, help="run the ranks on processors")
@click.option("--anyway", is_flag=True, help="start even where the machine is not what the job says")
def verify(
    job_path: Path, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], folder: Path | None,
    log: Path | None, steps: int, sweep: bool, profile: bool, cpu: bool, anyway: bool,
) -> None:  # fmt: skip
    """Runs a few real steps of JOB's best plan here and holds books, phases and time against the prediction.

    Where JOB is a folder, of every job in it; exits with 2 where one of them could not be run.
    """
    from planner.launch.folder import default_path
    from planner.verify.report import comparisons_answer, comparisons_text
    from planner.verify.run_row import appended
    from planner.verify.verifying import model_fields, sweep_plans
    from planner.verify.verifying import verify as measure

    def verified(path: Path, place: Path) -> list[Comparison]:
        """The plan of one job, with `sweep` its neighbours behind it."""
        best, fields = planned(job_of(path, (), catalogs), pins), model_fields(path)
        plans = sweep_plans(best) if sweep else [best]
        found = [
            measure(one, fields, place if not number else place / f"neighbour-{number}", cpu, anyway, steps, profile)
            for number, one in enumerate(plans)
        ]
        if log is not None:
            for one in found:
                click.echo(f"{log}: {appended(log, one)}", err=True)
        return found

    if job_path.is_dir():
        from planner.verify.folder_of_jobs import each_job, failed, jobs_answer, jobs_text

        several = each_job(job_path, folder or default_path(f"verify-{job_path.resolve().name}"), verified)
        answer(form, lambda: jobs_answer(several), lambda _: jobs_text(several))
        sys.exit(2 if failed(several) else 0)
    found = verified(job_path, folder or default_path(f"verify-{job_path.stem}"))
    answer(form, lambda: comparisons_answer(found), lambda _: comparisons_text(found))


COMMANDS = (emit, launch, verify)
