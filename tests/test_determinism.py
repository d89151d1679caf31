"""The same input gives the same bytes: over runs, processes, orders of hashing, numbers of workers and Pythons."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from planner.compile import Question
from tests.commands import run

ROOT = Path(__file__).parents[1]
TINY = str(ROOT / "examples" / "tiny.yaml")
# Two in a usual run; RUNS=20 for the figure in docs/quality.md.
RUNS = int(os.environ.get("RUNS", "2"))
# The one measured figure of an answer.
MEASURED = "solver_seconds"
# Every kind of answer and every file of one job, in one process.
SCRIPT = """
import sys
from planner.cli import main
job, folder = sys.argv[1:]
for words in (
    ["solve", job, "--format", "json", "--out", folder + "/solve"],
    ["pareto", job, "--format", "json"],
    ["explain", job, "--format", "json"],
    ["emit", job, "--to", "kubernetes"],
    ["report", job, "-o", folder + "/page.html"],
):
    main(words)
"""


def without_seconds(data: Any) -> Any:
    """An answer without what was measured while it was made."""
    if isinstance(data, dict):
        return {name: without_seconds(value) for name, value in data.items() if name != MEASURED}
    return [without_seconds(item) for item in data] if isinstance(data, list) else data


def settled(text: str) -> str:
    """Text of any form without the measured seconds: as a field of JSON, and as people read them."""
    text = re.sub(rf'"{MEASURED}":\s*[0-9.e+-]+', f'"{MEASURED}": 0', text)
    return re.sub(r"[0-9.]+ (?:µs|us|ms|s) of solver|[Ss]olver[^.\n]{0,40}?[0-9.]+ (?:µs|us|ms|s)\b", "solver", text)


def made(folder: Path, seed: int, python: str = sys.executable, job: str = TINY) -> dict[str, str]:
    """Hashes of everything that one process makes, by name."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [python, "-c", SCRIPT, job, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    texts = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
    texts["output"] = done.stdout
    return {name: sha256(settled(text).encode()).hexdigest() for name, text in texts.items()}


def test_processes_that_hash_in_another_order_agree(tmp_path: Path) -> None:
    found = [made(tmp_path / str(seed), seed) for seed in range(RUNS)]
    assert list(found[0]) == [
        "page.html", "solve/deepspeed.json", "solve/plan.json", "solve/plan.txt", "output"
    ]  # fmt: skip
    for one in found[1:]:
        assert one == found[0]


def test_runs_in_one_process_agree(capsys: pytest.CaptureFixture[str]) -> None:
    texts = [run(capsys, "solve", TINY, "--format", "json")[1] for _ in range(3)]
    assert len({json.dumps(without_seconds(json.loads(text))) for text in texts}) == 1


@pytest.mark.parametrize("workers", [2])
def test_the_number_of_workers_does_not_matter(
    workers: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def answer() -> Any:
        return without_seconds(json.loads(run(capsys, "solve", TINY, "--format", "json")[1]))

    one, before = answer(), Question.__init__

    def more(self: Question, *given: Any, **named: Any) -> None:
        before(self, *given, **{**named, "workers": workers})

    monkeypatch.setattr(Question, "__init__", more)
    assert answer() == one


def test_another_place_of_the_file_changes_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "tiny", tmp_path / "tiny")
    moved = shutil.copy(TINY, tmp_path)
    here, there = (json.loads(run(capsys, "solve", str(path), "--format", "json")[1]) for path in (TINY, moved))
    assert without_seconds(here) == without_seconds(there)


def _other_python() -> str:
    """A Python 3.13 that has what planner needs; empty where there is none."""
    found = os.environ.get("OTHER_PYTHON") or shutil.which("python3.13") or ""
    asked = [found, "-c", "import ortools, yaml, pydantic, networkx, click, numpy, rich"]
    return found if found and subprocess.run(asked, capture_output=True, check=False).returncode == 0 else ""


def test_another_python_agrees(tmp_path: Path) -> None:
    other = _other_python()
    if not other:
        pytest.skip("no Python 3.13 with ortools here; OTHER_PYTHON names one")
    assert made(tmp_path / "other", 0, other) == made(tmp_path / "this", 0)
