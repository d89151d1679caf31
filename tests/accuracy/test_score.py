"""Errors, medians over sources, false verdicts, and what is left out."""

from __future__ import annotations

from math import ceil
from pathlib import Path

import pytest
from logs import SMALL, write_log

from planner.accuracy.run_job import run_case
from planner.accuracy.run_log import Run, read_run_log
from planner.accuracy.run_model import Skipped
from planner.accuracy.score import Accuracy, Comparison, Score, accuracy, accuracy_answer, memory_predicted, score_run
from planner.evaluate import Evaluation, evaluate
from planner.units import GIB


def scored(run: str, source: str, memory: float | None = None, time: float | None = None, **more: object) -> Score:
    """A score with these predictions of a measured 100."""
    return Score(
        run=Run(line=2, id=run, source=source),
        memory=None if memory is None else Comparison("reserved", memory, 100.0),
        time=None if time is None else Comparison("step", time, 100.0),
        verdict=str(more.get("verdict", "fits")),
        fits=None if more.get("fits") is None else bool(more["fits"]),
    )


def evaluation(folder: Path) -> Evaluation:
    """The evaluation of the small run."""
    found = run_case(read_run_log(write_log(folder))[0])
    return evaluate(found.job, found.plan)


def one(folder: Path, **cells: str) -> Score:
    """The score of the small run with cells replaced."""
    return score_run(read_run_log(write_log(folder, cells))[0])


def test_sources_and_medians() -> None:
    found = Accuracy(
        (
            scored("a-1", "a", memory=110, time=150),  # +0.1, +0.5
            scored("a-2", "a", memory=70),  # -0.3
            scored("b-1", "b", memory=105, fits=True, verdict="no"),  # +0.05
            scored("c-1", "c", memory=90, fits=False, verdict="fits"),  # -0.1
            scored("d-1", "d", fits=True, verdict="fits"),
        ),
        {"runtime x": 2},
    )
    none = {"rows": 0, "mean_absolute_error": None, "bias": None, "worst": None}
    assert accuracy_answer(found) == {
        "sources": {
            "a": {
                # (0.1 + 0.3) / 2, (0.1 - 0.3) / 2
                "memory": {"rows": 2, "mean_absolute_error": 0.2, "bias": -0.1, "worst": -0.3},
                "time": {"rows": 1, "mean_absolute_error": 0.5, "bias": 0.5, "worst": 0.5},
                "false_fits": 0,
                "false_nos": 0,
            },
            "b": {
                "memory": {"rows": 1, "mean_absolute_error": 0.05, "bias": 0.05, "worst": 0.05},
                "time": none,
                "false_fits": 0,
                "false_nos": 1,
            },
            "c": {
                "memory": {"rows": 1, "mean_absolute_error": 0.1, "bias": -0.1, "worst": -0.1},
                "time": none,
                "false_fits": 1,
                "false_nos": 0,
            },
            "d": {"memory": none, "time": none, "false_fits": 0, "false_nos": 0},
        },
        # the middle of 0.05, 0.1, 0.2; time has one source
        "overall": {
            "memory_median_of_sources": 0.1, "time_median_of_sources": 0.5, "false_fits": 1, "false_nos": 1, "rows": 5,
        },
        "skipped": {"runtime x": 2},
    }  # fmt: skip
    assert found.sources[0].memory.worst_run == "a-2"


@pytest.mark.parametrize(
    ("fits", "verdict", "expected"),
    [
        (True, "fits", (False, False)),
        (True, "risky", (False, False)),
        (True, "no", (False, True)),
        (False, "fits", (True, False)),
        (False, "risky", (False, False)),
        (False, "no", (False, False)),
        (None, "no", (False, False)),
    ],
)
def test_false_verdicts(fits: bool | None, verdict: str, expected: tuple[bool, bool]) -> None:
    score = scored("a-1", "a", fits=fits, verdict=verdict)
    assert (score.false_fit, score.false_no) == expected


def test_metrics_of_memory(tmp_path: Path) -> None:
    found = evaluation(tmp_path)
    gpu = found.ledger["gpu"]
    assert memory_predicted(found, "allocated") == gpu.tensors()
    reserved = gpu.reserved(found.job.runtime.fragmentation)
    assert memory_predicted(found, "reserved") == ceil(reserved) > gpu.tensors()
    # 0.90 GiB of context, 688 MiB of communicator, 64 MiB of workspaces
    reserve = 966_367_641 + 721_420_288 + 67_108_864
    assert memory_predicted(found, "device") == ceil(reserved + reserve)


