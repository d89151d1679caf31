"""Many jobs: which there are, rows whatever happens, a file that grows by whole rows and is gone on with, engines."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from planner.clock import Clock
from planner.errors import InputError, NoPlan, Stopped
from planner.many import engines, row
from planner.many.results import Results, csv_text
from planner.many.row import COLUMNS, Row, row_of
from planner.many.sweeping import Sweep, sweep_jobs
from planner.many.task import Task, tasks
from planner.many.text import sweep_text, value_text
from planner.resolve import read_job
from planner.search import best_plan
from tests.commands import run

JOB = """\
model: {parameters: 30e6, layers: 4, vocabulary: 8000}
cluster: {gpu: a100-sxm-80gb, gpus_per_node: 2}
training: {sequence_length: 512, global_batch: 8}
choices: {zero_stage: 1, optimizer_offload: none, parameter_offload: none, activation_offload: none}
"""
LISTS = "sweep: {training.sequence_length: [256, 512], cluster.gpu_memory: [79 GiB, 300 MiB]}\n"


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job with lists: four jobs, of which two have too little memory for anything."""
    path = tmp_path / "job.yaml"
    path.write_text(JOB + LISTS, encoding="utf-8")
    return path


def told(rows: tuple[Row, ...]) -> list[tuple[Any, ...]]:
    return [(*entry["fields"].values(), entry["status"]) for entry in rows]


# ── which jobs there are ─────────────────────────────────────────────────────────────────────────────────────────────


def test_lists_make_every_combination_the_last_one_fastest(job: Path) -> None:
    found = tasks([job])
    assert [task.fields for task in found] == [
        {"training.sequence_length": length, "cluster.gpu_memory": memory}
        for length in (256, 512)
        for memory in ("79 GiB", "300 MiB")
    ]
    assert found[3].document.data["training"] == {"sequence_length": 512, "global_batch": 8}
    assert "sweep" not in found[3].document.data
    assert len({task.digest for task in found}) == 4


