"""The command line: answers to standard output, all else to standard error; nothing heavy is imported early."""

from __future__ import annotations

import errno
import gc
import os
import signal
import sys
from io import TextIOWrapper
from pathlib import Path
from threading import current_thread, main_thread
from types import FrameType
from typing import NoReturn

import click

from planner import cli_calibrate, cli_choose, cli_run, cli_see, cli_sweep
from planner.cli_parts import CATALOG, FORMAT, JOB, SET, answer, evaluated, job_of, json_text, no_plan, write
from planner.errors import InputError, InternalError, NoPlan, PlannerError

TRACEBACK = "PLANNER_TRACEBACK"


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="planner", prog_name="planner")
def cli() -> None:
    """Will this model train on these GPUs, with which configuration, and how fast? A proven answer, without a GPU."""


for command in (*cli_see.COMMANDS, *cli_run.COMMANDS, *cli_calibrate.COMMANDS, *cli_sweep.COMMANDS):
    cli.add_command(command)


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
@click.option("--top", type=click.IntRange(1, 100), default=1, metavar="K", help="list the K best plans in order")
def solve(
    job_path: Path, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], out: Path | None, force: bool,
    time_limit: float | None, top: int,
) -> None:  # fmt: skip
    """The best plan of JOB, with proof, books, step time and DeepSpeed configuration.

    Where JOB lists clusters to choose from, or any GPU, the best cluster with its plan, and what became of the others;
    where it allows other training settings, or a range of global batches, the best of those.
    """
    from planner.choosing.choice import file_leaves_open

    if file_leaves_open(job_path):
        cli_choose.solve_open(job_path, pins, form, catalogs, out, force, time_limit, top)
        return
    from dataclasses import replace

    from planner.answer import solution_answer
    from planner.clock import Clock, interruptible
    from planner.report import configuration_text, solution_text
    from planner.search import solve as search
    from planner.second_reading import read_again

    job = job_of(job_path, pins, catalogs)
    if time_limit is not None:
        job = replace(job, time_limit=time_limit)
    try:
        with interruptible(Clock(job.time_limit)) as clock:
            solution = search(job, top, clock=clock)
    except NoPlan as failure:
        no_plan(failure, form)
        raise
    told = read_again(solution_answer(solution, top))
    answer(form, lambda: told, lambda colour: solution_text(solution, colour, top))
    if out is not None:
        files = {"plan.json": json_text(told), "plan.txt": solution_text(solution, top=top)}
        if job.runtime.runtime == "deepspeed":
            files["deepspeed.json"] = configuration_text(solution.best) + "\n"
        write(out, force, files)


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
        _envelope(parameters, layers, gpu, gpus, form, catalogs)
        return
    if parameters or layers:
        raise InputError("--parameters and --layers describe a model without a job file", hint="leave JOB out")
    from planner.answer import evaluation_answer
    from planner.report import evaluation_text
    from planner.second_reading import read_again

    found = evaluated(job_of(job_path, (), catalogs), pins)
    told = read_again(evaluation_answer(found))
    answer(form, lambda: told, lambda colour: evaluation_text(found, colour))


@cli.command()
@click.argument("model", metavar="MODEL")
@FORMAT
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="write overlay.yaml with what was read")
@click.option("--force", is_flag=True, help="let --out write over files that exist")
@click.option("--sequence-length", type=click.IntRange(min=2), metavar="TOKENS", help="the longer traced sequence")
def trace(model: str, form: str, out: Path | None, force: bool, sequence_length: int | None) -> None:
    """What MODEL's real code keeps for backward, read without a GPU; MODEL is a catalog name or a config.json.

    A job whose `model` is the overlay.yaml that --out writes is planned with these figures.

    Needs the extra: pip install 'planner[trace]'.
    """
    from planner.trace import overlay_text, trace_answer, trace_model, trace_text

    found = trace_model(model, sequence_length)
    answer(form, lambda: trace_answer(found), lambda _: trace_text(found))
    if out is not None:
        write(out, force, {"overlay.yaml": overlay_text(found)})


@cli.command()
@click.argument("runs_path", metavar="RUNS.csv", type=click.Path(path_type=Path))
@click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", help="form of the answer"
)
@click.option("--rows", is_flag=True, help="list every row, also those skipped")
@CATALOG
def accuracy(runs_path: Path, form: str, rows: bool, catalogs: tuple[Path, ...]) -> None:
    """Predictions against a log of measured runs: peak memory, step time and verdicts, by source."""
    from planner.accuracy import accuracy as score
    from planner.accuracy import accuracy_answer, accuracy_page, accuracy_text

    found = score(runs_path, catalogs)
    if form == "markdown":
        click.echo(accuracy_page(found), nl=False)
        return
    answer(form, lambda: accuracy_answer(found), lambda _: accuracy_text(found, rows))


