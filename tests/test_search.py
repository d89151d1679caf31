"""The search on the smallest jobs where it bites: ties, narrowed counts, objectives, conflicts with their reasons."""

from __future__ import annotations

from typing import Any

import pytest

from planner.compile import GRAIN
from planner.errors import NoPlan
from planner.plan import Plan
from planner.search import objective_value, solve
from tests.jobs import PLAIN, job

ONE = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1,
       "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip


def best(**choices: Any) -> Plan:
    """The best plan of the small job with some choices narrowed."""
    return solve(job(choices={**ONE, **choices})).best.plan


def conflict(**overrides: Any) -> NoPlan:
    """The failure of a job that has no plan."""
    with pytest.raises(NoPlan) as caught:
        solve(job(**overrides))
    return caught.value


def test_nothing_is_recomputed_where_everything_fits() -> None:
    found = best()
    assert (found["checkpoint_interval"], found["checkpoint_count"]) == (0, 0)


@pytest.mark.parametrize(
    ("counts", "expected"), [([1, 2], 1), ([2, 1], 1), ([0, 2, 1], 1), ([4, 3], 3), ([2, 4], 2), ([4], 4)]
)
def test_narrowed_counts_recompute_the_least(counts: list[int], expected: int) -> None:
    """At an interval of one layer each count recomputes as many layers, and 0 is none; more of them take longer."""
    assert best(checkpoint_interval=1, checkpoint_count=counts)["checkpoint_count"] == expected


@pytest.mark.parametrize("counts", [[0, 1, 2], [2, 1, 0], [0, 2, 1]])
def test_of_equal_plans_the_earlier_value_wins(counts: list[int]) -> None:
    """Memory first: the peak of stage 0 is in the optimizer step, the same bytes however many layers are recomputed.

    Time comes second, so nothing is recomputed wherever 0 stands in the list.
    """
    found = solve(job(choices={**ONE, "checkpoint_count": counts}, objective="memory"))
    assert found.best.plan["checkpoint_count"] == 0


@pytest.mark.parametrize(("objective", "unit"), [("step_time", "seconds"), ("memory", "bytes")])
def test_the_proof_bounds_the_objective(objective: str, unit: str) -> None:
    found = solve(job(choices={"zero_stage": [0, 3], "micro_batch": [1, 4]}, objective=objective))
    assert found.proof.optimal and found.proof.unit == unit
    grain = 1e-6 if unit == "seconds" else GRAIN
    rounded = 0 if unit == "seconds" else 1  # a grain is counted from its first byte on
    assert found.proof.bound == pytest.approx((objective_value(found.best) - rounded) * grain)


def test_the_runner_up_is_another_plan_and_no_better() -> None:
    found = solve(job())
    assert found.runner_up is not None
    assert found.runner_up.plan != found.best.plan
    assert objective_value(found.runner_up) >= objective_value(found.best)


def test_a_job_with_a_single_plan_has_no_runner_up() -> None:
    found = solve(job(choices={**ONE, "checkpoint_interval": 0, "checkpoint_count": 0}))
    assert found.runner_up is None
    assert found.proof.configurations == 1


def test_a_batch_that_does_not_divide() -> None:
    found = conflict(choices={"micro_batch": 3})
    assert str(found) == "no plan satisfies: batch_divides_over_ranks"
    assert found.reasons == (
        "batch_divides_over_ranks: a global batch of 8 is no multiple of micro_batch 3 × 2 data-parallel ranks = 6",
    )


def test_more_checkpoints_than_layers_name_their_reason() -> None:
    """Counts beyond the model are a rule's business, and the nearest miss says so."""
    found = conflict(choices={**ONE, "checkpoint_interval": 1, "checkpoint_count": 100})
    assert found.conflict == ("checkpoints_fit_the_layers",)
    assert found.reasons == (
        "checkpoints_fit_the_layers: 100 checkpoints of 1 layers need 100 layers, the model has 4",
    )


def test_offload_without_its_stage_conflicts() -> None:
    found = conflict(choices={"zero_stage": 0, "optimizer_offload": "cpu", "parameter_offload": "none"})
    assert found.conflict == ("techniques_have_what_they_need",)
    assert found.reasons == (
        "techniques_have_what_they_need: optimizer_offload cpu needs zero_stage 1 or 2 or 3, the plan has zero_stage 0",
    )


def test_a_host_too_small_to_load_the_model() -> None:
    """Two processes of 3 GiB do not fit 4 GiB, whatever the plan."""
    found = conflict(cluster={"host_memory": "4 GiB"})
    assert found.conflict == ("host_memory_holds_every_phase",)
    assert found.nearest_miss is not None
    assert [item.constraint for item in found.nearest_miss.violations] == ["host_memory_holds_every_phase"]


def test_a_large_job_holds_its_proven_time_while_memory_is_minimised() -> None:
    """About 1e9 bytes a layer against a peak of about 1e12: their product would leave 64 bits."""
    found = solve(
        job(
            model="llama-3.1-405b",
            cluster={"node": "dgx-h100", "nodes": 128},
            training={"sequence_length": 8192, "global_batch": 2048},
        )
    )
    assert found.proof.optimal
    assert not found.best.violations