def test_a_folder_is_its_job_files_by_name(tmp_path: Path) -> None:
    for name in ("b.yaml", "a.yml", "notes.txt", "c.json"):
        (tmp_path / name).write_text(JOB if name != "c.json" else "{}", encoding="utf-8")
    found = tasks([tmp_path, tmp_path / "b.yaml"])
    assert [task.name for task in found] == ["a", "b", "c"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "a.yml").write_text(JOB, encoding="utf-8")
    assert [task.name for task in tasks([tmp_path / "a.yml", other])] == [str(tmp_path / "a.yml"), str(other / "a.yml")]


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ("sweep: 1", "5:8: sweep: no fields are named; expected such as training.sequence_length: [2048, 4096]"),
        (
            "sweep: {training.x: 1}",
            "5:21: sweep.training.x: no values are listed; expected a list of values such as [2048, 4096]",
        ),
        (
            "sweep: {trainng.sequence_length: [1]}",
            "5:9: sweep.trainng.sequence_length: a job has no 'trainng.sequence_length'; expected a path that starts "
            "with one of model, cluster, training, choices, allow, limits, objective, time_limit; did you mean "
            "'training'?",
        ),
        (
            "sweep: {model.parameters.x: [1]}",
            "5:9: sweep.model.parameters.x: parameters holds no fields here, it is 30000000.0; expected a field of a "
            "mapping",
        ),
    ],
)  # fmt: skip
def test_mistakes_in_lists(job: Path, lists: str, message: str) -> None:
    job.write_text(JOB + lists + "\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        tasks([job])
    assert str(caught.value) == f"{job}:{message}"


def test_other_commands_say_who_solves_several(job: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_job(job)
    assert str(caught.value) == (
        f"{job}:5:1: sweep: the file describes several jobs; expected one job; planner sweep solves all of them"
    )


def test_an_empty_folder_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        tasks([tmp_path])
    assert str(caught.value) == (f"{tmp_path}: the folder holds no job file; expected files *.yaml, *.yml or *.json")


# ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_has_the_figures_of_the_best_plan(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOB, encoding="utf-8")
    found, best = row_of(tasks([path])[0]), best_plan(read_job(path))
    assert best is not None
    assert tuple(found) == COLUMNS
    assert (found["job"], found["status"], found["error"]) == ("job", "optimal", None)
    assert (found["step_seconds"], found["peak_bytes"]) == (best.step_time.seconds, best.peak_bytes)
    assert (found["cluster"], found["gpus"]) == ("1 × 2x-a100-sxm-80gb", 2)


def test_what_fails_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bad.yaml").write_text("model: [", encoding="utf-8")
    (tmp_path / "unknown.yaml").write_text(JOB.replace("a100-sxm-80gb", "a100-80gb"), encoding="utf-8")
    (tmp_path / "worse.yaml").write_text(JOB, encoding="utf-8")
    bad, unknown, worse = tasks([tmp_path])
    for task in (bad, unknown):
        found = row_of(task)
        assert found["status"] == "error"
        assert str(found["error"]).startswith(f"{tmp_path}/{task.name}.yaml:")

    def broken(_: Task) -> Row:
        raise KeyError("nothing")

    monkeypatch.setattr(row, "_solved", broken)
    assert row_of(worse)["error"] == "internal error: KeyError: 'nothing'"


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (NoPlan(("a", "b")), "infeasible", "no plan satisfies: a, b"),
        (Stopped("the time limit of 1 s"), "stopped", "stopped without a plan: the time limit of 1 s"),
    ],
)
def test_no_plan_is_a_row(
    job: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception, status: str, text: str
) -> None:
    def fails(_: Task) -> Row:
        raise failure

    monkeypatch.setattr(row, "_solved", fails)
    found = row_of(tasks([job])[0])
    assert (found["status"], found["error"], found["plan"]) == (status, text, None)


def test_a_job_with_an_open_cluster_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "open.yaml"
    choose = "{choose: [{gpu: l4-24gb, gpus_per_node: 2, gpu_memory: 300 MiB}, {gpu: l4-24gb, gpus_per_node: 2}]}"
    path.write_text(JOB.replace("{gpu: a100-sxm-80gb, gpus_per_node: 2}", choose), encoding="utf-8")
    found = row_of(tasks([path])[0])
    assert (found["status"], found["cluster"]) == ("optimal", "1 × 2x-l4-24gb")


# ── the file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Rows without a search: a step takes as many seconds as the sequence has tokens; what was solved."""
    solved: list[str] = []

    def figures(task: Task) -> Row:
        solved.append(task.digest)
        if task.fields.get("cluster.gpu_memory") == "300 MiB":
            raise NoPlan(("gpu_memory_holds_every_phase",))
        return {"status": "optimal", "step_seconds": task.document.data["training"]["sequence_length"]}

    monkeypatch.setattr(row, "_solved", figures)
    return solved


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_a_second_run_solves_nothing(job: Path, tmp_path: Path, quick: list[str], suffix: str) -> None:
    out = tmp_path / f"rows.{suffix}"
    first = sweep_jobs(tasks([job]), out)
    assert told(first.rows) == [
        (256, "79 GiB", "optimal"), (256, "300 MiB", "infeasible"),
        (512, "79 GiB", "optimal"), (512, "300 MiB", "infeasible"),
    ]  # fmt: skip
    text = out.read_text(encoding="utf-8")
    second = sweep_jobs(tasks([job]), out)
    assert (len(quick), second.reused, second.remaining) == (4, 4, 0)
    assert second.rows == first.rows
    assert out.read_text(encoding="utf-8") == text


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_an_interrupted_run_is_gone_on_with(job: Path, tmp_path: Path, quick: list[str], suffix: str) -> None:
    """Two rows, then an interrupt, then half a line of a row that never was."""
    out, clock = tmp_path / f"rows.{suffix}", Clock(float("inf"))

    def interrupt(done: int, _: int) -> None:
        clock.interrupted = done == 2

    first = sweep_jobs(tasks([job]), out, clock=clock, progress=interrupt)
    assert (len(first.rows), first.remaining, first.reason) == (2, 2, "an interrupt")
    whole = out.read_text(encoding="utf-8")
    out.write_text(whole + '{"job": "job", "fie', encoding="utf-8")
    second = sweep_jobs(tasks([job]), out)
    assert (len(quick), second.reused, second.remaining) == (4, 2, 0)
    assert Results(out, second.fields).read() == list(second.rows)
    assert out.read_text(encoding="utf-8").startswith(whole)


def test_a_changed_job_is_solved_again_and_its_old_row_goes(job: Path, tmp_path: Path, quick: list[str]) -> None:
    out = tmp_path / "rows.jsonl"
    sweep_jobs(tasks([job]), out)
    other = tmp_path / "other.yaml"
    other.write_text(JOB, encoding="utf-8")
    sweep_jobs(tasks([other]), out)
    job.write_text(job.read_text(encoding="utf-8").replace("global_batch: 8", "global_batch: 4"), encoding="utf-8")
    found = sweep_jobs(tasks([job]), out)
    assert (found.reused, len(quick)) == (0, 4 + 1 + 4)
    rows = Results(out).read()
    assert [entry["job"] for entry in rows] == ["job"] * 4 + ["other"]
    assert rows[:4] == list(found.rows)


def test_errors_are_tried_again(job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, calls = tmp_path / "rows.jsonl", list[str]()

    def fails(task: Task) -> Row:
        calls.append(task.digest)
        raise InputError("is wrong")

    monkeypatch.setattr(row, "_solved", fails)
    for _ in range(2):
        found = sweep_jobs(tasks([job]), out)
        assert [entry["error"] for entry in found.rows] == ["is wrong"] * 4
    assert len(calls) == 8
    assert len(Results(out).read()) == 4


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.txt", None, "--out: '{path}' is no file of results; expected FILE.jsonl or FILE.csv"),
        ("rows.jsonl", '{"a": 1}\n', "{path}:1:1: --out: this is no row of results"),
        ("rows.csv", "a,b\n1,2\n", "{path}:1:1: --out: the column job is missing"),
    ],
)
def test_a_file_of_something_else_stays(job: Path, tmp_path: Path, name: str, text: str | None, message: str) -> None:
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        sweep_jobs(tasks([job]), path)
    assert str(caught.value) == message.format(path=path)
    assert text is None or path.read_text(encoding="utf-8") == text


