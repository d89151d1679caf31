"""Second shards inside a node (hpZ), and a part of an offloaded optimizer on the GPU (Twin-Flow), by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.emit.deepspeed import configuration
from planner.errors import NoPlan
from planner.evaluate import evaluate
from planner.job import Job
from planner.ledger import ledger
from planner.search import solve
from planner.space import job_space
from planner.step_time import microseconds, time_terms
from planner.terms import TimeTerm
from tests.jobs import job, plan

MODEL = {"parameters": 2_000_000_000, "layers": 16, "vocabulary": 32000, "heads": 16}


def two_nodes(**choices: Any) -> Job:
    """Two nodes of four over slow Ethernet, stage 3."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "10 Gbit/s"}
    training = {"sequence_length": 1024, "global_batch": 32}
    return job(model=MODEL, cluster=cluster, training=training, choices={"zero_stage": 3, **choices})


def offloaded(**choices: Any) -> Job:
    """One GPU with the optimizer in host memory."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 1, "host_memory": "256 GiB"}
    choices = {"zero_stage": 3, "optimizer_offload": "cpu", "optimizer_on_gpu": [0, 30, 90], **choices}
    return job(model=MODEL, cluster=cluster, choices=choices)


def lines(found: Job, device: str, **values: Any) -> dict[tuple[str, str], int]:
    """Bytes of each line in the optimizer step, by book and name."""
    phase = ledger(found, plan(found, **values))[device].phases["optimizer_step"]
    return {(line.book, line.name): line.bytes for line in phase.lines}


def times(found: Job, **values: Any) -> dict[str, list[int]]:
    """Microseconds of every term of that name."""
    chosen = job_space(found).complete(plan(found, **values))
    told: dict[str, list[int]] = {}
    for term in time_terms(found, "typical"):
        if isinstance(term, TimeTerm):
            told.setdefault(term.name, []).append(term.value(chosen))
    return told


def test_the_second_shards_are_a_quarter_of_the_parameters() -> None:
    """2 bytes over the four ranks of a node, beside 2 bytes over all eight; nothing without them."""
    found = two_nodes()
    total = found.architecture.parameters
    with_them = lines(found, "gpu", zero_stage=3, secondary_partition="node")
    assert with_them["parameters", "secondary shards of the parameters"] == 2 * -(-total // 4)
    assert ("parameters", "secondary shards of the parameters") not in lines(found, "gpu", zero_stage=3)


def test_only_the_first_forward_crosses_the_network() -> None:
    """Four micro-batches: one gather over all ranks; with second shards backward's are four of NVLink's."""
    found = two_nodes()
    plain = times(found, zero_stage=3, micro_batch=1)
    inside = times(found, zero_stage=3, micro_batch=1, secondary_partition="node")
    assert sum(inside["parameter gather in forward"]) == sum(inside["parameter gather in backward"]) == 0
    assert sum(inside["parameter gather in the first forward"]) * 4 == pytest.approx(
        sum(plain["parameter gather in forward"]), rel=1e-5
    )
    crossing, staying = (
        sum(plain["parameter gather in backward"]),
        sum(inside["parameter gather in backward inside the node"]),
    )
    assert 50 * staying < crossing


def test_slow_networks_make_the_second_shards_the_plan() -> None:
    found = two_nodes()
    solution = solve(found)
    assert solution.best.plan["secondary_partition"] == "node"
    without = evaluate(found, solution.best.plan.changed(secondary_partition="none"))
    assert without.step_time.seconds > solution.best.step_time.seconds
    block = configuration(found, solution.best.plan)["zero_optimization"]
    assert block["zero_hpz_partition_size"] == 4


def test_one_node_has_no_second_shards() -> None:
    """They are neither planned nor allowed where every rank is in one node."""
    found = job()
    assert job_space(found).by_name["secondary_partition"].values == ("none",)
    with pytest.raises(NoPlan) as raised:
        solve(job(choices={"secondary_partition": "node"}))
    assert raised.value.conflict == ("techniques_have_what_they_need",)
    assert raised.value.reasons == (
        "techniques_have_what_they_need: secondary_partition node does nothing where nodes is 1",
    )


def test_whole_sub_groups_stay_on_the_gpu() -> None:
    """2e9 elements are 20 sub-groups of 1e8, 30 % of them are 6: 6e8 elements of 4 + 8 + 4 bytes."""
    found = offloaded()
    partition = found.architecture.parameters
    assert partition == 20 * 10**8
    kept = lines(found, "gpu", zero_stage=3, optimizer_offload="cpu", optimizer_on_gpu=30)
    assert kept["optimizer_states", "master weights"] == 4 * 6 * 10**8
    assert kept["optimizer_states", "optimizer moments"] == 8 * 6 * 10**8
    assert kept["gradients", "fp32 gradients of the sub-groups on the GPU"] == 4 * 6 * 10**8
    left = lines(found, "host", zero_stage=3, optimizer_offload="cpu", optimizer_on_gpu=30)
    assert left["optimizer_states", "optimizer moments"] == 8 * (partition - 6 * 10**8)
    none = lines(found, "gpu", zero_stage=3, optimizer_offload="cpu", optimizer_on_gpu=0)
    assert ("optimizer_states", "master weights") not in none


def test_the_host_updates_what_is_left() -> None:
    """6 of 20 sub-groups less for the host's cores."""
    found = offloaded()
    partition = found.architecture.parameters
    whole = times(found, zero_stage=3, optimizer_offload="cpu", optimizer_on_gpu=0)["optimizer on the host"]
    part = times(found, zero_stage=3, optimizer_offload="cpu", optimizer_on_gpu=30)["optimizer on the host"]
    assert sum(part) == pytest.approx(sum(whole) * (1 - 6e8 / partition), abs=microseconds(2e-6))


def test_the_ratio_is_written() -> None:
    """30 % on the GPU is DeepSpeed's ratio 0.7, and it is not there without."""
    found = offloaded()
    chosen = plan(found, zero_stage=3, optimizer_offload="cpu", optimizer_on_gpu=30)
    assert configuration(found, chosen)["zero_optimization"]["offload_optimizer"]["ratio"] == 0.7
    plainly = configuration(found, chosen.changed(optimizer_on_gpu=0))
    assert "ratio" not in plainly["zero_optimization"]["offload_optimizer"]


def test_a_part_on_the_gpu_is_planned_on_request_only() -> None:
    """Its optimizer does not follow a learning-rate schedule."""
    assert job_space(job()).by_name["optimizer_on_gpu"].values == (0,)
    solution = solve(offloaded())
    assert solution.best.plan["optimizer_on_gpu"] == 90
