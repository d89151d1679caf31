"""`planner verify` on two processors: every book of the ledger within three hundredths of what DeepSpeed holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

from planner.accuracy.run_log import read_run_log

ROOT = Path(__file__).parents[2]
CASES = {
    "stage 0": ("zero_stage=0", "micro_batch=4"),
    "stage 1, accumulation 2": ("zero_stage=1", "micro_batch=2"),
    "stage 2, two segments of two layers": ("zero_stage=2", "checkpoint_count=2", "checkpoint_interval=2"),
    "stage 3": ("zero_stage=3", "micro_batch=2"),
}
TOLERANCE = 0.03
# Stage 3 gathers ahead by the layer, and each of the tiny model's eight layers is a tenth of all it holds.
GATHERS = {"stage 3": {"backward": 0.06}}


@pytest.mark.parametrize("case", CASES)
def test_every_book_agrees(case: str, tmp_path: Path) -> None:
    log = tmp_path / "runs.csv"
    pins = [word for pin in CASES[case] for word in ("--set", pin)]
    command = [sys.executable, "-m", "planner", "verify", "examples/tiny.yaml", "--run", str(tmp_path / "run")]
    found = subprocess.run(
        [*command, "--log", str(log), "--format", "json", "--steps", "2", *pins], cwd=ROOT, text=True,
        capture_output=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    answer = json.loads(found.stdout)
    assert set(answer["books"]) >= {"parameters", "gradients", "optimizer_states", "activations"}
    assert {name: row for name, row in answer["books"].items() if abs(row["error"]) > TOLERANCE} == {}
    assert answer["status"] == "agrees"
    allowed = GATHERS.get(case, {})
    off = {name: row for name, row in answer["phases"].items() if abs(row["error"]) > allowed.get(name, TOLERANCE)}
    assert off == {}
    (run,) = read_run_log(log)
    assert (run.id, run.zero_stage, run.gpus) == ("verify-001", answer["plan"]["zero_stage"], 2)
