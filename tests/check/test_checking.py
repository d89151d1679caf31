"""A file under a job: its books, where they break, and the better file."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from files import FOLDER, configuration, zero

from planner import search
from planner.check.answer import check_answer, check_text, portable
from planner.check.checking import Checked, check
from planner.check.findings import severity
from planner.check.registry import findings
from planner.check.subject import Subject
from planner.check.text import source
from planner.cli import cli
from planner.job import Job
from planner.resolve import read_job
from planner.search import Solution, solve
from planner.units import GIB

JOB = Path(__file__).parents[2] / "examples" / "llama-2-7b-8xa100.yaml"
KEYS = {
    "severity", "findings", "ranks", "memory", "memory_with_gradient_checkpointing", "failure", "plan", "violations",
    "trainer_arguments", "better", "diff", "notes",
}  # fmt: skip


@pytest.fixture(scope="module", name="job")
def job_of_eight_gpus() -> Job:
    return read_job(JOB)


@pytest.fixture(autouse=True)
def solved_once(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test asks for the best plan of the same job."""
    monkeypatch.setattr(search, "solve", lambda asked: solution(job) if asked is job else solve(asked))


@lru_cache(maxsize=1)
def solution(job: Job) -> Solution:
    """The best plan of the job."""
    return solve(job)


def checked(tmp_path: Path, content: dict[str, Any], job: Job | None) -> Checked:
    """A content, written to a file and checked."""
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return check(path, job)


def test_the_file_becomes_a_plan(tmp_path: Path, job: Job) -> None:
    content = zero(3, offload_optimizer={"device": "cpu"}, offload_param={"device": "cpu"}, sub_group_size=20_000_000)
    content |= {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "data_types": {"grad_accum_dtype": "fp32"},
    }
    found = checked(tmp_path, content, job).mapped
    assert found is not None
    values = found.evaluation.values
    named = ("zero_stage", "micro_batch", "gradient_accumulation", "optimizer_offload", "parameter_offload")
    assert [values[name] for name in named] == [3, 2, 4, "cpu", "cpu"]
    assert values["gradient_accumulation_dtype"] == "fp32"
    assert (values["reduce_bucket"], values["sub_group"]) == (50_000_000, 20_000_000)
    assert found.job.training.global_batch == 2 * 4 * 8


def test_auto_sizes_follow_the_hidden_width(tmp_path: Path, job: Job) -> None:
    # hidden 4096: 4096², nine tenths of it, ten times 4096
    content = zero(3, stage3_prefetch_bucket_size="auto", stage3_param_persistence_threshold="auto")
    content["zero_optimization"]["reduce_bucket_size"] = "auto"
    found = checked(tmp_path, content, job).mapped
    assert found is not None
    values = found.values
    assert (values["reduce_bucket"], values["prefetch_bucket"]) == (16777216, 15099494)
    assert found.job.persistence_threshold == 40960


def test_larger_buckets_hold_more(tmp_path: Path, job: Job) -> None:
    # 450 million more elements of 2 bytes, twice for the overlap
    small, large = (
        checked(tmp_path, zero(2, reduce_bucket_size=size, overlap_comm=True), job) for size in (5 * 10**7, 5 * 10**8)
    )
    assert small.mapped is not None and large.mapped is not None
    buckets = [
        sum(line.bytes for line in place.evaluation.ledger["gpu"].phase("backward").lines if "bucket" in line.name)
        for place in (small.mapped, large.mapped)
    ]
    assert buckets[1] - buckets[0] == 4 * 450_000_000


def test_the_failing_line_is_named(tmp_path: Path, job: Job) -> None:
    found = checked(tmp_path, configuration(zero_optimization={"stage": 0}), job)
    assert found.failure is not None
    # 6.74 billion parameters: 2 bytes of weights fit into 80 GB, 12 bytes of master weights and moments do not
    assert (found.failure.device, found.failure.phase, found.failure.book) == ("gpu", "init", "optimizer_states")
    assert "runs out of GPU in phase init at '" in check_text(found)


def test_a_file_that_fits_has_no_failing_line(tmp_path: Path, job: Job) -> None:
    found = checked(tmp_path, zero(3), job)
    assert found.failure is None
    assert check_answer(found)["failure"] is None


def test_recomputing_layers_takes_less(tmp_path: Path, job: Job) -> None:
    place = checked(tmp_path, zero(3), job).mapped
    assert place is not None
    assert place.checkpointed.peak_bytes < place.evaluation.peak_bytes - GIB


