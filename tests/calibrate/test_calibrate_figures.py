"""Margins, held-out runs and the text of a calibration, figure by figure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.accuracy.run_log import read_run_log
from planner.accuracy.score import measured_ledger
from planner.calibrate.calibrating import Calibrated, calibrate
from planner.calibrate.held_out import held_out, held_out_answer
from planner.calibrate.margin import MarginFit, fit_margin
from planner.calibrate.measured import Measured, read_runs, usable
from planner.calibrate.overlay import calibrated, changes_text
from planner.calibrate.overlay_file import Entry, Errors, Figure, Margin, Overlay
from planner.calibrate.text import calibrate_answer, calibrate_text
from planner.cli import cli
from planner.evaluate import evaluate
from planner.units import GIB, MIB
from tests.accuracy.logs import write_log
from tests.jobs import job


def reserved(folder: Path) -> tuple[float, float]:
    """What the planner says the allocator reserves for the small run in bytes, and the catalog's fragmentation."""
    (run,) = read_runs(write_log(folder)).measured
    usual = run.job.runtime.fragmentation
    return measured_ledger(evaluate(run.job, run.plan), "").reserved(usual), usual


def margin_of(folder: Path, *rows: dict[str, str]) -> MarginFit:
    """The margin that the small run tells, measured as each of the rows says."""
    found: Sequence[Measured] = read_runs(write_log(folder, *rows)).measured
    return fit_margin(found)


# ── margins ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_fragmentation_is_the_median_over_the_runs(tmp_path: Path) -> None:
    """Runs that reserve 1.1, 1.2 and 1.6 times what the planner says: 1.2 times the catalog's fragmentation."""
    size, usual = reserved(tmp_path)
    rows = [
        {"id": f"own-{number}", "peak_reserved_gib": f"{times * size / GIB:.12f}"}
        for number, times in enumerate((1.6, 1.1, 1.2))
    ]
    found = margin_of(tmp_path, *rows)
    assert found.margin == Margin(fragmentation=round(1.2 * usual, 4))
    assert found.cannot_tell == {"reserve_bytes": "no run states what the device shows"}


@pytest.mark.parametrize(
    ("times", "reason"),
    [
        (0.5, "these runs reserve less than the ledger's tensors take"),
        (50.0, "these runs reserve more than 10 times what tensors take"),
    ],
)
def test_a_fragmentation_that_cannot_be_is_none(tmp_path: Path, times: float, reason: str) -> None:
    size, _ = reserved(tmp_path)
    found = margin_of(tmp_path, {"peak_reserved_gib": f"{times * size / GIB:.12f}"})
    assert found.margin is None
    assert found.cannot_tell["fragmentation"] == reason


def test_the_reserve_is_never_less_than_the_catalogs(tmp_path: Path) -> None:
    """A device that shows less than the ledger has nothing beside it; one that shows 2000 TiB is a slip."""
    assert margin_of(tmp_path, {"peak_device_gib": "0.001"}).margin == Margin(reserve_bytes=0)
    found = margin_of(tmp_path, {"peak_device_gib": "2000000"})
    assert found.margin is None
    assert found.cannot_tell["reserve_bytes"] == "these runs show more than any device has"


# ── runs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_runs_that_tell_nothing_are_counted_by_reason(tmp_path: Path) -> None:
    nodes = {"gpus": "4", "data_parallel": "4", "global_batch": "16"}
    rows = (
        {"id": "own-1", "use": "plausibility"}, {"id": "own-2", "step_seconds": ""}, {"id": "own-3", **nodes},
        {"id": "own-4", **nodes, "peak_reserved_gib": "3"}, {"id": "own-5"},
    )  # fmt: skip
    found = usable(read_run_log(write_log(tmp_path, *rows)))
    assert found.skipped == {
        "network between nodes not stated": 1, "no measurement": 1, "not for scoring": 1,
    }  # fmt: skip
    # a peak tells of the margin where the network of the step is not known
    assert [(run.name, run.seconds, run.bytes) for run in found.measured] == [
        ("own-4", None, 3 * GIB), ("own-5", 1.0, 0.0),
    ]  # fmt: skip