def test_a_cell_is_one_line() -> None:
    entry = {**dict.fromkeys(COLUMNS), "job": "a", "fields": {"cluster": {"node": "x"}}, "error": "one\ntwo"}
    text = csv_text([entry], ["cluster"])
    assert text.splitlines()[1] == 'a,"{""node"": ""x""}",,,,,,,,,one two,,'


# ── engines ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_processes_give_the_rows_of_one(job: Path, tmp_path: Path) -> None:
    found = tasks([job])
    one, two = (sweep_jobs(found, tmp_path / f"{workers}.jsonl", workers=workers) for workers in (1, 2))

    def timeless(sweep: Sweep) -> list[Row]:
        return [{**entry, "seconds": 0} for entry in sweep.rows]

    assert timeless(one) == timeless(two)
    assert [status for *_, status in told(one.rows)] == ["optimal", "infeasible"] * 2
    lengths = [len((tmp_path / f"{workers}.jsonl").read_text(encoding="utf-8").splitlines()) for workers in (1, 2)]
    assert lengths == [4, 4]


@pytest.mark.parametrize(("engine", "extra"), [("dask", "engines"), ("ray", "ray")])
def test_an_engine_that_is_not_there_is_bad_input(
    job: Path, monkeypatch: pytest.MonkeyPatch, engine: str, extra: str
) -> None:
    for name in ("joblib", "distributed", "ray"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(InputError) as caught:
        sweep_jobs(tasks([job]), engine=engine)
    assert str(caught.value) == (
        f"--engine: {engine} needs joblib, which is not installed; pip install 'planner[{extra}]'"
    )


def test_dask_gives_the_same_rows(job: Path) -> None:
    pytest.importorskip("joblib")
    pytest.importorskip("distributed")
    found = sweep_jobs(tasks([job]), engine="dask", workers=2)
    assert [status for *_, status in told(found.rows)] == ["optimal", "infeasible"] * 2


def test_a_worker_that_dies_leaves_jobs(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one(found: list[Task], _: str, __: int, ___: Clock) -> Iterator[engines.Numbered]:
        yield 0, row_of(found[0])

    monkeypatch.setattr("planner.many.sweeping.solved", one)
    found = sweep_jobs(tasks([job]))
    assert (found.remaining, found.reason) == (3, "a process that died")


# ── the command ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_answers(job: Path, tmp_path: Path, quick: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.jsonl"
    words = ("sweep", str(job), "--workers", "1", "--out", str(out))
    code, text, err = run(capsys, *words, "--format", "json")
    answer = json.loads(text)
    assert (code, err) == (0, "")
    assert [entry["status"] for entry in answer["rows"]] == ["optimal", "infeasible"] * 2
    assert (answer["fields"], answer["reused"], answer["remaining"]) == (
        ["training.sequence_length", "cluster.gpu_memory"], 0, 0,
    )  # fmt: skip
    code, text, _ = run(capsys, *words)
    assert text.endswith("\n4 jobs: 2 optimal, 2 infeasible; 4 of them were there before\n")
    code, text, _ = run(capsys, *words, "--format", "csv")
    assert text.splitlines()[0].startswith("job,sweep.training.sequence_length,sweep.cluster.gpu_memory,status,")


def test_the_command_says_what_remains(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*_: object) -> Iterator[engines.Numbered]:
        yield from ()

    monkeypatch.setattr("planner.many.sweeping.solved", stopped)
    code, text, err = run(capsys, "sweep", str(job), "--out", str(tmp_path / "rows.jsonl"))
    assert (code, text.splitlines()[-1]) == (4, "0 jobs")
    assert err == (
        "planner: stopped by a process that died: 4 of 4 jobs remain; the same command goes on from "
        f"{tmp_path / 'rows.jsonl'}\n"
    )


def test_swept_values_are_told_in_few_letters() -> None:
    assert value_text({"node": "dgx-h100", "nodes": 2}) == "node dgx-h100, nodes 2"
    assert value_text({"lora": {"rank": 16}}) == "lora rank 16"
    assert value_text([1, 2]) == "1, 2"


def test_the_table_shows_what_was_swept(job: Path, quick: list[str]) -> None:
    lines = sweep_text(sweep_jobs(tasks([job]))).splitlines()
    assert lines[0].split()[:3] == ["job", "training.sequence_length", "cluster.gpu_memory"]
    assert lines[2].endswith("no plan satisfies: gpu_memory_holds_every_phase")
