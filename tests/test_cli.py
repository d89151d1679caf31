"""Exit codes, what goes where, and that nothing heavy is imported before it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import run

ROOT = Path(__file__).parents[1]
JOB = str(ROOT / "examples" / "llama-2-7b-8xa100.yaml")
NO_PLAN = str(ROOT / "examples" / "llama-2-7b-1xrtx4090-small-host.yaml")


def test_solve_answers_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "solve", JOB, "--format", "json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["status"] == "optimal"
    assert answer["memory"]["gpu"]["verdict"] == "fits"
    assert answer["proof"]["optimal"]


def test_no_plan_is_an_answer_with_exit_code_3(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "solve", NO_PLAN, "--format", "json")
    answer = json.loads(out)
    assert code == 3
    assert answer["status"] == "infeasible"
    assert answer["conflict"] == [
        "gpu_memory_holds_every_phase", "host_memory_holds_every_phase", "nvme_holds_what_is_moved_there",
    ]  # fmt: skip
    assert answer["nearest_miss"]["violations"]
    assert err == "planner: no plan satisfies: " + ", ".join(answer["conflict"]) + "\n"


def test_a_missing_file_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "nothing.yaml"
    code, out, err = run(capsys, "solve", str(path))
    assert (code, out) == (2, "")
    assert err == f"planner: {path}: there is no such file; expected a YAML or JSON file\n"


def test_bad_input_names_place_and_nearest_spelling(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: llama-2-7b\ncluster: {node: dgx-a100-80gb}\n"
        "training: {sequence_length: 4096, global_batch: 64}\nchoices: {zero_stge: 2}\n"
    )
    code, _, err = run(capsys, "solve", str(path))
    assert code == 2
    assert err == (
        f"planner: {path}:4:11: choices.zero_stge: unknown choice 'zero_stge'; expected one of layout, zero_stage, "
        "secondary_partition, gather_precision, reduction_precision, optimizer_offload, optimizer_on_gpu, "
        "offloaded_update, parameter_offload, gradient_sync, optimizer_update, gradient_accumulation_dtype, "
        "reduce_bucket, prefetch_bucket, live_parameters, sub_group, "
        "micro_batch, activation_offload, loss, recompute_policy, mlp_tiles, recompute_modules, "
        "checkpoint_interval, checkpoint_count, "
        "tensor_parallel, pipeline_parallel, sequence_parallel, expert_parallel, virtual_stages; did you mean "
        "'zero_stage'?\n"
    )


@pytest.mark.parametrize(
    ("pin", "message"),
    [
        ("zero_stage", "--set: 'zero_stage' is no CHOICE=VALUE; expected such as zero_stage=2"),
        ("zero_stage=4", "choices.zero_stage: unknown value '4' of zero_stage; expected one of 0, 1, 2, 3"),
        ("micro_batch=0", "choices.micro_batch: '0' is no value of micro_batch; expected a whole number"),
        ("micro_batch=x", "choices.micro_batch: 'x' is no value of micro_batch; expected a whole number"),
    ],
)
def test_bad_pins(capsys: pytest.CaptureFixture[str], pin: str, message: str) -> None:
    code, _, err = run(capsys, "ledger", JOB, "--set", pin)
    assert (code, err) == (2, f"planner: {message}\n")


def test_ledger_evaluates_a_plan_that_breaks_rules(capsys: pytest.CaptureFixture[str]) -> None:
    """Three sequences on eight ranks: 64 is no multiple of 24."""
    code, out, _ = run(capsys, "ledger", JOB, "--set", "micro_batch=3", "--set", "zero_stage=0", "--format", "json")
    answer = json.loads(out)
    assert (code, answer["status"]) == (0, "evaluated")
    assert answer["plan"]["micro_batch"] == 3
    assert [item["constraint"] for item in answer["violations"]] == [
        "batch_divides_over_ranks", "gpu_memory_holds_every_phase",
    ]  # fmt: skip
    assert answer["memory"]["gpu"]["verdict"] == "no"


def test_out_writes_whole_files_and_never_over_others(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "plan"
    assert run(capsys, "solve", JOB, "--out", str(folder))[0] == 0
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["deepspeed.json", "plan.json", "plan.txt"]
    before = (folder / "plan.json").read_text()
    code, _, err = run(capsys, "solve", JOB, "--out", str(folder))
    assert (code, err) == (2, f"planner: --out: {folder / 'plan.json'} exists; --force writes over it\n")
    assert (folder / "plan.json").read_text() == before
    assert run(capsys, "solve", JOB, "--out", str(folder), "--force")[0] == 0


def test_help_imports_nothing_heavy() -> None:
    """`--help` must stay quick: of the packages only click is imported."""
    code = (
        "import sys\nfrom planner.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'ortools', 'pydantic', 'networkx', 'numpy', 'yaml', 'rich'} & set(sys.modules)\n"
        "print(sorted(heavy), file=sys.stderr)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stderr == "[]\n"
    assert "solve" in found.stdout
