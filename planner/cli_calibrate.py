"""The command that fits the planner to a machine."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli_parts import FORMAT, answer
from planner.errors import InputError


@click.command()
@click.argument("runs_path", metavar="[RUNS.csv]", type=click.Path(path_type=Path), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.yaml", help="write the overlay")
@click.option("--source", default="", metavar="KEY", help="only the runs of one source")
@click.option("--measure", is_flag=True, help="time kernels on the GPUs of this machine in place of RUNS.csv")
@FORMAT
@click.option("--force", is_flag=True, help="write over a file that exists")
def calibrate(runs_path: Path | None, output: Path | None, source: str, measure: bool, form: str, force: bool) -> None:
    """Fits times and margins of a machine from a few of its own runs, for `--catalog`; says what they cannot tell."""
    from planner.calibrate.calibrating import Calibrated
    from planner.calibrate.calibrating import calibrate as calibrated
    from planner.calibrate.text import calibrate_answer, calibrate_text, overlay_text
    from planner.output import write_files

    if (runs_path is None) != measure:
        raise InputError("nothing to calibrate from", expected="either RUNS.csv or --measure")
    if runs_path is None:
        from planner.calibrate.measure import measured_entry

        found = Calibrated((measured_entry(),), {})
    else:
        found = calibrated(runs_path, source)
    answer(form, lambda: calibrate_answer(found), lambda _: calibrate_text(found))
    if output is not None:
        for path in write_files(output.parent, {output.name: overlay_text(found)}, force):
            click.echo(f"wrote {path}", err=True)


COMMANDS = (calibrate,)
