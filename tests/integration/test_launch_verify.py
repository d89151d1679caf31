"""`planner verify` on two processors: every book of the ledger within three hundredths of what DeepSpeed holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

from planner.accuracy.run_log import read_run_log

ROOT = Path(__file__).parents[2]
# Stage with micro-batch: 8 sequences over 2 ranks are 1 or 2 micro-batches.
CASES = {
    **{f"stage {stage}": (f"zero_stage={stage}", "micro_batch=4") for stage in (0, 1, 3)},
    **{f"stage {stage}, accumulation 2": (f"zero_stage={stage}", "micro_batch=2") for stage in (0, 1, 2, 3)},
    "stage 2": ("zero_stage=2", "micro_batch=4", "checkpoint_count=2", "checkpoint_interval=2"),
}
TOLERANCE = 0.03


def verified(*words: str) -> Any:
    """The answer of the command, run from the root of the checkout."""
    command = [sys.executable, "-m", "planner", "verify", "examples/tiny.yaml", "--cpu", "--format", "json"]
    found = subprocess.run(
        [*command, "--steps", "2", *words], cwd=ROOT, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.mark.parametrize("case", CASES)
def test_every_book_agrees(case: str, tmp_path: Path) -> None:
    log = tmp_path / "runs.csv"
    pins = [word for pin in CASES[case] for word in ("--set", pin)]
    answer = verified("--run", str(tmp_path / "run"), "--log", str(log), *pins)
    assert set(answer["books"]) == {"parameters", "gradients", "optimizer_states", "activations", "buffers"}
    rows = {**answer["books"], **answer["phases"]}
    assert {name: row for name, row in rows.items() if abs(row["error"]) > TOLERANCE} == {}
    assert answer["status"] == "agrees"
    (run,) = read_run_log(log)
    assert (run.id, run.zero_stage, run.gpus) == ("verify-001", answer["plan"]["zero_stage"], 2)


def test_a_sweep_runs_the_neighbours(tmp_path: Path) -> None:
    """Two micro-batches are open: the plan's and one beside it."""
    pins = ("--set", "zero_stage=0", "--set", "checkpoint_count=0", "--set", "checkpoint_interval=0")
    answer = verified("--run", str(tmp_path / "run"), "--sweep", *pins)
    (other,) = answer["neighbours"]
    assert {answer["plan"]["micro_batch"], other["plan"]["micro_batch"]} == {1, 2}
    faster = answer["measured_step_seconds"] <= other["measured_step_seconds"]
    assert answer["fastest"] is faster
    assert (tmp_path / "run" / "neighbour-1" / "measured.json").exists()
