"""Second shards inside a node (hpZ), collectives of few bits (qwZ, qgZ), an optimizer partly on the GPU, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner import quantized_exchange as exchange
from planner.cluster import Group, collective_seconds
from planner.emit.deepspeed import configuration
from planner.errors import NoPlan
from planner.evaluate import evaluate
from planner.job import Job
from planner.layouts import layouts
from planner.ledger import ledger
from planner.memory import memory_terms
from planner.search import solve
from planner.share import share
from planner.space import job_space
from planner.speed.memory_bound import memory_seconds
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


# ── parameters in 8 bits ─────────────────────────────────────────────────────────────────────────────────────────────

# Every tensor divides by 8 × 8 ranks and by 2 × 8 GPUs: two tables, one norm more than two in each layer, 4 × 1024² of
# attention and 3 × 1024 × 4096 of feed-forward there.
SMALL = {"parameters": 142_623_744, "layers": 8, "vocabulary": 4096, "hidden": 1024, "intermediate": 4096, "heads": 8}


def quantized(precision: str = "bf16", **choices: Any) -> Job:
    """Two nodes of four over slow Ethernet, both formats left open."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "10 Gbit/s"}
    training = {"sequence_length": 256, "global_batch": 16, "precision": precision}
    open_yet = {"gather_precision": ["compute", "int8"], "reduction_precision": ["compute", "int4"]}
    return job(model=SMALL, cluster=cluster, training=training, choices={"zero_stage": 3, **open_yet, **choices})


def test_few_bits_are_planned_on_request_only() -> None:
    """They change numerics, and are not there for fp32 or where one node reduces as it is."""
    space = job_space(two_nodes()).by_name
    assert (space["gather_precision"].values, space["reduction_precision"].values) == (("compute",), ("compute",))
    alone = job(choices={"zero_stage": 3, "reduction_precision": "int4"})
    with pytest.raises(NoPlan) as raised:
        solve(alone)
    assert raised.value.reasons == (
        "techniques_have_what_they_need: reduction_precision int4 does nothing where nodes is 1",
    )


def test_half_the_bytes_take_half_the_time_of_a_slow_network() -> None:
    """1.25 GB/s carry 2 and 1 bytes: the same latency beside them. One scale for 8000 elements is another call."""
    found = quantized()
    whole, half = (times(found, zero_stage=3, gather_precision=name) for name in ("compute", "int8"))
    name = "parameter gather in forward"
    assert 0.5 < sum(half[name]) / sum(whole[name]) < 0.55
    assert sum(half["scales of gathered weights"]) > 0 == sum(whole["scales of gathered weights"])


@pytest.mark.parametrize(("precision", "traffic"), [("fp16", 3), ("bf16", 3 + 4)])
def test_weights_are_made_16_bit_again(precision: str, traffic: int) -> None:
    """1 byte read and 2 written of each parameter in each of four passes; bf16 is converted: 2 read and 2 written."""
    found = quantized(precision)
    told = times(found, zero_stage=3, gather_precision="int8", micro_batch=1)
    spent = sum(sum(told[name]) for name in told if name.startswith("gathered weights made"))
    expected = memory_seconds(found.cluster.gpu, traffic * found.architecture.parameters, 0, "typical")
    assert spent == pytest.approx(4 * expected * 1e6, abs=6)


def test_buffers_of_8_bit_weights() -> None:
    """Two usual matrices in 8 bits, and an fp16 copy of the largest tensor, 4096 × 1024, that becomes bf16."""
    found = quantized()
    chosen = plan(found, zero_stage=3, gather_precision="int8")
    held = {line.name: line.bytes for line in ledger(found, chosen)["gpu"].phases["forward"].lines}
    assert held["8-bit weights while gathering"] == 2 * share(found, layouts(found)[0]).usual_matrix
    assert held["fp16 copy of a gathered weight"] == 2 * 4096 * 1024


# ── gradients in 4 bits ──────────────────────────────────────────────────────────────────────────────────────────────


def test_what_is_exchanged() -> None:
    """Eight layers and two tables; the norms are vectors. Scales: the longer side of each matrix."""
    found = share(quantized(), layouts(quantized())[0])
    norms, matrices = (2 * 8 + 1) * 1024, 8 * (4 + 3) + 2
    assert exchange.unexchanged(found) == norms
    assert exchange.exchanged(found) == found.trainable - norms
    assert exchange.exchanged_at_once(found) == -(-exchange.exchanged(found) // matrices)
    assert exchange.exchange_scales(found) == 8 * (4 * 1024 + 3 * 4096) + 2 * 4096
    assert exchange.unexchanged_at_once(found) == 1024


def test_a_quarter_of_the_bytes_in_two_hops() -> None:
    """Half a byte of each element among four ranks, then a quarter of that between two nodes, for each matrix."""
    found = quantized()
    told = times(found, zero_stage=3, reduction_precision="int4", micro_batch=1)
    part, cluster = share(found, layouts(found)[0]), found.cluster
    size, matrices = exchange.exchanged_at_once(part) / 2, 58
    inside = collective_seconds(cluster, "all_to_all", size, Group(4))
    between = collective_seconds(cluster, "all_to_all", size / 4, Group(2, 4))
    passes = 2 * 1e6  # micro-batches, in microseconds
    assert sum(told["4-bit gradients inside the node"]) == pytest.approx(passes * matrices * inside, rel=1e-3)
    assert sum(told["4-bit gradients between nodes"]) == pytest.approx(passes * matrices * between, rel=1e-3)
    assert sum(told["gradient reduce-scatter"]) == 0


def test_buffers_of_4_bit_gradients() -> None:
    """Half a byte sent and half received of the largest tensor; 2 bytes more where bf16 is in no bucket."""
    for found, bucketed in (quantized(), True), (two_nodes(reduction_precision="int4"), False):
        part = share(found, layouts(found)[0])
        assert (part.largest_trainable <= found.reduce_bucket_size) == bucketed
        chosen = job_space(found).complete(plan(found, zero_stage=3, reduction_precision="int4"))
        held = {term.name: term.value(chosen) for term in memory_terms(found)}
        assert held["4-bit gradient sent and received"] == part.largest_trainable
        assert held["fp16 copy of a gradient"] == (0 if bucketed else 2 * part.largest_trainable)


def test_slow_networks_take_few_bits_where_they_may() -> None:
    """Both are the plan; DeepSpeed is told, and sends fp16 since its kernels take nothing else."""
    found = quantized()
    best = solve(found).best
    assert (best.plan["gather_precision"], best.plan["reduction_precision"]) == ("int8", "int4")
    block = configuration(found, best.plan)
    assert block["communication_data_type"] == "fp16"
    assert block["zero_optimization"]["zero_quantized_weights"] is True
    assert block["zero_optimization"]["zero_quantized_gradients"] is True
    plainly = configuration(found, best.plan.changed(gather_precision="compute", reduction_precision="compute"))
    assert plainly["communication_data_type"] == "bf16"
    assert not {"zero_quantized_weights", "zero_quantized_gradients"} & set(plainly["zero_optimization"])


# ── a part of an offloaded optimizer on the GPU ──────────────────────────────────────────────────────────────────────


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
