"""The command that fits the planner to a machine."""

from __future__ import annotations

from pathlib import Path

import click

from planner.cli_parts import CATALOG, FORMAT, answer
from planner.errors import InputError


@click.command()
@click.argument("runs_path", metavar="[RUNS.csv]", type=click.Path(path_type=Path), required=False)
@click.option("-o", "--output", type=click.Path(path_type=Path), metavar="FILE.yaml", help="write the overlay")
@click.option("--source", default="", metavar="KEY", help="only the runs of one source")
@click.option("--measure", is_flag=True, help="time kernels on the GPUs of this machine in place of RUNS.csv")
@click.option("--hold-out", is_flag=True, help="calibrate from every third run of each source and score the rest")
@FORMAT
@CATALOG
@click.option("--force", is_flag=True, help="write over a file that exists")
def calibrate(
    runs_path: Path | None, output: Path | None, source: str, measure: bool, hold_out: bool, form: str,
    catalogs: tuple[Path, ...], force: bool,
) -> None:  # fmt: skip
    """Fits times and margins of a machine from a few of its own runs, for `--catalog`; says what they cannot tell."""
    from planner.calibrate.calibrating import Calibrated
    from planner.calibrate.calibrating import calibrate as calibrated
    from planner.calibrate.text import calibrate_answer, calibrate_text, overlay_text
    from planner.output import write_files

    if (runs_path is None) != measure:
        raise InputError("nothing to calibrate from", expected="either RUNS.csv or --measure")
    if hold_out and runs_path is not None:
        _hold_out(runs_path, source, form, catalogs)
        return
    if runs_path is None:
        from planner.calibrate.measure import measured_entry
        from planner.hardware_files import read_hardware

        found = Calibrated((measured_entry(read_hardware(catalogs)),), {})
    else:
        found = calibrated(runs_path, source, catalogs)
    answer(form, lambda: calibrate_answer(found), lambda _: calibrate_text(found))
    if output is not None:
        for path in write_files(output.parent, {output.name: overlay_text(found)}, force):
            click.echo(f"wrote {path}", err=True)


def _hold_out(runs_path: Path, source: str, form: str, catalogs: tuple[Path, ...]) -> None:
    """How far a calibration carries."""
    from planner.calibrate.held_out import held_out, held_out_answer, held_out_text

    found = held_out(runs_path, source, catalogs)
    answer(form, lambda: held_out_answer(found), lambda _: held_out_text(found))


COMMANDS = (calibrate,)
