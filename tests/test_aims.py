"""Objectives, limits of the job, and the best plans in order, each on the smallest job where it bites."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner.answer import objective_answer, solution_answer
from planner.errors import InputError, NoPlan
from planner.evaluate import Evaluation
from planner.job import Job, Limits
from planner.ledger import with_headroom
from planner.report import no_plan_text, solution_text
from planner.search import solve
from tests.jobs import PLAIN, job
from tests.oracle import Oracle

# Two stages, three micro-batches, recomputation or not: fast plans hold more.
FEW = {"zero_stage": [1, 3], "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": [1, 2, 4],
       "gradient_accumulation_dtype": "bf16", "checkpoint_interval": [0, 1], "checkpoint_count": [0, 2, 4],
       **PLAIN}  # fmt: skip
PRICED = {"gpu_price": "3 USD/hour"}
NEAR = {"first": "step_time", "within": "20 %", "then": "memory"}


def best(**overrides: Any) -> Evaluation:
    """The best plan of the small job with few choices."""
    return solve(job(choices=FEW, **overrides)).best


def limited(**limits: Any) -> Job:
    """The small job with limits."""
    return replace(job(choices=FEW), limits=Limits(**limits))


# ── objectives ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_objectives_of_time_have_one_plan() -> None:
    """Tokens per second and cost per token rise and fall with the step time on one cluster."""
    names = ("step_time", "tokens_per_second", "cost_per_token")
    plans = {name: best(objective=name, cluster=PRICED).plan for name in names}
    assert len(set(plans.values())) == 1
    assert best(objective="memory").plan != plans["step_time"]


def test_each_objective_tells_its_value() -> None:
    """8 sequences of 512 tokens a step; 2 GPUs at 3 dollars an hour are 6 / 3600 dollars a second."""
    found = solve(job(choices=FEW, cluster=PRICED)).best
    seconds = found.step_time.seconds
    told = {name: objective_answer(replace(found, job=replace(found.job, objective=name)))
            for name in ("step_time", "tokens_per_second", "cost_per_token", "memory")}  # fmt: skip
    assert told["step_time"] == {"name": "step_time", "value": seconds, "unit": "seconds"}
    assert told["tokens_per_second"]["value"] == pytest.approx(8 * 512 / seconds)
    assert told["cost_per_token"]["value"] == pytest.approx(6 / 3600 * seconds / (8 * 512) * 1e6)
    assert told["cost_per_token"]["unit"] == "USD per 10^6 tokens"
    assert told["memory"] == {"name": "memory", "value": found.peak_bytes, "unit": "bytes"}


def test_the_price_is_the_jobs_own_where_it_states_one() -> None:
    """A node's price gives way to the stated one."""
    found = job(cluster={"node": "dgx-h100", "gpu_price": "1 USD/hour"}, objective="cost_per_token")
    assert (found.cluster.gpu.price_per_hour, found.cluster.node.price_per_hour) == (1.0, None)


