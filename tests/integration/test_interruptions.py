"""Interrupted and killed runs of the tiny job: the folder says so, every file in it is whole, no rank stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

ROOT = Path(__file__).parents[2]
COMMANDS = {
    "launch": ["launch", "examples/tiny.yaml", "--cpu", "--run", "{run}", "--", "examples/train.py", "--steps", "9999"],
    "verify": ["verify", "examples/tiny.yaml", "--cpu", "--run", "{run}", "--steps", "9999"],
}


def started(name: str, folder: Path) -> subprocess.Popen[str]:
    """The command, once its folder says that it runs and its ranks are there."""
    words = [word.replace("{run}", str(folder)) for word in COMMANDS[name]]
    process = subprocess.Popen(
        [sys.executable, "-m", "planner", *words], cwd=ROOT, text=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    wait_for(lambda: status(folder).get("state") == "running" and len(ranks(folder)) > 2)
    return process


def status(folder: Path) -> dict[str, Any]:
    """The status; nothing before there is one."""
    path = folder / "status.json"
    return dict(json.loads(path.read_text())) if path.exists() else {}


def ranks(folder: Path) -> list[int]:
    """Processes that were given the plan of the folder: the launcher and its ranks."""
    marker, found = f"PLANNER_PLAN={folder}/plan.json".encode(), []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            found += [int(path.parent.name)] if marker in path.read_bytes().split(b"\0") else []
        except OSError:
            continue
    return found


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def assert_whole(folder: Path) -> None:
    """Every JSON file can be read, and no temporary file is left."""
    names = [path.name for path in folder.iterdir()]
    assert [name for name in names if name.startswith(".")] == []
    assert {"plan.json", "deepspeed.json", "command.json", "versions.json", "status.json"} <= set(names)
    for path in folder.glob("*.json"):
        json.loads(path.read_text())


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_says_so(name: str, number: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = started(name, folder)
    process.send_signal(number)
    process.wait(120)
    found = status(folder)
    assert (found["state"], found["signal"]) == ("interrupted", number.name)
    assert process.returncode == found["exit_code"] != 0
    assert_whole(folder)
    wait_for(lambda: ranks(folder) == [], 20)


def test_a_killed_launcher_takes_its_ranks_along(tmp_path: Path) -> None:
    """Exit code 137 is 128 + SIGKILL."""
    folder = tmp_path / "run"
    process = started("launch", folder)
    os.kill(status(folder)["process"], signal.SIGKILL)
    process.wait(120)
    found = status(folder)
    assert (found["state"], found["exit_code"], process.returncode) == ("failed", 137, 137)
    assert_whole(folder)
    wait_for(lambda: ranks(folder) == [], 20)
