"""The command line: answers to standard output, all else to standard error; nothing heavy is imported early."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.errors import InputError, NoPlan, PlannerError

if TYPE_CHECKING:
    from planner.evaluate import Evaluation
    from planner.job import Job
    from planner.plan import Value

JOB = click.argument("job_path", metavar="JOB", type=click.Path(path_type=Path))
FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="form of the answer"
)
SET = click.option("--set", "pins", multiple=True, metavar="CHOICE=VALUE", help="fix a choice; may be repeated")
CATALOG = click.option(
    "--catalog", "catalogs", multiple=True, type=click.Path(path_type=Path), metavar="PATH",
    help="a technique file, or a folder of them, beside the shipped catalog; may be repeated",
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="planner", prog_name="planner")
def cli() -> None:
    """Will this model train on these GPUs, with which configuration, and how fast? A proven answer, without a GPU."""


@cli.command()
@JOB
@SET
@FORMAT
@CATALOG
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="write plan.json, deepspeed.json and plan.txt"
)
@click.option("--force", is_flag=True, help="let --out write over files that exist")
@click.option("--time-limit", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="longest search")
def solve(
    job_path: Path, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], out: Path | None, force: bool,
    time_limit: float | None,
) -> None:  # fmt: skip
    """The best plan of JOB, with proof, books, step time and DeepSpeed configuration."""
    from dataclasses import replace

    from planner.answer import solution_answer
    from planner.report import configuration_text, solution_text
    from planner.search import solve as search

    job = _job(job_path, pins, catalogs)
    if time_limit is not None:
        job = replace(job, time_limit=time_limit)
    try:
        solution = search(job)
    except NoPlan as failure:
        _no_plan(failure, form)
        raise
    _answer(form, lambda: solution_answer(solution), lambda colour: solution_text(solution, colour))
    if out is not None:
        files = {"plan.json": _json(solution_answer(solution)), "plan.txt": solution_text(solution)}
        if job.runtime.runtime == "deepspeed":
            files["deepspeed.json"] = configuration_text(solution.best) + "\n"
        _write(out, force, files)


@cli.command()
@click.argument("job_path", metavar="[JOB]", type=click.Path(path_type=Path), required=False)
@SET
@FORMAT
@CATALOG
@click.option("--parameters", metavar="N", help="back-of-envelope ledger of a model with N parameters, such as 7e9")
@click.option("--layers", metavar="L", help="its number of layers")
@click.option("--gpu", metavar="NAME", help="the GPU that the envelope is held against")
@click.option("--gpus", type=click.IntRange(min=1), default=1, show_default=True, help="how many of them")
def ledger(
    job_path: Path | None, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], parameters: str | None,
    layers: str | None, gpu: str | None, gpus: int,
) -> None:  # fmt: skip
    """The books of one plan of JOB, or with --parameters and --layers the back-of-envelope ledger.

    Choices that --set leaves open take the best plan's values, or the plainest ones where nothing fits.
    """
    if job_path is None:
        _envelope(parameters, layers, gpu, gpus, form)
        return
    if parameters or layers:
        raise InputError("--parameters and --layers describe a model without a job file", hint="leave JOB out")
    from planner.answer import evaluation_answer
    from planner.report import evaluation_text

    found = _evaluated(_job(job_path, (), catalogs), pins)
    _answer(form, lambda: evaluation_answer(found), lambda colour: evaluation_text(found, colour))


@cli.command()
@click.argument("model", metavar="MODEL")
@FORMAT
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="write overlay.yaml with what was read")
@click.option("--force", is_flag=True, help="let --out write over files that exist")
def trace(model: str, form: str, out: Path | None, force: bool) -> None:
    """What MODEL's real code keeps for backward, read without a GPU; MODEL is a catalog name or a config.json.

    Needs the extra: pip install 'planner[trace]'.
    """
    from planner.trace import overlay_text, trace_answer, trace_model, trace_text

    found = trace_model(model)
    _answer(form, lambda: trace_answer(found), lambda _: trace_text(found))
    if out is not None:
        _write(out, force, {"overlay.yaml": overlay_text(found)})


@cli.command()
@click.argument("runs_path", metavar="RUNS.csv", type=click.Path(path_type=Path))
@FORMAT
@click.option("--rows", is_flag=True, help="list every row, also those skipped")
def accuracy(runs_path: Path, form: str, rows: bool) -> None:
    """Predictions against a log of measured runs: peak memory, step time and verdicts, by source."""
    from planner.accuracy import accuracy as score
    from planner.accuracy import accuracy_answer, accuracy_text

    found = score(runs_path)
    _answer(form, lambda: accuracy_answer(found), lambda _: accuracy_text(found, rows))


@cli.command()
@click.argument("what", type=click.Choice(["job"]), default="job")
def schema(what: str) -> None:
    """JSON Schema of job files, for editors and validators."""
    from planner.job_file import job_schema

    click.echo(_json(job_schema()), nl=False)


@cli.group()
def catalog() -> None:
    """What ships: GPUs, nodes, links, models, optimizers, precisions, runtimes and techniques."""


@catalog.command("list")
@click.argument("kind", required=False)
@FORMAT
def catalog_list(kind: str | None, form: str) -> None:
    """The names of KIND, or of every kind."""
    from planner.shipped import names

    found = names(kind)
    lines = [f"{name}\n" + "".join(f"  {item}\n" for item in items) for name, items in found.items()]
    _answer(form, lambda: {name: list(items) for name, items in found.items()}, lambda _: "\n".join(lines))


@catalog.command("show")
@click.argument("kind")
@click.argument("name")
@FORMAT
def catalog_show(kind: str, name: str, form: str) -> None:
    """One entry of the catalog with its sources."""
    from planner.shipped import entry, entry_text

    _answer(form, lambda: entry(kind, name), lambda _: entry_text(kind, name))


def _envelope(parameters: str | None, layers: str | None, gpu: str | None, gpus: int, form: str) -> None:
    """The back-of-envelope ledger."""
    from planner.envelope import envelope, envelope_answer, envelope_text
    from planner.hardware_catalog import gpu as find
    from planner.units import parse_count

    if not parameters or not layers:
        raise InputError("nothing to keep books of", expected="a job file, or --parameters N and --layers L")
    try:
        size, depth = parse_count(parameters, positive=True), parse_count(layers, positive=True)
    except ValueError as error:
        raise InputError(str(error), path="--parameters, --layers") from None
    found = envelope(size, depth, find(gpu) if gpu else None, gpus)
    _answer(form, lambda: envelope_answer(found), lambda _: envelope_text(found))


def _job(path: Path, pins: tuple[str, ...], catalogs: tuple[Path, ...]) -> Job:
    """The job of a file with choices pinned on the command line."""
    from planner.resolve import read_job

    job = read_job(path, catalogs)
    return job.with_choices({name: (value,) for name, value in _pinned(job, pins).items()}) if pins else job


def _pinned(job: Job, pins: tuple[str, ...]) -> dict[str, Value]:
    """`CHOICE=VALUE` pairs, read as values of the job's choices."""
    from planner.resolve import read_pins

    return read_pins(job, pins)


