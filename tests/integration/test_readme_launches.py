"""The README's commands that start ranks run as they stand there, on processors."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = re.findall(r"^planner (.*?) +# needs torch$", README, flags=re.MULTILINE)


def test_there_are_some() -> None:
    assert [line.split()[0] for line in LINES] == ["verify", "launch"]


@pytest.mark.parametrize("line", LINES)
def test_the_command_runs(line: str, tmp_path: Path) -> None:
    """The run folder goes elsewhere."""
    command, *words = shlex.split(line)
    arguments = [sys.executable, "-m", "planner", command, "--run", str(tmp_path / "run"), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(arguments, cwd=ROOT, text=True, capture_output=True, check=False, env=environment)
    assert found.returncode == 0, found.stderr[-3000:]
    said = {"verify": "every book agrees within 3%", "launch": "step 5 loss"}
    assert said[command] in found.stdout
