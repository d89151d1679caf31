"""The command: from a log to an overlay that scores better, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.accuracy.score import accuracy
from planner.calibrate.held_out import HeldOut, held_out_text
from planner.calibrate.margin import fit_margin
from planner.calibrate.measured import read_runs
from planner.cli import cli
from planner.errors import InputError
from planner.units import GIB
from tests.accuracy.logs import write_log


def test_an_overlay_of_a_log_scores_the_log_better(tmp_path: Path) -> None:
    log = write_log(tmp_path, {"step_seconds": "0.05"}, {"id": "own-002", "step_seconds": "0.05"})
    overlay = tmp_path / "machine.yaml"
    ended = CliRunner().invoke(cli, ["calibrate", str(log), "-o", str(overlay)], catch_exceptions=False)
    assert ended.exit_code == 0
    assert "a100-sxm-80gb, deepspeed: 2 runs\n" in ended.output
    before, after = accuracy(log).time_median, accuracy(log, [overlay]).time_median
    assert before is not None and after is not None and after < before


def test_something_to_calibrate_from_is_named() -> None:
    with pytest.raises(InputError) as raised:
        CliRunner().invoke(cli, ["calibrate"], catch_exceptions=False)
    assert str(raised.value) == "nothing to calibrate from; expected either RUNS.csv or --measure"


def test_an_unknown_source_is_refused(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    with pytest.raises(InputError) as raised:
        read_runs(log, "owm")
    assert str(raised.value) == f"{log}: --source: no run of source 'owm'; did you mean 'own'?"


def test_runs_that_measured_nothing_are_refused_with_reasons(tmp_path: Path) -> None:
    log = write_log(tmp_path, {"step_seconds": ""})
    with pytest.raises(InputError) as raised:
        read_runs(log)
    assert str(raised.value) == (
        f"{log}: no run to calibrate from: 1 × no measurement; "
        "expected runs that state a step time or a peak, on GPUs of the catalog"
    )


def test_the_reserve_is_what_the_device_shows_beside_the_ledger(tmp_path: Path) -> None:
    one = read_runs(write_log(tmp_path, {"peak_device_gib": "30"})).measured
    two = read_runs(write_log(tmp_path, {"peak_device_gib": "32"})).measured
    found = [fit_margin(runs).margin for runs in (one, two)]
    sizes = [margin.reserve_bytes if margin else None for margin in found]
    assert sizes[0] is not None and sizes[1] is not None
    assert sizes[1] - sizes[0] == pytest.approx(2 * GIB, abs=1)


def test_without_a_measured_margin_none_is_made_up(tmp_path: Path) -> None:
    found = fit_margin(read_runs(write_log(tmp_path)).measured)
    assert found.margin is None
    assert found.cannot_tell == {
        "fragmentation": "no run states what the allocator reserves",
        "reserve_bytes": "no run states what the device shows",
    }


def test_hold_out_needs_nine_runs(tmp_path: Path) -> None:
    log = write_log(tmp_path)
    with pytest.raises(InputError) as raised:
        CliRunner().invoke(cli, ["calibrate", str(log), "--hold-out"], catch_exceptions=False)
    assert str(raised.value) == f"{log}: --hold-out: no source has 9 runs with a step time"


def test_the_table_of_held_out_runs() -> None:
    found = (HeldOut("one", 3, 6, 0.2, 0.04), HeldOut("two", 4, 8, 0.1, 0.02))
    assert held_out_text(found) == (
        "source      calibrating  scored   before    after\n"
        "one                   3       6   20.0 %    4.0 %\n"
        "two                   4       8   10.0 %    2.0 %\n"
        "median                            15.0 %    3.0 %\n"
    )
