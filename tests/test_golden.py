"""Whole answers of the shipped examples: plan, DeepSpeed JSON and printed text. `make golden` writes them again."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli

ROOT = Path(__file__).parents[1]
# Those with lists of jobs are for `planner sweep`.
EXAMPLES = [
    path for path in sorted((ROOT / "examples").glob("*.yaml")) if "\nsweep:" not in path.read_text(encoding="utf-8")
]
GOLDEN = ROOT / "tests" / "golden"
WRITE = os.environ.get("PLANNER_GOLDEN") == "write"


def settled(text: str) -> str:
    """The text without the time the solver took."""
    text = re.sub(r"\(solver [^)]*\)", "(solver TIME)", text)
    return re.sub(r'"solver_seconds": [0-9.e-]+', '"solver_seconds": 0.0', text)


def hold(name: str, text: str) -> None:
    """Compares with the golden file, or writes it."""
    path = GOLDEN / name
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(settled(text), encoding="utf-8")
    assert settled(text) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_text(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    hold(f"{path.stem}.txt", CliRunner().invoke(cli, ["solve", f"examples/{path.name}"]).output)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_json(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    output = CliRunner().invoke(cli, ["solve", f"examples/{path.name}", "--format", "json"]).output
    hold(f"{path.stem}.json", output)
    answer = json.loads(output)
    if answer["status"] == "optimal":
        hold(f"{path.stem}.deepspeed.json", json.dumps(answer["deepspeed"], indent=2) + "\n")
        gpu = answer["memory"]["gpu"]
        assert sum(gpu["books"].values()) == gpu["peak_bytes"]
        assert abs(sum(answer["step_time"]["terms"].values()) - answer["step_time"]["seconds"]) < 1e-6


@pytest.mark.parametrize(("parameters", "layers"), [("7e9", "32"), ("70e9", "80")])
def test_envelope(parameters: str, layers: str) -> None:
    output = CliRunner().invoke(cli, ["ledger", "--parameters", parameters, "--layers", layers]).output
    hold(f"envelope-{parameters}.txt", output)
