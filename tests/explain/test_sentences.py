"""Sentences of an explanation, each made of figures that are known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.evaluate import Evaluation, evaluate
from planner.explain.choices import Excess, Outcome, excesses
from planner.explain.limits import LimitReason, Purchase, _larger, _wider
from planner.explain.sentences import (
    changed_sentence,
    excess_text,
    limit_sentence,
    memory_change,
    miss_lines,
    misses,
    outcome_sentence,
    purchase_sentence,
    time_change,
    traffic_sentence,
)
from planner.explain.traffic import Traffic, traffic
from planner.job import Job
from planner.plan import Layout
from planner.units import GIB, format_bytes, format_seconds
from tests.jobs import job, plan


def small(found: Job | None = None, **values: Any) -> Evaluation:
    """Two GPUs, four layers, eight sequences."""
    found = found or job()
    return evaluate(found, plan(found, **values))


def with_memory(usable: int) -> Job:
    """The small job on a GPU with so many bytes."""
    found = job()
    return replace(found, cluster=replace(found.cluster, gpu=replace(found.cluster.gpu, usable_memory=usable)))


def seconds(one: Evaluation, other: Evaluation) -> str:
    """How far two step times are apart."""
    return format_seconds(abs(one.step_time.seconds - other.step_time.seconds))


# ── plans beside the best one ────────────────────────────────────────────────────────────────────────────────────────


def test_the_same_plan_costs_nothing() -> None:
    best = small(zero_stage=2)
    assert (time_change(best, best), memory_change(best, best)) == ("no more time", "the same memory per GPU")
    assert changed_sentence(best, best) == "nothing"
    total = format_seconds(best.step_time.seconds)
    assert outcome_sentence(best, Outcome({"zero_stage": 2}, best)) == (
        f"zero_stage 2: no more time ({total} a step), the same memory per GPU"
    )


def test_a_slower_plan_names_the_term_that_grew_and_a_faster_one_none() -> None:
    """Eight micro-batches of one sequence on two ranks against one of four: more launches, less memory."""
    best, slow = small(micro_batch=4), small(micro_batch=1)
    told = outcome_sentence(best, Outcome({"micro_batch": 1}, slow))
    size = format_bytes(best.peak_bytes - slow.peak_bytes)
    total = format_seconds(slow.step_time.seconds)
    start = f"micro_batch 1: {seconds(best, slow)} more ({total} a step), {size} less per GPU; "
    assert told.startswith(start)
    grown = {name: value - best.step_time.terms.get(name, 0.0) for name, value in slow.step_time.terms.items()}
    named = told.removeprefix(start).partition(" takes ")[0]
    assert grown[named] == max(value for name, value in grown.items() if name != "hidden by overlap")
    back = outcome_sentence(slow, Outcome({"micro_batch": 4}, best))
    total = format_seconds(best.step_time.seconds)
    assert back == f"micro_batch 4: {seconds(best, slow)} less ({total} a step), {size} more per GPU"
    assert changed_sentence(best, slow).startswith("micro_batch 1, gradient_accumulation 4")


def test_what_cannot_be_names_the_rules() -> None:
    told = outcome_sentence(small(), Outcome({"zero_stage": 3, "micro_batch": 2}, None, None, ("one_rule", "another")))
    assert told == "zero_stage 3, micro_batch 2: cannot be: one_rule, another"


# ── plans that do not fit ────────────────────────────────────────────────────────────────────────────────────────────


def test_what_does_not_fit_says_how_much_where_and_what_it_would_gain() -> None:
    found = with_memory(GIB)
    slow, miss = small(found, micro_batch=1), small(found, micro_batch=4)
    (excess,) = excesses(miss)
    assert excess == Excess(
        "gpu_memory_holds_every_phase", "gpu", miss.peak_bytes - miss.ledger["gpu"].capacity.planned, excess.phase
    )
    over = f"{format_bytes(excess.bytes)} over on GPU in {excess.phase} (gpu_memory_holds_every_phase)"
    assert excess_text(excess) == over
    gain = f"{seconds(slow, miss)} less if it did"
    assert outcome_sentence(slow, Outcome({"micro_batch": 4}, None, miss)) == (
        f"micro_batch 4: does not fit: {over}; {gain}"
    )
    # the slower of the two does not fit either, and would gain nothing
    assert outcome_sentence(miss, Outcome({"micro_batch": 1}, None, slow)).endswith("(gpu_memory_holds_every_phase)")


def test_a_deadline_that_is_missed() -> None:
    found = job(limits={"step_time_at_most": "1 ms"})
    miss = small(found)
    over = format_seconds((miss.step_time.microseconds - 1000) / 1e6)
    assert list(misses(miss)) == [f"{over} over the deadline (step_time_is_within_the_deadline)"]


def test_the_nearest_miss_line_by_line() -> None:
    """The six largest lines of the peak, the rest in one, then what else is broken."""
    found = with_memory(GIB)
    miss = small(found, micro_batch=3)
    (excess,) = excesses(miss)
    first, *lines = miss_lines(miss)
    assert first == excess_text(excess)
    ordered = sorted(miss.ledger["gpu"].peak.lines, key=lambda line: -line.bytes)
    largest = ordered[0]
    assert lines[0] == f"  {format_bytes(largest.bytes):>10}  {largest.name} ({largest.book.replace('_', ' ')})"
    rest = sum(line.bytes for line in ordered[6:])
    assert lines[6] == f"  {format_bytes(rest):>10}  {len(ordered) - 6} more lines"
    assert lines[7:] == [
        f"{broken.constraint}: {broken.because}"
        for broken in miss.violations if broken.constraint != "gpu_memory_holds_every_phase"
    ]  # fmt: skip
    assert [line.partition(":")[0] for line in lines[7:]] == ["batch_divides_over_ranks"]


# ── traffic ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (Traffic("pipeline exchange", "exchange", None, None, 0.5, "ib-hdr", 25e9, "", True),
         "pipeline exchange: over ib-hdr at 200 Gbit/s for each GPU: 500 ms"),
        (Traffic("gradients", "all_reduce", 3 * GIB, 1, 0.25, "nvlink3", 300e9, "", False),
         "gradients (all_reduce, once a step): 3.0 GiB over nvlink3 at 300 GB/s for each GPU: 250 ms"),
        (Traffic("parameters", "all_gather", GIB, 8, 0.25, "nvlink3", 300e9, "", False),
         "parameters (all_gather, 8 times a step): 1.0 GiB over nvlink3 at 300 GB/s for each GPU: 250 ms"),
    ],
)  # fmt: skip
def test_one_exchange(sent: Traffic, told: str) -> None:
    assert traffic_sentence(sent) == told


def test_exchanges_inside_layers_and_between_stages_have_no_bytes() -> None:
    found = job(
        cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 4}, training={"runtime": "megatron"},
        choices={"tensor_parallel": 2, "pipeline_parallel": 2},
    )  # fmt: skip
    layout = Layout(tensor=2, pipeline=2, data=1)
    sent = {item.name: item for item in traffic(small(found, layout=layout, micro_batch=1))}
    for name in ("tensor-parallel exchange", "pipeline exchange"):
        assert (sent[name].operation, sent[name].bytes, sent[name].rounds) == ("exchange", None, None)
        assert (sent[name].link, sent[name].network) == ("nvlink3", False)
    times = [item.seconds for item in traffic(small(found, layout=layout, micro_batch=1))]
    assert times == sorted(times, reverse=True)


# ── limits and purchases ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_limit_that_binds_or_does_not() -> None:
    best, better = small(micro_batch=1), small(micro_batch=4)
    plain = LimitReason("some_limit", "gpu", 80 * GIB, 2 * GIB)
    assert limit_sentence(best, plain) == (
        "some_limit does not bind (2.0 GiB of 80.0 GiB free): no plan is better without it"
    )
    total, gain = format_seconds(better.step_time.seconds), f"{seconds(best, better)} less a step"
    free = replace(plain, unlimited=better)
    assert limit_sentence(best, free) == f"some_limit binds (2.0 GiB of 80.0 GiB free): without it {total} a step"
    whole = replace(free, next_bytes=3 * GIB, next=better, one_more=best)
    assert limit_sentence(best, whole) == (
        f"some_limit binds (2.0 GiB of 80.0 GiB free): without it {total} a step; 3.0 GiB more would buy {gain}; "
        "one GiB more: nothing"
    )


def test_a_purchase() -> None:
    """Of the same job twice the speed is half the GPU time, and the same speed no less."""
    best, better = small(micro_batch=1), small(micro_batch=4)
    share = better.step_time.seconds / best.step_time.seconds - 1
    total = format_seconds(better.step_time.seconds)
    assert purchase_sentence(best, Purchase("one more GPU", better.job, better)) == (
        f"one more GPU: {seconds(best, better)} less ({total} a step), {abs(share):.1%} less GPU time per token"
    )
    assert purchase_sentence(better, Purchase("no GPU", best.job, best)).endswith("more GPU time per token")
    told = purchase_sentence(best, Purchase("one more GPU", with_memory(1024), None))
    assert told == "one more GPU: no plan: gpu_memory_holds_every_phase"


def sizes(found: Job) -> list[tuple[str, int]]:
    """What more of a machine is asked for, and the GPUs then."""
    return [(what, bigger.cluster.gpus) for what, bigger in _larger(found)]


def test_more_machines_where_a_network_joins_them_else_more_gpus() -> None:
    one, two = (job(cluster={"node": "dgx-a100-80gb", "nodes": nodes}) for nodes in (1, 2))
    assert sizes(one) == [("one more node (16 GPUs)", 16)]
    assert sizes(two) == [("one more node (24 GPUs)", 24), ("2 more nodes (32 GPUs)", 32)]
    single = job(cluster={"gpu": "rtx4090-24gb", "gpus_per_node": 1})
    assert sizes(single) == [("one more GPU", 2)]
    assert [bigger.cluster.node.topology for _, bigger in _larger(single)] == ["pcie"]
    three = job(cluster={"gpu": "rtx4090-24gb", "gpus_per_node": 3})
    assert sizes(three) == [("one more GPU", 4), ("3 more GPUs", 6)]


def test_more_bandwidth_where_there_is_a_network() -> None:
    """Eight ports of 25 GB/s: one Gbit/s more is 0.125 GB/s of 200."""
    found = job(cluster={"node": "dgx-a100-80gb", "nodes": 2})
    node = found.cluster.node
    rates = {what: bigger.cluster.node.nics * bigger.cluster.node.nic_bandwidth for what, bigger in _wider(found)}
    now = node.nics * node.nic_bandwidth
    assert rates == {
        "one more Gbit/s between nodes": pytest.approx(now + 0.125e9), "twice the network": pytest.approx(2 * now),
    }  # fmt: skip
    assert list(_wider(job(cluster={"node": "dgx-a100-80gb"}))) == []
