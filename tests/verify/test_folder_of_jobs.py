"""Every job of a folder: answers beside errors, and one line for each."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import job, plan
from test_comparison import as_predicted

from planner.errors import InputError
from planner.evaluate import evaluate
from planner.verify.comparison import Comparison, compare
from planner.verify.folder_of_jobs import each_job, failed, jobs_answer, jobs_text


def verified(path: Path, place: Path) -> list[Comparison]:
    """As predicted; the job called `off` has twice the gradients, and `broken` cannot be run."""
    if path.stem == "broken":
        raise InputError("the ranks left with 1", str(place))
    found = job()
    evaluation = evaluate(found, plan(found, zero_stage=2))
    return [compare(evaluation, as_predicted(evaluation, gradients=2.0 if path.stem == "off" else 1.0))]


def test_one_that_fails_does_not_stop_the_others(tmp_path: Path) -> None:
    for name in ("broken", "good", "off"):
        (tmp_path / f"{name}.yaml").write_text("")
    found = each_job(tmp_path, tmp_path / "runs", verified)
    answer = jobs_answer(found)
    assert failed(found) and answer["status"] == "differs"
    assert {name: one["status"] for name, one in answer["jobs"].items()} == {
        "broken": "error", "good": "agrees", "off": "differs",
    }  # fmt: skip
    assert jobs_text(found).splitlines()[-3:] == [
        f"broken  failed: {tmp_path}/runs/broken: the ranks left with 1", "good    agrees",
        "off     apart: gradients, init, forward, loss, backward, optimizer_step",
    ]  # fmt: skip


def test_a_folder_without_jobs(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        each_job(tmp_path, tmp_path, verified)
    assert str(caught.value) == f"{tmp_path}: the folder holds no job file; expected files *.yaml, *.yml or *.json"
