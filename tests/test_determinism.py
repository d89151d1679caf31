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
# Every kind of answer and every file of one job, in one process whose searches have so many workers.
SCRIPT = """
import sys
from planner.cli import main
from planner.compile import Question
job, folder, workers = sys.argv[1:]
before = Question.__init__
Question.__init__ = lambda self, *given, **named: before(self, *given, **{**named, "workers": int(workers)})
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


def made(folder: Path, seed: int, workers: int = 1, python: str = sys.executable) -> dict[str, str]:
    """Hashes of everything that one process makes of the small job, by name."""
    folder.mkdir()
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": str(ROOT)}
    words = [python, "-c", SCRIPT, TINY, str(folder), str(workers)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    texts = {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}
    texts["output"] = done.stdout
    return {name: sha256(settled(text).encode()).hexdigest() for name, text in texts.items()}


def test_processes_that_hash_in_another_order_agree(tmp_path: Path) -> None:
    """Every second one with two workers of the search in place of one."""
    found = [made(tmp_path / str(seed), seed, 1 + seed % 2) for seed in range(RUNS)]
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


def _other_pythons() -> list[str]:
    """Those of OTHER_PYTHON (as PATH is written), else of other versions on PATH, that have what planner needs."""
    versions = (f"python3.{minor}" for minor in range(10, 14) if minor != sys.version_info.minor)
    named = os.environ.get("OTHER_PYTHON", "")
    found = named.split(os.pathsep) if named else [shutil.which(name) or "" for name in versions]
    asked = ("-c", "import ortools, yaml, pydantic, networkx, click, numpy, rich")
    return [path for path in found if path and not subprocess.run([path, *asked], capture_output=True).returncode]


def test_another_python_agrees(tmp_path: Path) -> None:
    others = _other_pythons()
    if not others:
        pytest.skip("no other Python with ortools here; OTHER_PYTHON names some")
    here = made(tmp_path / "this", 0)
    assert {path: made(tmp_path / str(number), 0, python=path) for number, path in enumerate(others)} == dict.fromkeys(
        others, here
    )
