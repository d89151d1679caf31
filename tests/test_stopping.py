"""Searches that end early: at a time limit, by an interrupt, before every combination was read."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from math import ceil
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ortools.sat.python import cp_model

from planner import cli, search
from planner import compile as compiler
from planner.answer import solution_answer
from planner.beside import run_beside
from planner.clock import Clock, interruptible
from planner.errors import Stopped
from planner.job import Job
from planner.points import Points
from planner.report import solution_text
from planner.resolve import read_job
from planner.search import solve
from planner.second_reading import read_again
from tests.commands import run
from tests.jobs import PLAIN, job

EXAMPLES = Path(__file__).parents[1] / "examples"
# Sixteen GPUs that a model can be divided over in dozens of ways.
DIVIDED: dict[str, Any] = {
    "cluster": {"node": "dgx-h100", "nodes": 2}, "model": "llama-3.2-1b",
    "training": {"runtime": "megatron", "sequence_length": 2048, "global_batch": 64},
}  # fmt: skip


def _nothing(work: Callable[[], object], _: object, __: object) -> cp_model.CpSolverStatus:
    """The status of a solver that comes to nothing in its time."""
    work()
    return cp_model.UNKNOWN


@pytest.fixture(name="no_solver")
def _no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "run_beside", _nothing)


def _tight() -> Job:
    """A job that must recompute every layer to fit; its bounds look at each device and at time alone."""
    training = {"sequence_length": 8192}
    choices = {"zero_stage": 0, "micro_batch": 4, "optimizer_offload": "none", "parameter_offload": "none",
               "gradient_accumulation_dtype": "bf16", "checkpoint_interval": 1, **PLAIN}  # fmt: skip
    lean = solve(job(training=training, choices={**choices, "checkpoint_count": 4})).best
    usable = ceil(lean.peak_bytes * lean.job.runtime.fragmentation) + 1
    open_choices = {**choices, "checkpoint_interval": [0, 1], "checkpoint_count": [0, 1, 2, 3, 4]}
    return job(training=training, cluster={"gpu_memory": f"{usable} B"}, choices=open_choices)


def test_without_the_solver_the_rows_prove_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of every point that could matter was looked at before the solver was asked."""
    best = solve(_tight())
    monkeypatch.setattr(compiler, "run_beside", _nothing)
    found = solve(_tight())
    assert found.proof.optimal and found.ordered and found.proof.gap == 0
    assert (found.best.plan, found.proof.bound) == (best.best.plan, best.proof.bound)


def test_the_answer_and_the_text_tell_the_gap() -> None:
    solution = solve(job(**DIVIDED), clock=Clock(0.0))
    answer = read_again(solution_answer(solution))
    assert answer["status"] == "feasible"
    assert solution.proof.gap == pytest.approx(1 - solution.proof.bound / solution.best.step_time.seconds)
    assert answer["proof"]["gap"] == round(solution.proof.gap, 6)
    assert answer["proof"]["stopped_by"] == "the time limit of 0 s"
    assert "Not proven optimal: the search was ended by the time limit of 0 s: no plan of " in solution_text(solution)


def test_time_that_runs_out_while_combinations_are_read_leaves_the_best_plan_so_far() -> None:
    """The first layouts are always read; the bound is that of what was left."""
    found, best = solve(job(**DIVIDED), clock=Clock(0.0)), solve(job(**DIVIDED))
    assert not found.best.violations
    assert not found.proof.optimal
    assert found.proof.bound <= best.proof.bound <= found.best.step_time.seconds
    assert read_again(solution_answer(found))["status"] == "feasible"


def test_time_that_runs_out_before_any_plan_exits_with_4(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing was found among what was read, which is no proof that nothing fits."""
    real = search.promising_points

    def nothing_yet(*given: Any) -> Points:
        return search.replace(real(*given), points=(), unread=1_500_000)

    monkeypatch.setattr(search, "promising_points", nothing_yet)
    with pytest.raises(Stopped) as caught:
        solve(job(), clock=Clock(2.0))
    assert caught.value.bound == 1.5
    assert str(caught.value) == (
        "stopped without a plan: the time limit of 2 s while combinations of choices were still being read; "
        "no plan is below 1.5 s"
    )
    code, out, err = run(capsys, "solve", str(EXAMPLES / "tiny.yaml"), "--time-limit", "2")
    assert (code, out, err) == (4, "", f"planner: {caught.value}\n")


def test_an_interrupt_gives_the_best_plan_so_far(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layouts are read whatever happens; Ctrl-C before them leaves the others out."""
    real, divided = search.promising_points, job(**DIVIDED)

    def interrupted(*given: Any) -> Points:
        os.kill(os.getpid(), signal.SIGINT)
        monkeypatch.setattr(search, "promising_points", real)
        return real(*given)

    monkeypatch.setattr(search, "promising_points", interrupted)
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(cli, "job_of", lambda *_: divided)
    code, out, err = run(capsys, "solve", str(EXAMPLES / "tiny.yaml"), "--format", "json", "--top", "3")
    assert err == ""
    assert signal.getsignal(signal.SIGINT) is before
    answer = json.loads(out)
    assert (code, answer["status"]) == (0, "feasible")
    assert answer["proof"]["stopped_by"] == "an interrupt"
    assert not answer["proof"]["plans_in_order"] and len(answer["plans"]) == 1


def test_the_second_interrupt_ends_the_program() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible(Clock(60.0)) as clock:
        os.kill(os.getpid(), signal.SIGINT)
        while not clock.over():
            pass
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            pass


def test_a_running_solver_is_stopped() -> None:
    """Equations of a market split (Cornuéjols and Dawande 1998), which keep a solver busy for hours."""
    draw, model = Random(0), cp_model.CpModel()
    chosen = [model.new_bool_var(f"chosen {index}") for index in range(50)]
    for _ in range(6):
        weights = [draw.randint(0, 99) for _ in chosen]
        model.add(cp_model.LinearExpr.weighted_sum(chosen, weights) == sum(weights) // 2)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = run_beside(lambda: solver.solve(model), solver.stop_search, lambda: True)
    assert status == cp_model.UNKNOWN


def _jobs() -> list[Job]:
    """Three jobs: a shipped example, layouts, a pair of objectives with limits."""
    pair = {"first": "step_time", "within": "10 %", "then": "memory"}
    return [
        read_job(EXAMPLES / "tiny.yaml"),
        job(**DIVIDED),
        job(objective=pair, limits={"memory_headroom": "10 %", "step_time_at_most": "1 s"}),
    ]


@pytest.mark.parametrize("index", range(3))
def test_the_same_job_gives_the_same_plans_on_one_and_two_workers(index: int) -> None:
    one, two, again = (solve(_jobs()[index], top=2, workers=workers) for workers in (1, 2, 1))
    for other in (two, again):
        assert [found.plan for found in other.plans] == [found.plan for found in one.plans]
        assert (other.proof.bound, other.proof.optimal) == (one.proof.bound, True)