@pytest.mark.parametrize("metric", ["allocated", "reserved", "device"])
def test_a_peak_is_held_against_its_own_metric(tmp_path: Path, metric: str) -> None:
    # measured is half of predicted: the error is 2 - 1
    half = memory_predicted(evaluation(tmp_path), metric) / 2 / GIB
    memory = one(tmp_path, **{f"peak_{metric}_gib": f"{half:.12f}"}).memory
    assert memory is not None
    assert memory.metric == metric
    assert memory.error == pytest.approx(1.0)


def test_of_several_peaks_the_allocated_one_counts(tmp_path: Path) -> None:
    memory = one(tmp_path, peak_allocated_gib="1", peak_reserved_gib="2", peak_device_gib="3").memory
    assert memory is not None
    assert (memory.metric, memory.measured) == ("allocated", GIB)


def test_a_throughput_is_a_step_time(tmp_path: Path) -> None:
    # 8 sequences of 128 tokens on 2 GPUs at 256 tokens/s each: 1024 / 2 / 256 = 2 s
    time = one(tmp_path, step_seconds="", tokens_per_second_per_gpu="256").time
    assert time is not None
    assert time.measured == 2.0


def test_a_log_without_score_columns_is_scored_where_something_was_measured(tmp_path: Path) -> None:
    score = one(tmp_path)
    assert (score.memory, score.time is not None, score.fits) == (None, True, True)


@pytest.mark.parametrize(
    ("cells", "memory", "time", "fits"),
    [
        ({"score_memory": "yes", "score_time": "yes"}, True, True, True),
        ({"score_memory": "yes", "score_time": "no"}, True, False, True),
        ({"score_memory": "no", "score_time": "yes"}, False, True, None),
        ({"fits": "largest-that-ran"}, True, True, True),
        ({"fits": "oom"}, False, False, False),
        ({"fits": "oom", "peak_reserved_gib": "", "step_seconds": ""}, False, False, False),
    ],
)
def test_what_is_scored(tmp_path: Path, cells: dict[str, str], memory: bool, time: bool, fits: bool | None) -> None:
    score = one(tmp_path, **{"peak_reserved_gib": "1", **cells})
    assert (score.memory is not None, score.time is not None, score.fits) == (memory, time, fits)


def test_a_run_that_beats_its_gpus_ran_with_other_settings_than_stated(tmp_path: Path) -> None:
    """At least 3 passes over the matrices and the head, 2 FLOP each: 6 x (131 328 + 64 000) a token, 1.2 GFLOP for 8 x
    128 tokens, which takes two A100 of 312 TFLOP/s 2 microseconds. Memory is not scored either.
    """
    assert one(tmp_path, step_seconds="0.00001", peak_reserved_gib="1").memory is not None
    with pytest.raises(Skipped) as caught:
        one(tmp_path, step_seconds="0.000001", peak_reserved_gib="1")
    assert str(caught.value) == "faster than its GPU's peak: not with what it states"


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"use": "plausibility"}, "not for scoring"),
        ({"score_memory": "no", "score_time": "no"}, "not for scoring"),
        ({"step_seconds": ""}, "no measurement to score"),
        ({"step_seconds": "", "score_time": "yes", "score_memory": "no", "fits": "yes"}, "no measurement to score"),
        ({"gpus": "4", "data_parallel": "4", "global_batch": "16", "score_memory": "no"},
         "network between nodes not stated"),
    ],
)  # fmt: skip
def test_what_is_not(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    with pytest.raises(Skipped) as caught:
        one(tmp_path, **cells)
    assert str(caught.value) == reason


def test_a_whole_log(tmp_path: Path) -> None:
    nodes = {"gpus": "4", "data_parallel": "4", "global_batch": "16"}
    found = accuracy(
        write_log(
            tmp_path,
            {},
            {"id": "own-002", "runtime": "colossalai"},
            {"id": "own-003", "runtime": "colossalai"},
            {"id": "own-004", "method": "prefix"},
            {"id": "own-005", **nodes},
        )
    )
    answer = accuracy_answer(found)
    assert [score.run.id for score in found.scores] == [SMALL["id"], "own-005"]
    assert list(answer["skipped"].items()) == [
        ("runtime colossalai", 2), ("method prefix", 1), ("time: network between nodes not stated", 1),
    ]  # fmt: skip
    assert (answer["overall"]["rows"], answer["sources"]["own"]["time"]["rows"]) == (2, 1)


def test_a_log_in_which_nothing_is_scored(tmp_path: Path) -> None:
    assert accuracy_answer(accuracy(write_log(tmp_path, {"runtime": "colossalai"}))) == {
        "sources": {},
        "overall": {
            "memory_median_of_sources": None, "time_median_of_sources": None, "false_fits": 0, "false_nos": 0,
            "rows": 0,
        },
        "skipped": {"runtime colossalai": 1},
    }  # fmt: skip
