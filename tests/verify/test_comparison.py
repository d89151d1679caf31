"""Prediction beside measurement, from made-up measurements."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from jobs import job, plan

from planner.accuracy.run_log import read_run_log
from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.verify.comparison import Comparison, Row, advice, compare, step_seconds
from planner.verify.report import comparisons_answer, comparisons_text
from planner.verify.run_row import appended, recompute, run_row
from planner.verify.step_profile import Profile
from planner.verify.time_rows import TimeRow, Times, time_rows
from planner.verify.verifying import neighbours


def planned(**values: Any) -> Evaluation:
    found = job()
    return evaluate(found, plan(found, **values))


def as_predicted(evaluation: Evaluation, device: str = "cpu", **factors: float) -> dict[str, Any]:
    """A measurement that is the prediction, books times their factor."""
    phases = {}
    for name, moment in evaluation.ledger["gpu"].phases.items():
        peak = {book: int(size * factors.get(book, 1)) for book, size in moment.books.items() if book != "reserve"}
        most = {
            book: int(factors.get(book, 1) * max(
                one.books[book] for one in evaluation.ledger["gpu"].moments if one.phase == name
            )) for book in peak
        }  # fmt: skip
        phases[name] = {"peak": peak, "most": most}
    gpu = {"peak_reserved": 2 << 30, "reserved": 2 << 30, "used": 4 << 30} if device != "cpu" else {}
    seconds, name = [9.0, 5.0, 1.0, 3.0, 2.0], "NVIDIA A100-SXM4-80GB" if device != "cpu" else ""
    return {"device": device, "gpu": name, "phases": phases, "seconds": seconds, "losses": [7.0], **gpu}


def test_a_row_is_off_by_its_share() -> None:
    assert Row("x", 103, 100).error == pytest.approx(0.03)
    assert Row("x", 97, 100).apart == pytest.approx(0.03)
    assert (Row("x", 0, 0).apart, Row("x", 0, 0).error) == (0, 0)


def test_a_run_as_predicted_agrees() -> None:
    evaluation = planned(zero_stage=2)
    found = compare(evaluation, as_predicted(evaluation))
    assert found.agrees
    assert [row.name for row in found.books] == [
        "parameters", "gradients", "optimizer_states", "activations", "buffers",
    ]  # fmt: skip
    assert all(row.error == 0 for row in (*found.books, *found.phases))
    assert (found.others, advice(found)) == ((), ())


def test_a_book_that_is_off_is_named() -> None:
    evaluation = planned(zero_stage=2)
    found = compare(evaluation, as_predicted(evaluation, gradients=1.25))
    assert not found.agrees
    assert advice(found)[0] == "gradients: predicted -20.0%; compare its lines with `planner ledger`"
    off = [row.name for row in found.phases if row.apart > 0.03]
    assert [line.partition(":")[0] for line in advice(found)[1:]] == off
    assert comparisons_answer([found])["status"] == "differs"


def test_times_count_on_gpus() -> None:
    """The median of the steps after the second: 2 s."""
    evaluation = planned()
    measured = as_predicted(evaluation, "cuda")
    assert step_seconds(measured) == 2.0
    found = compare(evaluation, measured)
    assert [row.name for row in found.others] == ["reserved by the allocator", "driver and libraries", "step time"]
    assert any(line.startswith("step time: predicted") for line in advice(found))


def test_text_has_every_book_and_a_verdict() -> None:
    evaluation = planned()
    text = comparisons_text([compare(evaluation, as_predicted(evaluation))])
    assert "  optimizer_states" in text
    assert text.endswith("every book agrees within 3%\n")


def test_a_sweep_says_whether_the_plan_was_the_fastest() -> None:
    best, other = planned(micro_batch=2), planned(micro_batch=4)
    slow = {**as_predicted(other, "cuda"), "seconds": [9.0, 9.0, 9.0]}
    found = [compare(best, as_predicted(best, "cuda")), compare(other, slow)]
    assert comparisons_text(found).endswith("the plan was the fastest that fits\n")
    assert "  micro_batch 4" in comparisons_text(found)
    assert comparisons_answer(found[::-1])["fastest"] is False
    on_processors = [compare(best, as_predicted(best))] * 2
    assert comparisons_text(on_processors).endswith(
        "the plan was the fastest that fits, on processors, which says little about GPUs\n"
    )


def test_neighbours_fit_and_differ_in_one_thing() -> None:
    """Micro-batch 2 of shares of 4: half, twice, and one layer checkpointed."""
    plans = [found.plan for found in neighbours(planned(micro_batch=2))]
    changes = [(one["checkpoint_count"], one["checkpoint_interval"], one["micro_batch"]) for one in plans]
    assert changes == [(1, 1, 2), (0, 0, 4), (0, 0, 1)]


def test_neighbours_stay_within_the_job() -> None:
    found = job(choices={"micro_batch": [1, 2], "checkpoint_count": 0})
    beside = [other.plan["micro_batch"] for other in neighbours(evaluate(found, plan(found, micro_batch=2)))]
    assert beside == [1]


def compared(**values: Any) -> Comparison:
    evaluation = planned(**values)
    return compare(evaluation, as_predicted(evaluation))


def test_rows_are_appended_to_a_log(tmp_path: Path) -> None:
    log = tmp_path / "runs.csv"
    assert [appended(log, compared()), appended(log, compared(zero_stage=3))] == ["verify-001", "verify-002"]
    runs = read_run_log(log)
    assert [run.zero_stage for run in runs] == [0, 3]
    assert runs[0].gpu == "cpu" and runs[0].step_seconds is None
    assert [path.name for path in tmp_path.iterdir()] == ["runs.csv"]


def test_a_log_keeps_its_columns_and_rows(tmp_path: Path) -> None:
    log = tmp_path / "runs.csv"
    appended(log, compared())
    with log.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    names = [name for name in rows[0] if rows[0][name]] + ["peak_reserved_gib"]
    with log.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, extrasaction="ignore")
        writer.writeheader()
        writer.writerow(rows[0])
    assert appended(log, compared()) == "verify-002"
    log.write_text(
        "id,source,model,architecture,hidden,layers,heads,vocab,gpu,gpus,fits\na,b,c,llama,1,1,1,1,g,1,yes\n"
    )
    with pytest.raises(InputError) as caught:
        appended(log, compared())
    assert str(caught.value) == f"{log}:1:1: the log has no column quality; expected all columns of a run log"


def test_recompute_in_the_logs_words() -> None:
    assert recompute(compared()) == "none"
    assert recompute(compared(checkpoint_count=1, checkpoint_interval=2)) == "partial:2 of 4"
    assert recompute(compared(checkpoint_count=4, checkpoint_interval=1)) == "full"


def profiled(evaluation: Evaluation, **measured: float) -> Times:
    """A profiled step of 1 s whose terms took what they were predicted to, but for those in `measured`."""
    rows = time_rows(evaluation, Profile(1.0, {}, 0.0, 0.0))
    changed = {name.replace("_", " "): seconds for name, seconds in measured.items()}
    return Times(1.0, tuple(replace(row, measured=changed.get(row.name, row.predicted)) for row in rows), ("a note",))


def test_a_profiled_step_says_what_to_calibrate() -> None:
    """Backward takes half a second of a step of one, far above its range; forward is as predicted."""
    evaluation = planned(zero_stage=0)
    idle = TimeRow("nothing runs", 0.0, 0.0, 0.0, 0.25, 0, ())
    times = profiled(evaluation, backward_compute=0.5)
    waiting = compare(evaluation, as_predicted(evaluation, "cuda"), replace(times, rows=(*times.rows, idle)))
    assert advice(waiting)[-1] == "nothing runs: predicted 0 s, measured 250 ms; calibrate launches"
    found = compare(evaluation, as_predicted(evaluation, "cuda"), times)
    (backward,) = [row for row in found.times.rows if row.name == "backward compute"]
    assert advice(found)[-1] == (
        f"backward compute: predicted {backward.predicted / 0.5 - 1:+.1%}; calibrate products, attention, memory"
    )
    assert not any(line.startswith("forward compute") for line in advice(found))
    on_processors = compare(evaluation, as_predicted(evaluation), profiled(evaluation, backward_compute=0.5))
    assert advice(on_processors) == ()


def test_a_profiled_step_stands_beside_its_prediction() -> None:
    evaluation = planned(zero_stage=0)
    found = compare(evaluation, as_predicted(evaluation, "cuda"), profiled(evaluation, backward_compute=0.5))
    told = comparisons_answer([found])["times"]
    assert (told["step_seconds"], told["notes"]) == (1.0, ["a note"])
    assert told["terms"]["backward compute"]["measured"] == 0.5
    assert told["terms"]["forward compute"]["error"] == 0.0
    text = comparisons_text([found])
    assert "a profiled step of 1 s by term" in text
    assert "  note: a note" in text


def test_another_gpu_than_the_jobs_is_named() -> None:
    evaluation = planned()
    measured = {**as_predicted(evaluation, "cuda"), "gpu": "NVIDIA H200"}
    assert advice(compare(evaluation, measured))[-1] == (
        "measured on NVIDIA H200, and the job's GPU is a100-sxm-80gb: times are those of another GPU"
    )


def test_a_row_names_the_gpu_that_was_there() -> None:
    evaluation = planned()
    measured = as_predicted(evaluation, "cuda")
    assert run_row(compare(evaluation, measured), 1)["gpu"] == "a100-sxm-80gb"
    assert run_row(compare(evaluation, {**measured, "gpu": "NVIDIA H200"}), 1)["gpu"] == "NVIDIA H200"
    assert run_row(compare(evaluation, as_predicted(evaluation)), 1)["gpu"] == "cpu"
