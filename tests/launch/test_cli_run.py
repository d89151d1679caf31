"""The commands emit and launch: what goes where, notes, and that a dry run leaves nothing behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.commands import run

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "examples" / "tiny.yaml")
TRAIN = str(ROOT / "examples" / "train.py")


def test_emit_prints_one_file_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "emit", TINY, "--to", "deepspeed", "--set", "zero_stage=3")
    assert (code, err) == (0, "")
    assert json.loads(out)["zero_optimization"]["stage"] == 3


def test_emit_writes_files_and_notes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pins = ("--set", "checkpoint_count=3", "--set", "checkpoint_interval=1")
    code, out, err = run(capsys, "emit", TINY, "--to", "torchrun", "--out", str(tmp_path / "files"), *pins)
    assert (code, out) == (0, "")
    assert sorted(path.name for path in (tmp_path / "files").iterdir()) == ["deepspeed.json", "launch.sh", "plan.json"]
    assert err.endswith(
        "note: checkpointing of 3 segments of 1 layers stands in no configuration file: "
        "planner.runtime.apply(model, plan) does it\n"
    )
    assert run(capsys, "emit", TINY, "--to", "torchrun", "--out", str(tmp_path / "files"))[0] == 2


def test_a_dry_run_leaves_nothing_behind(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "launch", TINY, "--dry-run", "--format", "json", "--cpu", "--", TRAIN, "--steps", "3")
    answer = json.loads(out)
    assert (code, list(tmp_path.iterdir())) == (0, [])
    assert answer["arguments"][-3:] == [TRAIN, "--steps", "3"]
    assert answer["environment"]["PLANNER_DEVICE"] == "cpu"
    assert answer["rehearsal"] == "the ranks run on processors, as --cpu says"


def test_verify_needs_a_model_that_can_be_built(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: {parameters: 30e6, layers: 4}\ncluster: {gpu: a100-sxm-80gb, gpus_per_node: 2}\n"
        "training: {sequence_length: 512, global_batch: 8}\n"
    )
    code, _, err = run(capsys, "verify", str(path))
    assert code == 2
    assert err == (
        f"planner: {path}:1:8: model: a size cannot be built; expected a model of the catalog or a path to a "
        "config.json\n"
    )


def test_verify_goes_through_a_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Neither model can be built: both are told, and the exit code says that something was not run."""
    for name in ("one", "two"):
        (tmp_path / f"{name}.yaml").write_text(
            "model: {parameters: 30e6, layers: 4}\ncluster: {gpu: a100-sxm-80gb, gpus_per_node: 2}\n"
            "training: {sequence_length: 512, global_batch: 8}\n"
        )
    code, out, _ = run(capsys, "verify", str(tmp_path), "--format", "json", "--run", str(tmp_path / "runs"))
    answer = json.loads(out)
    assert (code, answer["status"], list(answer["jobs"])) == (2, "differs", ["one", "two"])
    assert answer["jobs"]["two"]["error"].startswith(f"{tmp_path}/two.yaml:1:8: model: a size cannot be built")


def test_verify_runs_plans_whose_model_is_whole(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.launch.programs.find_spec", lambda name: name)
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: {ROOT}/examples/tiny/config.json\ncluster: {{gpu: a100-sxm-80gb, gpus_per_node: 2}}\n"
        "training: {sequence_length: 64, global_batch: 8}\nchoices: {tensor_parallel: 2}\n"
    )
    code, _, err = run(capsys, "verify", str(path), "--run", str(tmp_path / "run"))
    assert (code, err) == (
        2,
        "planner: choices: verify divides batches over the ranks, and the plan divides the model too; expected a plan "
        "with data parallelism alone\n",
    )


def test_the_jobs_for_one_gpu_have_plans_that_verify_runs() -> None:
    """What stands ready for a GPU is planned: full training with AdamW under DeepSpeed, on one rank."""
    from planner.resolve import read_job
    from planner.search import solve
    from planner.verify.verifying import model_fields, require_runnable

    paths = sorted((ROOT / "examples" / "one-gpu").glob("*.yaml"))
    assert len(paths) == 6
    for path in paths:
        found = solve(read_job(path)).best
        assert found.ledger["gpu"].verdict == "fits" and model_fields(path)["model_type"]
        require_runnable(found)
