"""The forms of a frontier: JSON, CSV, text, and the files of one point."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.errors import InputError

JOB = str(Path(__file__).parents[1] / "examples" / "llama-2-7b-8xa100.yaml")
PINS = ["--set", "zero_stage=3", "--set", "micro_batch=1"]


def pareto(*words: str) -> str:
    """Standard output of the command on a narrowed job; its failure is raised."""
    found = CliRunner().invoke(cli, ["pareto", JOB, *PINS, *words], catch_exceptions=False, standalone_mode=False)
    if found.exception is not None:
        raise found.exception
    return found.stdout


def test_json_holds_whole_plans_at_their_places() -> None:
    answer = json.loads(pareto("--format", "json"))
    assert answer["axes"] == ["memory", "step_time"]
    assert answer["units"] == {"memory": "bytes", "step_time": "seconds"}
    assert answer["proof"]["complete"] and answer["proof"]["confirmed_by_solver"]
    for point in answer["points"]:
        assert point["at"] == {
            "memory": point["memory"]["gpu"]["peak_bytes"],
            "step_time": point["step_time"]["seconds"],
        }
        assert point["violations"] == []


def test_csv_has_a_row_for_each_point() -> None:
    rows = list(csv.DictReader(pareto("--format", "csv").splitlines()))
    assert [row["point"] for row in rows] == [str(number) for number in range(1, len(rows) + 1)]
    memory = [int(row["memory [bytes]"]) for row in rows]
    assert memory == sorted(memory)
    assert {row["zero_stage"] for row in rows} == {"3"}


def test_text_says_what_is_proven() -> None:
    text = pareto()
    assert "Proven: none of " in text
    assert "the frontier is complete; confirmed by the solver" in text


def test_a_point_becomes_files(tmp_path: Path) -> None:
    points = json.loads(pareto("--format", "json", "--point", "1", "--out", str(tmp_path / "lean")))["points"]
    assert sorted(path.name for path in (tmp_path / "lean").iterdir()) == ["deepspeed.json", "plan.json", "plan.txt"]
    assert json.loads((tmp_path / "lean" / "plan.json").read_text())["plan"] == points[0]["plan"]


def test_a_point_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        pareto("--point", "0", "--out", str(tmp_path / "none"))
    assert str(caught.value).startswith("--point: there is no point 0; expected 1 to ")
    assert not (tmp_path / "none").exists()


def test_point_and_out_go_together() -> None:
    with pytest.raises(InputError) as caught:
        pareto("--point", "1")
    assert str(caught.value) == "--point: --point and --out go together"