def _evaluated(job: Job, pins: tuple[str, ...]) -> Evaluation:
    """The plan with the pinned values; the rest from the best plan that has them, or else the plainest values."""
    from planner.answer import set_values
    from planner.evaluate import evaluate
    from planner.resolve import plain_plan
    from planner.search import solve as search

    values = _pinned(job, pins)
    try:
        return search(job.with_choices({name: (value,) for name, value in values.items()})).best
    except PlannerError:
        return evaluate(job, set_values(plain_plan(job), values))


def _no_plan(failure: NoPlan, form: str) -> None:
    """The proof that no plan exists, as an answer."""
    from planner.answer import conflict_answer
    from planner.report import no_plan_text

    conflict, miss = failure.conflict, failure.nearest_miss
    _answer(form, lambda: conflict_answer(conflict, miss), lambda colour: no_plan_text(conflict, miss, colour))


def _answer(form: str, data: Callable[[], Any], text: Callable[[bool], str]) -> None:
    """Prints an answer in the form that was asked for; colours on a terminal only."""
    click.echo(_json(data()) if form == "json" else text(sys.stdout.isatty()), nl=False)


def _json(data: Any) -> str:
    """Stable JSON text."""
    import json

    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def _write(folder: Path, force: bool, files: dict[str, str]) -> None:
    """Writes the answer's files and names them on standard error."""
    from planner.output import write_files

    for path in write_files(folder, files, force):
        click.echo(f"wrote {path}", err=True)


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and leaves with its exit code: 0 answered, 2 bad input, 3 no plan, 4 stopped, 70 a bug of ours."""
    gc.disable()  # a command is short and its data small: collecting cycles costs a tenth of its time
    try:
        cli.main(arguments, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(4)
    except PlannerError as error:
        click.echo(f"planner: {error}", err=True)
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
