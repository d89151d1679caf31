"""`planner launch` trains the tiny job under real DeepSpeed on two processors, and the loss falls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

ROOT = Path(__file__).parents[2]
# Stage with micro-batches per step: 8 sequences over 2 ranks in micro-batches of 4 or 2.
CASES = {"stage 0": (0, 4), "stage 1, accumulation 2": (1, 2), "stage 2": (2, 4), "stage 3, accumulation 2": (3, 2)}


def launched(folder: Path, *words: str, steps: int = 8) -> subprocess.Popen[str]:
    """The command, from the root of the checkout."""
    command = [sys.executable, "-m", "planner", "launch", "examples/tiny.yaml", "--run", str(folder), *words, "--"]
    return subprocess.Popen(
        [*command, "examples/train.py", "--steps", str(steps)], cwd=ROOT, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_loss_falls(case: str, tmp_path: Path) -> None:
    stage, micro_batch = CASES[case]
    folder = tmp_path / "run"
    process = launched(folder, "--set", f"zero_stage={stage}", "--set", f"micro_batch={micro_batch}")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err[-3000:]
    losses = [float(found) for found in re.findall(r"^step \d+ loss ([\d.]+)$", out, flags=re.MULTILINE)]
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 1
    status = json.loads((folder / "status.json").read_text())
    assert (status["state"], status["exit_code"]) == ("finished", 0)
    files = sorted(path.name for path in folder.iterdir())
    assert files == ["command.json", "deepspeed.json", "plan.json", "status.json", "versions.json"]
    assert json.loads((folder / "deepspeed.json").read_text())["zero_optimization"]["stage"] == stage
    assert json.loads((folder / "versions.json").read_text())["deepspeed"]
