"""Evaluation: the arithmetic of windows and lanes, terms and books that add up, violations in their order."""

from __future__ import annotations

from random import Random

import pytest

import constraints
from planner.evaluate import Evaluation, evaluate
from planner.terms import BOOKS, MOMENTS, PHASES
from planner.time_lines import StepTime, TimeLine
from tests.jobs import job, plan, random_job, random_plan

LINES = StepTime(
    (
        TimeLine("compute", "forward", "compute", 10),
        TimeLine("gather", "forward", "communication", 4),
        TimeLine("fetch", "forward", "communication", 3),
        TimeLine("compute", "backward", "compute", 20),
        TimeLine("recompute", "backward", "compute", 5),
        TimeLine("reduce", "backward", "communication", 30),
        TimeLine("copy", "backward", "host_link", 12),
        TimeLine("check", "backward", "serial", 2),
        TimeLine("optimizer", "optimizer_step", "serial", 7),
        TimeLine("send", "optimizer_step", "serial", 1),
    )
)


def test_a_window_takes_serial_work_and_its_longest_lane() -> None:
    """Forward: max(10, 4 + 3). Backward: 2 + max(20 + 5, 30, 12). Step: 7 + 1. Nothing in the last backward."""
    assert {name: LINES.window(name) for name in ("forward", "backward", "last_backward", "optimizer_step")} == {
        "forward": 10, "backward": 32, "last_backward": 0, "optimizer_step": 8,
    }  # fmt: skip
    assert LINES.lanes("backward") == {"compute": 25, "communication": 30, "host_link": 12, "serial": 2}


def test_windows_add_up_to_the_step() -> None:
    """10 + 32 + 0 + 8 microseconds."""
    assert LINES.microseconds == 50
    assert LINES.seconds == 50e-6


def test_terms_add_up_to_the_seconds_with_what_overlap_hides() -> None:
    """All lines are 94; 94 − 50 = 44 hidden: 7 in forward, 25 + 12 in backward."""
    assert LINES.hidden == 44
    assert LINES.terms == {
        "compute": 30e-6, "gather": 4e-6, "fetch": 3e-6, "recompute": 5e-6, "reduce": 30e-6, "copy": 12e-6,
        "check": 2e-6, "optimizer": 7e-6, "send": 1e-6, "hidden by overlap": -44e-6,
    }  # fmt: skip
    assert sum(LINES.terms.values()) == pytest.approx(LINES.seconds, abs=1e-12)


def test_nothing_hidden_has_no_term() -> None:
    alone = StepTime((TimeLine("compute", "forward", "compute", 10),))
    assert alone.terms == {"compute": 10e-6}
    assert StepTime(()).microseconds == 0


@pytest.fixture(scope="module", params=range(10))
def evaluated(request: pytest.FixtureRequest) -> Evaluation:
    """Any plan, legal or not, of a drawn job."""
    found = random_job(request.param)
    return evaluate(found, random_plan(found, Random(request.param)))


def test_books_add_up_to_the_total_of_every_moment(evaluated: Evaluation) -> None:
    for device in evaluated.ledger.values():
        assert [moment.name for moment in device.moments] == list(MOMENTS)
        for moment in device.moments:
            assert set(moment.books) == set(BOOKS)
            assert sum(moment.books.values()) == moment.total == sum(line.bytes for line in moment.lines)


def test_the_peak_is_the_first_of_the_largest_moments(evaluated: Evaluation) -> None:
    for device in evaluated.ledger.values():
        totals = [moment.total for moment in device.moments]
        assert device.peak is device.moments[totals.index(max(totals))]
        assert tuple(device.phases) == PHASES
        assert max(moment.total for moment in device.phases.values()) == device.peak.total


def test_time_terms_add_up_to_the_seconds(evaluated: Evaluation) -> None:
    found = evaluated.step_time
    assert sum(found.terms.values()) == pytest.approx(found.seconds, abs=1e-9)
    assert found.hidden >= 0
    assert all(line.microseconds > 0 for line in found.lines)


def test_violations_are_in_the_order_of_the_registry(evaluated: Evaluation) -> None:
    names = [violation.constraint for violation in evaluated.violations]
    assert names == [name for name in constraints.NAMES if name in names]
    assert all(violation.because for violation in evaluated.violations)


def test_throughput_is_tokens_over_time_and_gpus() -> None:
    """8 sequences of 512 tokens on two GPUs: 2048 tokens of each per step."""
    found = job()
    answer = evaluate(found, plan(found))
    assert answer.tokens_per_second_per_gpu == pytest.approx(2048 / answer.step_time.seconds)
    expected = 2048 * found.model_flops_per_token / answer.step_time.seconds / found.cluster.gpu.peak["bf16"]
    assert answer.model_flops_utilization == pytest.approx(expected)
    assert 0 < answer.model_flops_utilization < 1


def test_values_show_what_follows_from_the_choices() -> None:
    """8 sequences, two ranks, two at once: two micro-batches."""
    found = job()
    values = evaluate(found, plan(found, micro_batch=2)).values
    assert values["gradient_accumulation"] == 2
    degrees = {axis: values[f"{axis}_parallel"] for axis in ("tensor", "pipeline", "sequence", "expert", "data")}
    assert degrees == {"tensor": 1, "pipeline": 1, "sequence": 1, "expert": 1, "data": 2}


@pytest.mark.parametrize(("memory", "verdict"), [("80 GiB", "fits"), ("1 GiB", "no")])
def test_verdicts(memory: str, verdict: str) -> None:
    found = job(cluster={"gpu_memory": memory})
    assert evaluate(found, plan(found)).ledger["gpu"].verdict == verdict


def test_inside_the_allocators_margin_is_risky() -> None:
    """Usable memory of exactly the peak: within it, and over the peak / 1.06 that can be planned with."""
    found = job()
    peak = evaluate(found, plan(found)).peak_bytes
    tight = job(cluster={"gpu_memory": f"{peak} B"})
    answer = evaluate(tight, plan(tight))
    assert answer.ledger["gpu"].verdict == "risky"
    assert [violation.constraint for violation in answer.violations] == ["gpu_memory_holds_every_phase"]
