"""Prediction beside measurement, from made-up measurements."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from jobs import job, plan

from planner.accuracy.run_log import read_run_log
from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.verify.comparison import Comparison, Row, advice, compare, step_seconds
from planner.verify.report import comparisons_answer, comparisons_text
from planner.verify.run_row import appended, recompute
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
    return {"device": device, "phases": phases, "seconds": [9.0, 5.0, 1.0, 3.0, 2.0], "losses": [7.0], **gpu}


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
