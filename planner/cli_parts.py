"""What several commands share: arguments and options, how a job is read and planned, how an answer is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.errors import NoPlan, PlannerError

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
    help="a file of machines, a technique or a calibration, or a folder of them, beside what ships; may be repeated",
)  # fmt: skip


def job_of(path: Path, pins: tuple[str, ...], catalogs: tuple[Path, ...]) -> Job:
    """The job of a file with choices pinned on the command line."""
    from planner.resolve import read_job

    job = read_job(path, catalogs)
    return job.with_choices({name: (value,) for name, value in pinned(job, pins).items()}) if pins else job


def pinned(job: Job, pins: tuple[str, ...]) -> dict[str, Value]:
    """`CHOICE=VALUE` pairs, read as values of the job's choices."""
    from planner.resolve import read_pins

    return read_pins(job, pins)


def evaluated(job: Job, pins: tuple[str, ...]) -> Evaluation:
    """The plan with the pinned values; the rest from the best plan that has them, or else the plainest values."""
    from planner.answer import set_values
    from planner.evaluate import evaluate
    from planner.layouts import DEGREE_NAMES
    from planner.resolve import plain_plan
    from planner.search import solve as search

    values = pinned(job, pins)
    try:
        return search(job.with_choices({name: (value,) for name, value in values.items()})).best
    except PlannerError:
        split = job.with_choices({name: (values.pop(name),) for name in DEGREE_NAMES if name in values})
        return evaluate(split, set_values(plain_plan(split), values))


def planned(job: Job, pins: tuple[str, ...]) -> Evaluation:
    """The best plan that has the pinned values; the proof goes to standard error where none exists."""
    from planner.search import solve as search

    values = {name: (value,) for name, value in pinned(job, pins).items()}
    return search(job.with_choices(values) if values else job).best


def answer(form: str, data: Callable[[], Any], text: Callable[[bool], str]) -> None:
    """Prints an answer in the form that was asked for; colours on a terminal only."""
    click.echo(json_text(data()) if form == "json" else text(sys.stdout.isatty()), nl=False)


def json_text(data: Any) -> str:
    """Stable JSON text."""
    import json

    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


def write(folder: Path, force: bool, files: dict[str, str]) -> None:
    """Writes the answer's files and names them on standard error."""
    from planner.output import write_files

    for path in write_files(folder, files, force):
        click.echo(f"wrote {path}", err=True)


def no_plan(failure: NoPlan, form: str) -> None:
    """The proof that no plan exists, as an answer."""
    from planner.answer import conflict_answer
    from planner.report import no_plan_text
    from planner.second_reading import read_again

    told = read_again(conflict_answer(failure))
    answer(form, lambda: told, lambda colour: no_plan_text(failure, colour))
