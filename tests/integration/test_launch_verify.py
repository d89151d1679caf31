"""`planner verify` on two processors: every book of the ledger within three hundredths of what DeepSpeed holds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("ortools")

from planner.accuracy.run_log import read_run_log

ROOT = Path(__file__).parents[2]
# Stage with micro-batch: 8 sequences over 2 ranks are 1 or 2 micro-batches.
CASES = {
    **{f"stage {stage}": (f"zero_stage={stage}", "micro_batch=4") for stage in (0, 1, 3)},
    **{f"stage {stage}, accumulation 2": (f"zero_stage={stage}", "micro_batch=2") for stage in (0, 1, 2, 3)},
    "stage 2": ("zero_stage=2", "micro_batch=4", "checkpoint_count=2", "checkpoint_interval=2"),
}
TOLERANCE = 0.03
# Calls of each collective in a step. Gradients go in 11 buckets of a layer's 197,888 elements: the head alone, eight
# layers with the last norm before them in nine, the embedding. Stages 1 and 2 reduce an overflow flag and the norm
# besides, stage 3 the norm; stage 0 has one bucket for all. Stage 2 runs one micro-batch, the others two.
BUCKETS = 11
COLLECTIVES = {
    "stage 0, accumulation 2": {"all-reduce": 1},
    "stage 1, accumulation 2": {"all-reduce": BUCKETS + 2, "all-gather": 1},
    "stage 2": {"all-reduce": BUCKETS + 2, "all-gather": 1},
    "stage 3, accumulation 2": {"all-reduce": 1, "reduce-scatter": 2 * BUCKETS},
}


def verified(*words: str) -> Any:
    """The answer of the command, run from the root of the checkout."""
    command = [sys.executable, "-m", "planner", "verify", "examples/tiny.yaml", "--cpu", "--format", "json"]
    found = subprocess.run(
        [*command, "--steps", "2", *words], cwd=ROOT, text=True, capture_output=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


@pytest.mark.parametrize("case", CASES)
def test_every_book_agrees(case: str, tmp_path: Path) -> None:
    log = tmp_path / "runs.csv"
    pins = [word for pin in CASES[case] for word in ("--set", pin)]
    profile = "--profile" if case in COLLECTIVES else "--no-profile"
    answer = verified("--run", str(tmp_path / "run"), "--log", str(log), profile, *pins)
    if case in COLLECTIVES:
        assert_times(answer["times"], case)
    assert set(answer["books"]) == {"parameters", "gradients", "optimizer_states", "activations", "buffers"}
    rows = {**answer["books"], **answer["phases"]}
    assert {name: row for name, row in rows.items() if abs(row["error"]) > TOLERANCE} == {}
    assert answer["status"] == "agrees"
    (run,) = read_run_log(log)
    assert json.loads((tmp_path / "run" / "comparison.json").read_text()) == answer
    assert (tmp_path / "run" / "trace.json.gz").exists() is (case in COLLECTIVES)
    assert (run.id, run.zero_stage, run.gpus) == ("verify-001", answer["plan"]["zero_stage"], 2)


def test_messages_follow_the_buffers() -> None:
    """Layers of 4 x 16,384, 3 x 44,032 and 2 x 128 elements, embedding and head of 262,144.

    In 50,000 go, layer by layer from the last: down with the norm before it, up, gate with a norm, three of attention,
    the fourth with a norm: five reductions of each of eight layers, and the tables. In 400,000 two layers go together.
    """
    sizes = {"reduce_bucket=50000": 42, "reduce_bucket=400000": 6}
    for size, reductions in sizes.items():
        found = verified("--profile", "--set", "zero_stage=2", "--set", "micro_batch=4", "--set", size)
        assert found["times"]["terms"]["all-reduce"]["count"] == reductions + 2
    gathers = {}
    for size in ("prefetch_bucket=0", "prefetch_bucket=20000", "prefetch_bucket=197888", "live_parameters=1000000"):
        found = verified("--profile", "--set", "zero_stage=3", "--set", "micro_batch=4", "--set", size)
        assert found["status"] == "agrees"
        gathers[size] = found["times"]["terms"]["all-gather"]["count"]
    assert list(gathers.values()) == sorted(gathers.values(), reverse=True)
    assert gathers["prefetch_bucket=0"] > 2 * 7 * 8 + 2 * 2  # every matrix in both passes


def assert_times(times: Any, case: str) -> None:
    """The terms add up to the profiled step, the plan's collectives are all seen, and each one often enough."""
    terms = times["terms"]
    measured = {name: row["measured"] for name, row in terms.items()}
    assert sum(measured.values()) == pytest.approx(times["step_seconds"])
    busy = sum(seconds for name, seconds in measured.items() if name != "nothing runs")
    assert 0 < busy < times["step_seconds"]
    assert min(measured["forward compute"], measured["backward compute"], measured["optimizer"]) > 0
    assert ("recomputation" in measured) is (case == "stage 2")
    counts = {name: terms[name]["count"] for name in terms if name in ("all-reduce", "all-gather", "reduce-scatter")}
    gathers = counts.pop("all-gather") if case == "stage 3, accumulation 2" else 0
    assert counts == COLLECTIVES[case]
    assert gathers == 0 or gathers > 2 * 2 * 8  # every layer in both passes of both micro-batches, and more
    assert {name for name, row in terms.items() if row["predicted"] > 0} <= set(measured)
    assert {name for name, row in terms.items() if row["predicted"] > 0 and not row["measured"]} == set()


def test_a_sweep_runs_the_neighbours(tmp_path: Path) -> None:
    """Two micro-batches are open: the plan's and one beside it."""
    pins = ("--set", "zero_stage=0", "--set", "checkpoint_count=0", "--set", "checkpoint_interval=0")
    answer = verified("--run", str(tmp_path / "run"), "--sweep", "--no-profile", *pins)
    (other,) = answer["neighbours"]
    assert {answer["plan"]["micro_batch"], other["plan"]["micro_batch"]} == {1, 2}
    faster = answer["measured_step_seconds"] <= other["measured_step_seconds"]
    assert answer["fastest"] is faster
    assert (tmp_path / "run" / "neighbour-1" / "measured.json").exists()