def test_a_stage_that_is_none_is_not_mapped(tmp_path: Path, job: Job) -> None:
    found = checked(tmp_path, zero(4), job)
    assert found.mapped is None
    assert found.notes == (
        "the file cannot be mapped to a plan of the job: zero_optimization.stage: 4 is no stage of ZeRO; "
        "expected 0, 1, 2 or 3",
    )


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.json")), ids=lambda path: path.stem)
def test_the_better_file_has_no_errors(path: Path, job: Job) -> None:
    found = check(path, job)
    better = _patched(found)
    again = findings(Subject(source("better.json", better), 8))
    assert severity(again) in ("ok", "warn"), [item for item in again if item.severity == "error"]
    content = json.loads(better)
    assert content["zero_optimization"]["stage"] == found.better.values["zero_stage"]  # type: ignore[union-attr]
    assert content["train_batch_size"] == 64


def _patched(found: Checked) -> str:
    """The file with the diff applied, by taking the lines it keeps and adds."""
    before = found.subject.source.text.splitlines()
    after: list[str] = []
    position = 0
    for line in found.diff.splitlines()[2:]:
        if line.startswith("@@"):
            start = int(line.split()[1].split(",")[0][1:])
            after += before[position : start - 1]
            position = start - 1
        elif line.startswith("+"):
            after.append(line[1:])
        else:
            position += 1
            after += [line[1:]] if line.startswith(" ") else []
    return "\n".join(after + before[position:]) + "\n"


def test_unrelated_keys_stay(tmp_path: Path, job: Job) -> None:
    content = configuration(wandb={"enabled": True, "project": "mine"}, nebula={"enabled": False})
    found = checked(tmp_path, content, job)
    better = json.loads(_patched(found))
    assert better["wandb"] == {"enabled": True, "project": "mine"}
    assert "nebula" not in better


def test_without_a_job_nothing_is_said_about_memory(tmp_path: Path) -> None:
    answer = check_answer(checked(tmp_path, configuration(), None))
    assert set(answer) == KEYS
    assert (answer["memory"], answer["failure"], answer["diff"]) == (None, None, "")
    assert answer["notes"] == ["8 ranks are assumed; --gpus or --job say how many"]
    assert answer["trainer_arguments"][0] == {
        "argument": "per_device_train_batch_size", "value": 1, "key": "train_micro_batch_size_per_gpu",
    }  # fmt: skip


def test_the_command_answers_with_0_also_for_errors() -> None:
    path = str(FOLDER / "25_batch_triplet_mismatch.json")
    answer = CliRunner().invoke(cli, ["check", path, "--job", str(JOB), "--format", "json"])
    assert answer.exit_code == 0
    found = json.loads(answer.stdout)
    assert set(found) == KEYS
    assert found["severity"] == "error"
    assert found["memory"]["gpu"]["verdict"] in ("fits", "risky", "no")
    assert found["findings"][0] == {
        "key": "train_batch_size",
        "severity": "error",
        "message": "64 is not 4 × 4 × 8 ranks = 128: DeepSpeed refuses the file; these sizes fit 4 ranks only",
        "line": 2,
        "refused_by": "parser",
    }
    assert CliRunner().invoke(cli, ["check", path, "--gpus", "4", "--format", "json"]).stdout.count('"error"') == 0


def test_the_text_names_lines_and_trainer_arguments() -> None:
    answer = CliRunner().invoke(cli, ["check", str(FOLDER / "09_fp16_and_bf16_both_true.json")])
    assert answer.exit_code == 0
    assert "error  fp16.enabled (line 3): bf16 is enabled too: DeepSpeed refuses both together" in answer.stdout
    assert "  per_device_train_batch_size = 1  (train_micro_batch_size_per_gpu)" in answer.stdout


def test_without_a_plan_there_is_no_better_file(tmp_path: Path) -> None:
    small = read_job(JOB.with_name("llama-2-7b-1xrtx4090-small-host.yaml"))
    found = checked(tmp_path, zero(3), small)
    assert (found.better, found.diff) == (None, "")
    assert found.notes[-1].startswith("there is no better file: no plan satisfies: ")


def test_the_batch_of_the_file_is_counted(tmp_path: Path, job: Job) -> None:
    # 1 sequence × 2 steps × 8 ranks against the job's 64
    found = checked(tmp_path, configuration(), job)
    assert "the file makes 16 sequences a step, the job 64: the file's are counted" in found.notes


def test_gpus_and_job_must_agree() -> None:
    path = str(FOLDER / "09_fp16_and_bf16_both_true.json")
    answer = CliRunner().invoke(cli, ["check", path, "--job", str(JOB), "--gpus", "4"])
    assert str(answer.exception) == "--gpus: 4 GPUs are not the job's 8; leave it out"


def test_infinity_stays_readable() -> None:
    assert [portable(value) for value in (float("inf"), float("nan"), 1.5, "auto")] == ["inf", "nan", 1.5, "auto"]