def test_a_gpu_under_two_runtimes_has_one_more_entry_for_both(tmp_path: Path) -> None:
    rows = [{"id": "own-1"}, {"id": "own-2", "runtime": "fsdp2", "zero_stage": "3"}]
    entries = calibrate(write_log(tmp_path, *rows)).entries
    assert [(entry.gpu, entry.runtime, entry.runs) for entry in entries] == [
        ("a100-sxm-80gb", "deepspeed", 1), ("a100-sxm-80gb", "fsdp2", 1), ("a100-sxm-80gb", "", 2),
    ]  # fmt: skip


def test_every_third_run_calibrates_and_the_rest_is_scored(tmp_path: Path) -> None:
    """Nine runs of one step time, ten times what the catalogs say or so: three bring six to it."""
    log = write_log(tmp_path, *({"id": f"own-{number}", "step_seconds": "0.05"} for number in range(9)))
    (found,) = held_out(log)
    assert (found.source, found.calibrating, found.scored) == ("own", 3, 6)
    assert found.after < found.before
    before, after = round(found.before, 6), round(found.after, 6)
    assert held_out_answer([found]) == {
        "sources": {"own": {"calibrating": 3, "scored": 6, "before": before, "after": after}},
        "median": {"before": before, "after": after},
    }
    ended = CliRunner().invoke(cli, ["calibrate", str(log), "--hold-out", "--source", "own"], catch_exceptions=False)
    assert ended.output.splitlines()[1].split()[:3] == ["own", "3", "6"]
    assert held_out(log, "own") == (found,)


# ── overlays and text ────────────────────────────────────────────────────────────────────────────────────────────────

WHOLE = Entry(
    gpu="a100-sxm-80gb", runtime="deepspeed", runs=1, error=Errors(before=0.123, after=0.045),
    time={"products": Figure(times=1.25, error=0.03), "step_seconds": Figure(seconds=0.5, error=0.012)},
    memory=Margin(fragmentation=1.2, reserve_bytes=512 * MIB),
    cannot_tell={"nvme": "no run spends time on it", "reserve_bytes": "no run states what the device shows"},
)  # fmt: skip


def test_the_summary_line_by_line() -> None:
    sweeps = Entry(gpu="l4-24gb", memory=Margin(reserve_bytes=0))
    lines = calibrate_text(Calibrated((WHOLE, sweeps), {"runtime x": 2})).splitlines()
    assert [" ".join(line.split()) for line in lines] == [
        "a100-sxm-80gb, deepspeed: 1 run",
        "step time off by 12.3 % before and 4.5 % after, on these runs themselves",
        "matrix products × 1.250 ± 3 %",
        "constant of each step + 0.5 ± 0.012 s",
        "reserved over allocated 1.200",
        "device beside the ledger + 512 MiB",
        "cannot tell",
        "reads and writes of NVMe: no run spends time on it",
        "reserve bytes: no run states what the device shows",
        "",
        "l4-24gb, all runtimes: sweeps",
        "device beside the ledger + 0 MiB",
        "",
        "skipped",
        "2 runtime x",
    ]


def test_the_answer_leaves_out_what_an_entry_does_not_say() -> None:
    bare = Entry(gpu="l4-24gb", measured=({"group": "products", "seconds": 1.0},))
    assert calibrate_answer(Calibrated((bare,), {"runtime x": 2})) == {
        "calibration": [{"gpu": "l4-24gb", "measured": [{"group": "products", "seconds": 1.0}]}],
        "skipped": {"runtime x": 2},
    }


@pytest.mark.parametrize(
    ("margin", "told"),
    [
        (Margin(fragmentation=1.3), "fragmentation 1.300"),
        (Margin(reserve_bytes=64 * MIB), "reserve + 64 MiB"),
        (Margin(reserve_bytes=0), "nothing that changes a figure"),
    ],
)
def test_either_margin_alone_is_applied(margin: Margin, told: str) -> None:
    entry = Entry(gpu="a100-sxm-80gb", runtime="deepspeed", memory=margin)
    found, plain = calibrated(job(), [Overlay("m.yaml", (entry,))]), job()
    assert found.runtime.fragmentation == (margin.fragmentation or plain.runtime.fragmentation)
    added = len(found.runtime.effects) - len(plain.runtime.effects)
    assert added == (1 if margin.reserve_bytes else 0)
    assert changes_text(entry) == told
