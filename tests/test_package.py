"""The public names: there, the commands' own objects, and not loaded before they are asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).parents[1]
JOB = ROOT / "examples" / "llama-2-7b-8xa100.yaml"


def test_names_are_those_of_the_commands() -> None:
    """Also after the modules of the same names have been imported."""
    import planner.emit.deepspeed as deepspeed
    from planner.evaluate import evaluate
    from planner.frontier import frontier
    from planner.job import Job
    from planner.search import solve

    assert planner.evaluate is evaluate
    assert planner.frontier is frontier
    assert (planner.Job, planner.solve, planner.deepspeed_config) == (Job, solve, deepspeed.configuration)


def test_a_job_is_solved_and_configured() -> None:
    from planner import deepspeed_config, evaluate, read_job, solve

    job = read_job(JOB)
    best = solve(job).best
    assert evaluate(job, best.plan).peak_bytes == best.peak_bytes
    assert deepspeed_config(job, best.plan)["train_batch_size"] == 64


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'planner' has no attribute 'sovle'"):
        _ = planner.sovle  # type: ignore[attr-defined]


def test_importing_the_package_loads_nothing() -> None:
    code = "import sys, planner; print(sorted(name for name in sys.modules if name.startswith('planner')))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert found.stdout == "['planner']\n"
