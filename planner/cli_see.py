"""Commands that show: the frontier of a job, jobs side by side, and why a plan is what it is."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli_parts import CATALOG, FORMAT, JOB, SET, answer, job_of, no_plan, pinned, write
from planner.errors import InputError, NoPlan

PLOT = click.option("--plot", type=click.Path(path_type=Path), metavar="FILE", help="draw it: FILE.svg, .png or .html")
TABLE_FORMAT = click.option(
    "--format", "form", type=click.Choice(["text", "json", "csv"]), default="text", help="form of the answer"
)


@click.command()
@JOB
@SET
@TABLE_FORMAT
@CATALOG
@click.option(
    "--axes",
    default="memory,step_time",
    show_default=True,
    metavar="X,Y",
    help="two of memory, host_memory, step_time, token_time, cost, gpus",
)
@click.option(
    "--tolerance",
    type=click.FloatRange(min=0),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="leave out points within this share of X of a faster one",
)
@PLOT
@click.option("--point", type=int, metavar="K", help="with --out: which point, from 1, to write the files of")
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="write the files of point K, as solve does")
@click.option("--force", is_flag=True, help="let --out and --plot write over files that exist")
def pareto(
    job_path: Path, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...], axes: str, tolerance: float,
    plot: Path | None, point: int | None, out: Path | None, force: bool,
) -> None:  # fmt: skip
    """The exact frontier of JOB: plans of which none is better than another in both axes, proven."""
    from planner.frontier import frontier, read_axes
    from planner.frontier_answer import frontier_answer, frontier_csv, frontier_picture, frontier_text, point_files
    from planner.plot.files import check_plot, write_plot
    from planner.progress import progress_bar

    if (point is None) != (out is None):
        raise InputError("--point and --out go together", path="--point")
    pair, job = read_axes(axes), job_of(job_path, pins, catalogs)
    if plot is not None:
        check_plot(plot, force)
    try:
        with progress_bar("frontier") as progress:
            found = frontier(job, pair, tolerance, progress)
    except NoPlan as failure:
        no_plan(failure, "text" if form == "csv" else form)
        raise
    files = point_files(found, point) if point is not None else {}
    if form == "csv":
        click.echo(frontier_csv(found), nl=False)
    else:
        answer(form, lambda: frontier_answer(found), lambda colour: frontier_text(found, colour))
    if plot is not None:
        click.echo(f"wrote {write_plot(frontier_picture(found), plot, force)}", err=True)
    if out is not None:
        write(out, force, files)


@click.command()
@click.argument("job_paths", metavar="JOB...", type=click.Path(path_type=Path), nargs=-1, required=True)
@FORMAT
@CATALOG
@click.option("--gpu", metavar="A,B", help="the job on other GPUs or nodes of the catalog")
@click.option("--method", metavar="A,B", help="the job with other methods: full, lora16, qlora16")
@click.option("--sequence-length", metavar="A,B", help="the job with other sequence lengths")
@click.option(
    "--deepspeed",
    "files",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DS_CONFIG.json",
    help="an existing DeepSpeed file beside the planner's plans; may be repeated",
)
@PLOT
@click.option("--force", is_flag=True, help="let --plot write over a file that exists")
def compare(
    job_paths: tuple[Path, ...], form: str, catalogs: tuple[Path, ...], gpu: str | None, method: str | None,
    sequence_length: str | None, files: tuple[Path, ...], plot: Path | None, force: bool,
) -> None:  # fmt: skip
    """Frontiers and best plans side by side: several jobs, or one with other GPUs, methods, lengths or files."""
    from planner.compare import compare as compared
    from planner.compare import sources
    from planner.compare_answer import comparison_answer, comparison_picture, comparison_text
    from planner.plot.files import check_plot, write_plot
    from planner.progress import progress_bar

    asked = sources(job_paths, catalogs, gpu, method, sequence_length, files)
    if plot is not None:
        check_plot(plot, force)
    with progress_bar("compare") as progress:
        found = compared(asked, files, progress)
    answer(form, lambda: comparison_answer(found), lambda colour: comparison_text(found, colour))
    picture = comparison_picture(found)
    if plot is not None and picture is not None:
        click.echo(f"wrote {write_plot(picture, plot, force)}", err=True)


@click.command()
@JOB
@SET
@FORMAT
@CATALOG
def explain(job_path: Path, pins: tuple[str, ...], form: str, catalogs: tuple[Path, ...]) -> None:
    """Why JOB's best plan is what it is, or with --set why it is not another; where nothing fits, what would.

    Every sentence stands on a solve of its own.
    """
    from planner.explain.answer import explanation_answer
    from planner.explain.explanation import NoPlanExplained
    from planner.explain.explanation import explain as explained
    from planner.explain.text import explanation_text
    from planner.progress import progress_bar
    from planner.variants import Source

    source = Source(job_path, catalogs)
    with progress_bar("explain") as progress:
        found = explained(source, pinned(source.job(), pins), progress)
    answer(form, lambda: explanation_answer(found), lambda colour: explanation_text(found, colour))
    if isinstance(found, NoPlanExplained):
        raise found.failure


@click.command()
@JOB
@SET
@CATALOG
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE.html", required=True, help="the page to write"
)
@click.option("--force", is_flag=True, help="write over a file that exists")
def report(job_path: Path, pins: tuple[str, ...], catalogs: tuple[Path, ...], output: Path, force: bool) -> None:
    """One page about JOB that needs nothing else: ledger, frontier, step, alternatives, what if, configuration.

    Where nothing fits the page says why and what would; the exit code is 3 then.
    """
    from planner.output import write_files
    from planner.page.data import report as reported
    from planner.page.html import check_page, page_html
    from planner.progress import progress_bar
    from planner.variants import Source

    check_page(output, force)
    source = Source(job_path, catalogs)
    if pins:
        source = Source(job_path, catalogs, tuple(pinned(source.job(), pins).items()))
    with progress_bar("report") as progress:
        found = reported(source, progress)
    for path in write_files(output.parent, {output.name: page_html(found)}, force):
        click.echo(f"wrote {path}", err=True)
    if found.failure is not None:
        raise found.failure


COMMANDS = (pareto, compare, explain, report)
