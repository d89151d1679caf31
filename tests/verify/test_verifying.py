"""What a run folder of ranks tells, with the launcher replaced by a small Python program."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from jobs import job, plan
from test_comparison import as_predicted

from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.launch.command import Command
from planner.launch.launching import Launch
from planner.verify import verifying


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Evaluation:
    """A plan under DeepSpeed on a machine that has all packages."""
    monkeypatch.setattr("planner.launch.programs.find_spec", lambda name: name)
    found = job()
    return evaluate(found, plan(found, zero_stage=2))


def ranks(monkeypatch: pytest.MonkeyPatch, measured: Any, said: str, code: int) -> None:
    """Ranks that write `measured` where there is any, say something and leave with a code."""

    def prepare(evaluation: Evaluation, script: list[str], folder: Path, where: Any) -> Launch:
        text = (
            f"import pathlib, sys\nfolder, found = pathlib.Path({str(folder)!r}), {json.dumps(measured)!r}\n"
            f"if found != 'null': (folder / 'measured.json').write_text(found)\nprint({said!r})\nsys.exit({code})"
        )
        return Launch(evaluation, Command("torchrun", (sys.executable, "-c", text), {}), folder, ())

    monkeypatch.setattr(verifying, "prepare", prepare)


def test_ranks_that_measured_are_compared(planned: Evaluation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ranks(monkeypatch, as_predicted(planned), "done", 0)
    found = verifying.verify(planned, {"model_type": "llama"}, tmp_path / "run", timed=False)
    assert found.agrees and found.times.notes == ()
    kept = json.loads((tmp_path / "run" / "comparison.json").read_text())
    assert (kept["status"], kept["times"]["terms"]) == ("agrees", {})
    assert json.loads((tmp_path / "run" / "config.json").read_text()) == {"model_type": "llama"}


def test_a_profiler_that_fails_leaves_the_measurement(
    planned: Evaluation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ranks(monkeypatch, as_predicted(planned), "RuntimeError: CUPTI is not there", 1)
    found = verifying.verify(planned, {}, tmp_path / "run")
    assert found.agrees and found.times.rows == ()
    assert found.times.notes == ("no time by term: RuntimeError: CUPTI is not there",)


def test_ranks_that_fail_before_are_an_error(
    planned: Evaluation, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ranks(monkeypatch, None, "torch.OutOfMemoryError: CUDA out of memory", 1)
    with pytest.raises(InputError) as caught:
        verifying.verify(planned, {}, tmp_path / "run")
    log = tmp_path / "run" / "output.log"
    assert str(caught.value) == f"{log}: the ranks left with 1: torch.OutOfMemoryError: CUDA out of memory"


@pytest.mark.parametrize("missing", ["torch", "deepspeed", "transformers"])
def test_what_is_not_installed(
    planned: Evaluation, missing: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("planner.launch.programs.find_spec", lambda name: None if name == missing else name)
    with pytest.raises(InputError) as caught:
        verifying.verify(planned, {}, tmp_path / "run")
    assert str(caught.value) == f"--launcher: {missing} is not installed; pip install 'planner[launch]' brings it"
    assert not (tmp_path / "run").exists()