@cli.command()
@click.argument("path", metavar="DS_CONFIG.json", type=click.Path(path_type=Path))
@click.option("--job", "job_path", metavar="JOB", type=click.Path(path_type=Path), help="the job that the file is for")
@click.option("--gpus", type=click.IntRange(min=1), metavar="COUNT", help="ranks; the job's, or 8")
@FORMAT
@CATALOG
def check(path: Path, job_path: Path | None, gpus: int | None, form: str, catalogs: tuple[Path, ...]) -> None:
    """What DeepSpeed makes of an existing file: errors, silent traps, its books under a job, a better file.

    Exits with 0 where the file could be read, also if errors are found; 2 where it could not.
    """
    from planner.check.answer import check_answer, check_text
    from planner.check.checking import check as checked

    found = checked(path, job_of(job_path, (), catalogs) if job_path else None, gpus)
    answer(form, lambda: check_answer(found), lambda colour: check_text(found, colour))


@cli.command()
@click.argument("what", type=click.Choice(["job"]), default="job")
def schema(what: str) -> None:
    """JSON Schema of job files, for editors and validators."""
    from planner.choosing.schema import with_open_clusters
    from planner.job_file import job_schema
    from planner.many.schema import with_sweep

    click.echo(json_text(with_sweep(with_open_clusters(job_schema()))), nl=False)


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
    answer(form, lambda: {name: list(items) for name, items in found.items()}, lambda _: "\n".join(lines))


@catalog.command("show")
@click.argument("kind")
@click.argument("name")
@FORMAT
def catalog_show(kind: str, name: str, form: str) -> None:
    """One entry of the catalog with its sources."""
    from planner.shipped import entry, entry_text

    answer(form, lambda: entry(kind, name), lambda _: entry_text(kind, name))


@catalog.command("check")
@click.argument("paths", metavar="[PATH]...", nargs=-1, type=click.Path(path_type=Path))
@FORMAT
@CATALOG
def catalog_check(paths: tuple[Path, ...], form: str, catalogs: tuple[Path, ...]) -> None:
    """What is wrong with the shipped catalog and the files or folders at PATH beside it or in place of its own.

    Slips of units, figures that cannot be, contradictions, unknown names, missing sources. Exits with 2 on errors.
    """
    from planner.catalog_check.answer import catalog_answer, catalog_text
    from planner.catalog_check.checking import check_catalog

    found = check_catalog((*paths, *catalogs))
    answer(form, lambda: catalog_answer(found), lambda colour: catalog_text(found, colour))
    if found.severity == "error":
        sys.exit(2)


def _envelope(
    parameters: str | None, layers: str | None, gpu: str | None, gpus: int, form: str, catalogs: tuple[Path, ...]
) -> None:
    """The back-of-envelope ledger."""
    from planner.envelope import envelope, envelope_answer, envelope_text
    from planner.hardware_files import read_hardware
    from planner.units import parse_count

    if not parameters or not layers:
        raise InputError("nothing to keep books of", expected="a job file, or --parameters N and --layers L")
    try:
        size, depth = parse_count(parameters, positive=True), parse_count(layers, positive=True)
    except ValueError as error:
        raise InputError(str(error), path="--parameters, --layers") from None
    found = envelope(size, depth, read_hardware(catalogs).gpu(gpu) if gpu else None, gpus)
    answer(form, lambda: envelope_answer(found), lambda _: envelope_text(found))


def main(arguments: list[str] | None = None) -> None:
    """Runs a command and leaves with its exit code: 0 answered, 2 bad input, 3 no plan, 4 stopped, 70 a bug of ours.

    A bug is told in one line; with TRACEBACK in the environment it is raised as it is.
    """
    interrupted = _telling_interrupts()
    gc.disable()  # a command is short and its data small: collecting cycles costs a tenth of its time
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal may have fewer characters than an answer
    try:
        cli.main(arguments, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except click.Abort:
        sys.exit(4)
    except PlannerError as error:
        click.echo(f"planner: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        _unwritable(error)
    except Exception as error:
        if interrupted:
            sys.exit(4)
        if os.environ.get(TRACEBACK):
            raise
        told = f"planner: a bug of the planner: {type(error).__name__}: {error}; {TRACEBACK}=1 shows where"
        click.echo(told, err=True)
        sys.exit(InternalError.exit_code)


def _telling_interrupts() -> list[int]:
    """Ctrl-C from here on, noted as well as raised: a library that is loading may turn it into an error of its own."""
    came: list[int] = []

    def raised(number: int, frame: FrameType | None) -> None:
        came.append(number)
        signal.default_int_handler(number, frame)

    # Elsewhere it is somebody's own, or ignored; and only the main thread may set it.
    if current_thread() is main_thread() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, raised)
    return came


def _unwritable(error: OSError) -> NoReturn:
    """Leaves where standard output takes no more: silently where a reader has gone, with a message otherwise."""
    if sys.__stdout__ is not None and sys.stdout is sys.__stdout__:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno())  # what is still to be flushed goes nowhere
    if error.errno == errno.EPIPE:
        sys.exit(1)  # as click does
    where = f"{error.filename}: " if error.filename else "the answer: "
    click.echo(f"planner: cannot read or write {where}{error.strerror or error}", err=True)
    sys.exit(InputError.exit_code)


if __name__ == "__main__":
    main()