def test_a_pair_takes_the_leanest_plan_within_the_tolerance() -> None:
    """Every plan is looked at: of those at most so much slower than the fastest the one with the least memory."""
    fastest = best().step_time.microseconds
    for percent in (0, 1, 5, 20, 60):
        found = best(objective={"first": "step_time", "within": f"{percent} %", "then": "memory"})
        most = fastest + int(fastest * Fraction(percent, 100))
        oracle = Oracle(found.job)
        figures = [oracle.figures(plan) for plan in oracle.specification.space.plans() if oracle.legal(plan)]
        least = min(-(-peaks["gpu"] // 2**20) for peaks, microseconds in figures if microseconds <= most)
        assert found.step_time.microseconds <= most
        assert -(-found.peak_bytes // 2**20) == least


def test_a_pair_of_memory_and_time_takes_the_fastest_of_the_lean_plans() -> None:
    leanest = best(objective="memory")
    found = best(objective={"first": "memory", "within": "25 %", "then": "step_time"})
    assert found.step_time.microseconds < leanest.step_time.microseconds
    assert found.peak_bytes <= 1.25 * (leanest.peak_bytes + 2**20)


def test_a_list_of_two_is_a_pair_without_tolerance() -> None:
    assert best(objective=["memory", "step_time"]).plan == best(objective="memory").plan


def test_the_proof_of_a_pair_states_both_values() -> None:
    found, fastest = solve(job(choices=FEW, objective=NEAR)), solve(job(choices=FEW))
    proof = solution_answer(found)["proof"]
    assert proof["bound_seconds"] == fastest.proof.bound
    assert 0 <= found.best.peak_bytes - proof["then"]["bound_bytes"] <= 2**20
    text = solution_text(found)
    assert "Proven optimal: no plan of " in text
    assert "Of the plans within 20.00% of that none is below " in text


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_deadline_forces_a_faster_plan() -> None:
    """The leanest plan that is in time: one microsecond less than it takes makes it another."""
    leanest = best(objective="memory")
    hurried = replace(limited(step_time_at_most=leanest.step_time.microseconds - 1), objective="memory")
    found = solve(hurried).best
    assert found.step_time.microseconds < leanest.step_time.microseconds
    assert found.peak_bytes > leanest.peak_bytes


def test_a_deadline_at_the_fastest_plan_holds_and_one_below_is_the_conflict() -> None:
    fastest = best()
    taken = fastest.step_time.microseconds
    assert solve(limited(step_time_at_most=taken)).best.plan == fastest.plan
    with pytest.raises(NoPlan) as caught:
        solve(limited(step_time_at_most=taken - 1))
    assert caught.value.conflict == ("step_time_is_within_the_deadline",)
    assert caught.value.nearest_miss.plan == fastest.plan
    text = no_plan_text(caught.value)
    assert "a step takes " in text and "over the deadline of" in text


def test_a_deadline_and_a_memory_limit_conflict_together() -> None:
    """The fastest plan does not fit, the leanest is late: either limit alone can be met. The miss fits and is late."""
    lean = best(objective="memory")
    headroom = _headroom(lean.job, lean.peak_bytes)
    tight = limited(step_time_at_most=lean.step_time.microseconds - 1, memory_headroom=headroom)
    with pytest.raises(NoPlan) as caught:
        solve(tight)
    assert caught.value.conflict == ("step_time_is_within_the_deadline", "gpu_memory_leaves_the_headroom")
    miss = caught.value.nearest_miss
    assert [item.constraint for item in miss.violations] == ["step_time_is_within_the_deadline"]
    assert miss.peak_bytes <= with_headroom(tight)


def test_headroom_makes_the_plan_leaner() -> None:
    fastest = best()
    found = solve(limited(memory_headroom=_headroom(fastest.job, fastest.peak_bytes) + 8)).best
    assert found.peak_bytes < fastest.peak_bytes
    assert found.peak_bytes <= with_headroom(found.job)


def test_a_gpu_too_small_is_the_conflict_and_not_the_headroom() -> None:
    """Where nothing fits anyway, what the user asked for is not to blame."""
    found = job(cluster={"gpus_per_node": 1, "gpu_memory": "1 GiB"}, choices=FEW, limits={"memory_headroom": "1 %"})
    with pytest.raises(NoPlan) as caught:
        solve(found)
    assert caught.value.conflict == ("gpu_memory_holds_every_phase",)


def test_a_limit_on_host_memory_is_the_conflict() -> None:
    """Two processes of 3 GiB do not go into 5 GiB."""
    with pytest.raises(NoPlan) as caught:
        solve(limited(host_memory_at_most=5 * 2**30))
    assert caught.value.conflict == ("host_memory_is_within_the_limit",)
    assert caught.value.nearest_miss.ledger["host"].peak.total > 5 * 2**30


def test_the_answer_and_the_text_name_the_limits() -> None:
    found = solve(job(choices=FEW, limits={"step_time_at_most": "9 s", "host_memory_at_most": "400 GiB"}))
    assert solution_answer(found)["bounds"][:2] == [
        {"constraint": "step_time_is_within_the_deadline", "of": "step_time", "seconds_at_most": 9.0},
        {"constraint": "host_memory_is_within_the_limit", "of": "host", "bytes_at_most": 400 * 2**30},
    ]
    assert "Limits of the job: a step takes at most 9 s, at most 400.0 GiB of a node's memory" in solution_text(found)


def _headroom(found: Job, planned: int) -> int:
    """The most headroom that leaves `planned` bytes to plan with."""
    headroom = found.cluster.gpu.usable_memory - int(planned * found.runtime.fragmentation)
    while with_headroom(replace(found, limits=Limits(memory_headroom=headroom))) < planned:
        headroom -= 1
    return headroom


# ── the best plans in order ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("objective", ["step_time", "memory", NEAR], ids=["time", "memory", "pair"])
def test_the_best_plans_are_those_of_the_oracle_in_order(objective: Any) -> None:
    found = job(choices=FEW, objective=objective)
    solution = solve(found, top=6)
    assert [plan.plan for plan in solution.plans] == Oracle(found).ranking(6)
    assert solution.ordered and solution.runner_up is solution.plans[1]


def test_there_are_no_more_plans_than_differ() -> None:
    """Two stages and nothing else that is not fine: two plans, and the proof that there is no third."""
    narrow = {**FEW, "micro_batch": 1, "checkpoint_interval": 1, "checkpoint_count": [1, 2]}
    solution = solve(job(choices=narrow), top=5)
    assert [found.plan["zero_stage"] for found in solution.plans] == [1, 3]
    assert solution.ordered


def test_the_text_lists_the_plans() -> None:
    text = solution_text(solve(job(choices=FEW), top=3), top=3)
    assert "The 3 best plans that differ in more than recomputation, proven: none is missing between them" in text
    assert "Runner-up" not in text


def test_the_answer_lists_the_plans_beside_the_usual_answer() -> None:
    solution = solve(job(choices=FEW), top=3)
    answer, usual = solution_answer(solution, 3), solution_answer(solution)
    assert {name: value for name, value in answer.items() if name not in ("plans", "proof")} == {
        name: value for name, value in usual.items() if name != "proof"
    }
    assert [one["rank"] for one in answer["plans"]] == [1, 2, 3]
    assert answer["plans"][0]["plan"] == answer["plan"] and answer["plans"][0]["changes"] == {}
    assert answer["plans"][1]["changes"] == answer["runner_up"]["changes"]
    assert answer["proof"]["plans_in_order"]


def test_a_cost_without_a_price_is_bad_input() -> None:
    with pytest.raises(InputError) as caught:
        job(cluster={"gpu": UNPRICED, "gpus_per_node": 2}, objective="cost_per_token")
    assert caught.value.message == f"nobody states a price of 2x-{UNPRICED} or of {UNPRICED}"
    assert caught.value.expected == "cluster.gpu_price, such as 2.50 USD/hour"


UNPRICED = "rtx4090-24gb"
