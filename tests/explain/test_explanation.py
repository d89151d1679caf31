"""Explanations of whole jobs: their sentences word by word, and that the figures in them are those of solves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.errors import NoPlan
from planner.explain.explanation import Explanation, NoPlanExplained, explain
from planner.resolve import read_job
from planner.search import solve
from planner.variants import Source
from tests.test_golden import hold

ROOT = Path(__file__).parents[2]
JOBS = {
    "llama-2-7b-8xa100": ROOT / "examples" / "llama-2-7b-8xa100.yaml",
    "llama-2-7b-1xrtx4090": ROOT / "examples" / "llama-2-7b-1xrtx4090.yaml",
    "llama-2-7b-1xrtx4090-small-host": ROOT / "examples" / "llama-2-7b-1xrtx4090-small-host.yaml",
    "ethernet": ROOT / "tests" / "data" / "explain" / "ethernet.yaml",
}


@pytest.mark.parametrize("name", JOBS)
def test_text(name: str) -> None:
    hold(f"explain-{name}.txt", CliRunner().invoke(cli, ["explain", str(JOBS[name])]).stdout)


@pytest.mark.parametrize("pin", ["zero_stage=0", "zero_stage=3", "micro_batch=3", "optimizer_offload=nvme"])
def test_why_not(pin: str) -> None:
    answer = CliRunner().invoke(cli, ["explain", str(JOBS["llama-2-7b-8xa100"]), "--set", pin])
    hold(f"explain-why-not-{pin.replace('=', '-')}.txt", answer.stdout)


def test_each_choice_costs_what_solving_with_the_value_pinned_costs() -> None:
    """The ranking over all rows against the solver, outcome by outcome."""
    path = JOBS["llama-2-7b-8xa100"]
    found = explain(Source(path))
    assert isinstance(found, Explanation)
    outcomes = [outcome for reason in found.reasons for outcome in reason.outcomes]
    assert len(outcomes) > 6
    for outcome in outcomes:
        pinned = read_job(path).with_choices({name: (value,) for name, value in outcome.pins.items()})
        if outcome.best is not None:
            assert solve(pinned).best.plan == outcome.best.plan
            continue
        with pytest.raises(NoPlan) as caught:
            solve(pinned)
        assert outcome.miss is None or outcome.miss.plan == caught.value.nearest_miss.plan


def test_one_more_gib_buys_what_solving_with_it_buys() -> None:
    found = explain(Source(JOBS["llama-2-7b-1xrtx4090"]))
    assert isinstance(found, Explanation)
    gpu = found.limits[0]
    assert gpu.next is not None and gpu.unlimited is not None and gpu.one_more is not None
    assert gpu.unlimited.step_time.seconds <= gpu.next.step_time.seconds < found.best.step_time.seconds
    assert gpu.next.peak_bytes == gpu.capacity + gpu.next_bytes


def test_repairs_fit_and_are_sorted_by_what_a_token_costs() -> None:
    found = explain(Source(JOBS["llama-2-7b-1xrtx4090-small-host"]))
    assert isinstance(found, NoPlanExplained)
    assert [repair.cost for repair in found.repairs] == sorted(repair.cost for repair in found.repairs)
    assert not any(repair.best.violations for repair in found.repairs)
    assert {"method", "host_memory", "gpu"} <= {repair.kind for repair in found.repairs}


def test_a_pin_of_the_file_that_is_in_the_way_is_set_free(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(JOBS["llama-2-7b-8xa100"].read_text() + "choices: {zero_stage: 0}\n")
    found = explain(Source(path))
    assert isinstance(found, NoPlanExplained)
    assert "zero_stage free" in [repair.change for repair in found.repairs]


def test_slow_networks_are_named_with_bytes_and_seconds() -> None:
    found = CliRunner().invoke(cli, ["explain", str(JOBS["ethernet"]), "--set", "zero_stage=3", "--format", "json"])
    sent = json.loads(found.stdout)["traffic"]
    assert sent
    assert all(item["link"] == "ethernet-25gbe" and item["bytes"] > 2**30 and item["seconds"] > 1 for item in sent)


def test_no_plan_exits_with_3() -> None:
    found = CliRunner().invoke(cli, ["explain", str(JOBS["llama-2-7b-1xrtx4090-small-host"]), "--format", "json"])
    assert isinstance(found.exception, NoPlan)
    answer = json.loads(found.stdout)
    assert answer["status"] == "infeasible"
    assert {"conflict", "nearest_miss", "over", "repairs", "not_enough"} <= set(answer)
