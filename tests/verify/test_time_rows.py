"""The predicted step time in the profiler's terms, beside made-up measurements."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from jobs import job, plan

from planner.evaluate import Evaluation, evaluate
from planner.verify.step_profile import Profile, Spent
from planner.verify.time_rows import NO_TIMES, TimeRow, lines_by_term, predicted_terms, time_rows, times_of


def planned(**values: Any) -> Evaluation:
    found = job()
    return evaluate(found, plan(found, **values))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("more", [{}, {"checkpoint_count": 2, "checkpoint_interval": 1}])
def test_predictions_add_up_to_the_step(stage: int, more: dict[str, int]) -> None:
    found = planned(zero_stage=stage, micro_batch=2, **more)
    assert sum(predicted_terms(found.job, found.step_time).values()) == pytest.approx(found.step_time.seconds)


def test_each_stage_has_its_collectives() -> None:
    collectives = {"all-reduce", "all-gather", "reduce-scatter"}
    found = {stage: planned(zero_stage=stage) for stage in range(4)}
    assert {
        stage: {name: list(dict.fromkeys(line.name for line in lines))
                for name, lines in lines_by_term(one.job, one.step_time).items() if name in collectives}
        for stage, one in found.items()
    } == {
        0: {"all-reduce": ["gradient all-reduce"]},
        1: {"all-reduce": ["gradient all-reduce"], "all-gather": ["parameter all-gather"]},
        2: {"all-reduce": ["gradient all-reduce"], "all-gather": ["parameter all-gather"]},
        3: {"all-gather": ["parameter gather in forward", "parameter gather in backward"],
            "reduce-scatter": ["gradient reduce-scatter"]},
    }  # fmt: skip


def test_offload_is_copies_and_an_update_on_the_host() -> None:
    found = planned(zero_stage=2, optimizer_offload="cpu", micro_batch=1)
    lines = lines_by_term(found.job, found.step_time)
    assert [line.name for line in lines["optimizer on the host"]] == ["optimizer on the host"]
    assert "gradients to the host" in [line.name for line in lines["copies to the host"]]
    assert "updated parameters to the GPU" in [line.name for line in lines["copies to the GPU"]]


def test_offloaded_activations_go_both_ways() -> None:
    offloading = job(choices={"activation_offload": "cpu"})
    lines = lines_by_term(offloading, evaluate(offloading, plan(offloading, activation_offload="cpu")).step_time)
    assert {line.window for line in lines["copies to the host"]} == {"forward"}
    assert {line.window for line in lines["copies to the GPU"]} <= {"backward", "last_backward"}


def test_rows_are_what_is_predicted_or_measured() -> None:
    """Stage 0 predicts one all-reduce and hides nothing; the profiler saw a gather besides, and 3 s of nothing."""
    found = planned(zero_stage=0)
    seen = {"forward compute": Spent(2.0, 7), "all-gather": Spent(1.0, 1)}
    rows = {row.name: row for row in time_rows(found, Profile(6.0, seen, 0.0, 3.0))}
    assert list(rows) == [
        "forward compute", "backward compute", "optimizer", "all-reduce", "all-gather", "nothing runs",
    ]  # fmt: skip
    assert (rows["forward compute"].measured, rows["forward compute"].count) == (2.0, 7)
    assert rows["forward compute"].counted == ("compute",)
    assert (rows["all-gather"].predicted, rows["all-gather"].error) == (0.0, None)
    assert sum(row.measured for row in rows.values()) == 6.0


def test_a_row_lies_in_its_range_or_outside() -> None:
    row = TimeRow("all-reduce", 2.0, 1.0, 3.0, 2.5, 1, ())
    assert (row.error, row.outside) == (pytest.approx(-0.2), False)
    assert TimeRow("all-reduce", 2.0, 1.0, 3.0, 3.5, 1, ()).outside


def test_ranges_hold_the_prediction() -> None:
    for row in time_rows(planned(zero_stage=3), Profile(1.0, {}, 0.0, 1.0)):
        assert min(row.low, row.high) <= row.predicted <= max(row.low, row.high)


def test_a_trace_becomes_times(tmp_path: Path) -> None:
    records = [
        {"ph": "X", "cat": "user_annotation", "name": f"planner: {name}", "ts": 0, "dur": 4e6, "pid": 1, "tid": 1}
        for name in ("step", "forward")
    ]
    records.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1e6, "dur": 1e6, "pid": 1, "tid": 1})
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": records}).encode()))
    found = times_of(planned(), path, on_gpu=False)
    assert (found.seconds, len(found.notes)) == (4.0, 3)
    assert [row.measured for row in found.rows if row.name == "forward compute"] == [1.0]


def test_a_trace_that_cannot_be_read_is_a_note(tmp_path: Path) -> None:
    found = times_of(planned(), tmp_path / "trace.json.gz", on_gpu=True)
    assert found.rows == NO_TIMES.rows
    assert found.notes[0].startswith(f"no time by term: {tmp_path}/trace.json.gz: no trace of torch's profiler")
