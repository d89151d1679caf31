"""Step time term by term: in which window and lane each effect is paid, how often, and for how many bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.calibration import Calibration
from planner.cluster import Group, collective_seconds, cpu_optimizer_seconds, host_link_seconds, nvme_seconds
from planner.compute import ends_seconds, layers_seconds, overlap_slowdown, recomputed_seconds, updated_seconds
from planner.effects import AnyEffect, Collective, Convert, Part, Shard, Transfer, Update
from planner.job import Job
from planner.plan import Layout
from planner.share import share
from planner.space import job_space
from planner.speed.memory_bound import memory_seconds
from planner.step_time import (
    COPIES,
    SLOWDOWN,
    bubble,
    collective_cost,
    microseconds,
    time_terms,
    window_repeats,
)
from planner.techniques import Techniques
from planner.terms import TimeTerm
from tests.jobs import job, plan

OUTLOOK = "high"  # not the one that is meant where none is named
TWO_NODES = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "10 Gbit/s"}
DRIVES = {"gpu": "a100-sxm-80gb", "gpus_per_node": 2, "nvme": {"capacity": "1 TB", "read": "6 GB/s", "write": "3 GB/s"}}
# The small job's parameters in 16 bits, and the lanes that something can be paid in.
WHOLE = 2 * 30_000_000
Place = tuple[str, str]


def acting(*effects: AnyEffect, layout: Layout | None = None, **sections: Any) -> Job:
    """The small job, or one with other sections, in which these effects act and no others."""
    one = job(**sections)
    runtime = one.runtime.model_copy(update={"effects": effects})
    one = replace(one, runtime=runtime, techniques=idle(one.techniques))
    return one if layout is None else one.with_choices({"layout": (layout,)})


def idle(techniques: Techniques) -> Techniques:
    """The techniques without their effects."""
    choices = {}
    for name, entry in techniques.choices.items():
        values = {value: technique.model_copy(update={"effects": ()}) for value, technique in entry.values.items()}
        choices[name] = entry.model_copy(update={"effects": (), "values": values})
    return replace(techniques, choices=choices)


def found(one: Job, name: str, outlook: str = OUTLOOK) -> list[TimeTerm]:
    return [term for term in time_terms(one, outlook) if term.name == name]


def paid(one: Job, name: str, outlook: str = OUTLOOK, **choices: Any) -> dict[Place, int]:
    """Microseconds of the terms of a name by window and lane, in a plan with one sequence to a micro-batch."""
    values = job_space(one).complete(plan(one, micro_batch=1, **choices))
    return {(term.window, term.lane): term.value(values) for term in found(one, name, outlook)}


def transfer(**changes: Any) -> Transfer:
    """Two bytes of each parameter to the GPU, once a step."""
    given = {"name": "copy", "link": "host_link", "direction": "to_gpu", "bytes": 2, "of": "parameters"}
    return Transfer(kind="transfer", **{**given, "every": "step", "during": "serial", **changes})


def collective(**changes: Any) -> Collective:
    """A gather of two bytes of each parameter, once a step."""
    given = {"name": "gather", "operation": "all_gather", "bytes": 2, "of": "parameters", "axis": "data"}
    return Collective(kind="collective", **{**given, "every": "step", **changes})


# ── parts ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("seconds", "expected"), [(0.0, 0), (3e-6, 3), (3.0000005e-6, 3), (3.001e-6, 4), (2.1, 2100000)]
)
def test_microseconds_are_rounded_up(seconds: float, expected: int) -> None:
    assert microseconds(seconds) == expected


def test_a_bubble_is_shorter_with_chunks() -> None:
    """Three waits of a pipeline of four, halved by two chunks; none of the waits is the last micro-batch's own."""
    assert bubble({"layout": Layout(pipeline=4)}) == 3
    assert bubble({"layout": Layout(pipeline=4, virtual_stages=2)}) == 1.5
    assert window_repeats(8, 1.5) == (9.5, 8.5, 1)


# ── compute ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_passes_of_a_pipeline_stage_by_stage() -> None:
    """Two stages, 8 micro-batches: 9 forward, 8 backward and the last one; the ends wait for no other stage."""
    layout = Layout(pipeline=2)
    one = job(training={"runtime": "megatron"}).with_choices({"layout": (layout,)})
    compute = paid(one, "compute", loss="chunked")
    lanes = ("compute", "compute_inner", "compute_last")
    windows = {"forward": (9, 8), "backward": (8, 7), "last_backward": (1, 1)}
    assert list(compute) == [(window, lane) for lane in lanes for window in windows]
    for stage, lane in ("first", "compute"), ("last", "compute_last"):
        for window, (layers, ends) in windows.items():
            way = "forward" if window == "forward" else "backward"
            part = share(one, layout, stage)
            expected = layers * layers_seconds(part, 512, way, OUTLOOK)  # type: ignore[arg-type]
            expected += ends * ends_seconds(part, 512, way, OUTLOOK, "chunked")  # type: ignore[arg-type]
            assert compute[window, lane] == microseconds(expected)
    assert compute["forward", "compute_inner"] == 0
    assert found(one, "compute")[0].scope == ("layout", "micro_batch", "loss")


@pytest.mark.parametrize("policy", ["full", "selective"])
def test_checkpointed_layers_are_made_again_on_their_stage(policy: str) -> None:
    """Two stages of two layers, both checkpointed; a third kind of stage is not there."""
    layout = Layout(pipeline=2)
    one = job(training={"runtime": "megatron"}).with_choices({"layout": (layout,)})
    choices = {"checkpoint_interval": 1, "checkpoint_count": 2, "recompute_policy": policy}
    again = paid(one, "recompute", **choices)
    lanes = ("compute", "compute_inner", "compute_last")
    assert list(again) == [(window, lane) for lane in lanes for window in ("backward", "last_backward")]
    once = recomputed_seconds(share(one, layout, "last"), one.layer_kinds[0], 512, policy, OUTLOOK)
    assert again["backward", "compute_last"] == 2 * microseconds(8 * once)
    assert again["last_backward", "compute_last"] == 2 * microseconds(once)
    assert again["backward", "compute_inner"] == 0
    first, *_, last = found(one, "recompute")
    assert first.scope == ("layout", "micro_batch", "recompute_policy")
    assert (first.measures, last.measures) == (("recomputed_layers@first",), ("recomputed_layers@last",))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (Calibration(step_seconds=0.5, micro_batch_seconds=0.01), 540_000),  # 4 micro-batches on each of 2 ranks
        (Calibration(step_seconds=0.5), 500_000),
        (Calibration(micro_batch_seconds=0.01), 40_000),
    ],
)
def test_what_measured_runs_show_beside_all_terms(known: Calibration, expected: int) -> None:
    one = job()
    cluster = replace(one.cluster, gpu=replace(one.cluster.gpu, calibration=known))
    one = replace(one, cluster=cluster)
    assert paid(one, "rest, as measured") == {("optimizer_step", "serial"): expected}
    (term,) = found(one, "rest, as measured")
    assert (term.scope, term.source) == (("layout", "micro_batch"), "calibration")


def test_without_a_calibration_there_is_no_rest() -> None:
    assert found(job(), "rest, as measured") == []


# ── where and how often ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("every", "during", "expected"),
    [
        ("step", "serial", {("optimizer_step", "serial"): 1}),
        ("step", "forward", {("forward", "host_link"): 1}),
        ("step", "backward", {("last_backward", "host_link"): 1}),
        ("micro_batch", "serial", {("optimizer_step", "serial"): 4}),
        ("micro_batch", "forward", {("forward", "host_link"): 4}),
        ("micro_batch", "backward", {("backward", "host_link"): 3, ("last_backward", "host_link"): 1}),
    ],
)
def test_windows_of_a_transfer(every: str, during: str, expected: dict[Place, int]) -> None:
    """Four micro-batches on each of two ranks, which share the host's links: 60e6 bytes each."""
    one = acting(transfer(every=every, during=during, source="here"))
    once = host_link_seconds(one.cluster, WHOLE, "to_gpu", 2, OUTLOOK)
    assert paid(one, "copy") == {place: microseconds(times * once) for place, times in expected.items()}
    assert {(term.scope, term.source) for term in found(one, "copy")} == {(("layout", "micro_batch"), "here")}


# ── transfers and updates ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_transfer_goes_its_way() -> None:
    """To the host, and over one node's drives, which write at half of the speed that they read at."""
    one = acting(transfer(direction="from_gpu"))
    expected = host_link_seconds(one.cluster, WHOLE, "from_gpu", 2, OUTLOOK)
    assert paid(one, "copy") == {("optimizer_step", "serial"): microseconds(expected)}
    for direction, amounts in ("read", (WHOLE, 0)), ("write", (0, WHOLE)):
        one = acting(transfer(link="nvme", direction=direction), cluster=DRIVES)
        expected = nvme_seconds(one.cluster, *amounts, 2, OUTLOOK)
        assert paid(one, "copy") == {("optimizer_step", "serial"): microseconds(expected)}
    assert paid(acting(transfer(link="nvme", direction="read")), "copy") == {("optimizer_step", "serial"): 0}


def test_a_transfer_is_of_what_its_conditions_leave() -> None:
    """Divided over two ranks where the book is, of some sub-groups only, and nothing where the condition fails."""
    shard = Shard(kind="shard", book="parameters", axis="data", when={"zero_stage": [3]})
    one = acting(shard, transfer(over="parameters", when={"zero_stage": [2, 3]}))
    halves = microseconds(host_link_seconds(one.cluster, WHOLE // 2, "to_gpu", 2, OUTLOOK))
    wholes = microseconds(host_link_seconds(one.cluster, WHOLE, "to_gpu", 2, OUTLOOK))
    place = ("optimizer_step", "serial")
    assert [paid(one, "copy", zero_stage=stage)[place] for stage in (1, 2, 3)] == [0, wholes, halves]


def test_a_part_of_a_transfer_is_of_whole_sub_groups() -> None:
    """2e9 elements on one GPU are 20 sub-groups: with 30 % on the GPU 14 of them are left, 2.8e9 bytes."""
    model = {"parameters": 2_000_000_000, "layers": 16, "vocabulary": 32000, "heads": 16}
    part, cluster = Part(choice="optimizer_on_gpu", rest=True), {"gpu": "a100-sxm-80gb", "gpus_per_node": 1}
    one = acting(transfer(part=part), model=model, cluster=cluster, choices={"optimizer_on_gpu": [0, 30]})
    expected = {0: 4_000_000_000, 30: 2_800_000_000}
    for percentage, size in expected.items():
        once = microseconds(host_link_seconds(one.cluster, size, "to_gpu", 1, OUTLOOK))
        assert paid(one, "copy", optimizer_on_gpu=percentage) == {("optimizer_step", "serial"): once}
    assert found(one, "copy")[0].scope == ("layout", "micro_batch", "sub_group", "optimizer_on_gpu")
    one = acting(
        update(unit="cpu", bytes=28, part=part), model=model, cluster=cluster, choices={"optimizer_on_gpu": [0, 30]}
    )
    assert paid(one, "step", optimizer_on_gpu=30) == {
        ("optimizer_step", "serial"): microseconds(cpu_optimizer_seconds(one.cluster, 1_400_000_000, 1, OUTLOOK))
    }


def update(**changes: Any) -> Update:
    """12 bytes of each trained parameter through the GPU's memory."""
    given = {"name": "step", "unit": "gpu", "bytes": 12, "of": "trainable"}
    return Update(kind="update", **{**given, **changes})


def test_an_update_takes_the_longer_of_traffic_and_launches() -> None:
    """30e6 parameters of 12 bytes at some 1.6 TB/s; a host that needs 1000 us a tensor takes longer."""
    place = ("optimizer_step", "serial")
    one = acting(update(source="here"))
    tensors = len(share(one, Layout(data=2)).sizes)
    quick = replace(one, runtime=one.runtime.model_copy(update={"host_update": 0.0}))
    assert paid(quick, "step") == {place: microseconds(updated_seconds(one, 360_000_000, tensors, OUTLOOK))}
    slow = replace(one, runtime=one.runtime.model_copy(update={"host_update": 1000.0}))
    assert paid(slow, "step") == {place: tensors * 1000}
    known = replace(one.cluster.gpu, calibration=Calibration(launches=2.0))
    assert paid(replace(slow, cluster=replace(one.cluster, gpu=known)), "step") == {place: tensors * 2000}
    assert {(term.scope, term.source) for term in found(one, "step")} == {(("layout", "micro_batch"), "here")}


def test_an_update_on_the_host_is_of_elements() -> None:
    """28 bytes of each of 30e6 elements on two ranks of a node; 15e6 where the states are divided; none without."""
    shard = Shard(kind="shard", book="optimizer_states", axis="data", when={"zero_stage": [2, 3]})
    change = update(unit="cpu", bytes=28, over="optimizer_states", when={"zero_stage": [1, 2]})
    one = acting(shard, change)
    whole, half = (cpu_optimizer_seconds(one.cluster, size, 2, OUTLOOK) for size in (30_000_000, 15_000_000))
    times = [paid(one, "step", zero_stage=stage)["optimizer_step", "serial"] for stage in (0, 1, 2)]
    assert times == [0, microseconds(whole), microseconds(half)]
    assert set(found(one, "step")[0].scope) == {"layout", "micro_batch", "zero_stage"}


# ── collectives ──────────────────────────────────────────────────────────────────────────────────────────────────────


def cost(one: Job, effect: Collective, size: int = WHOLE) -> float:
    return collective_cost(one, effect, size, {"layout": one.choices["layout"][0]}, OUTLOOK)


def seconds(one: Job, operation: str, size: float, group: Group) -> float:
    return collective_seconds(one.cluster, operation, size, group, OUTLOOK)


def test_groups_of_a_collective() -> None:
    """Two tensor-parallel ranks beside each other: four ranks share the states, two of them in a node of four."""
    one = acting(layout=Layout(tensor=2, data=4), cluster=TWO_NODES)
    assert cost(one, collective()) == pytest.approx(seconds(one, "all_gather", WHOLE, Group(4, 2)))
    assert cost(one, collective(axis="node")) == pytest.approx(seconds(one, "all_gather", WHOLE, Group(2, 2)))
    assert cost(one, collective(), size=0) == 0.0


def test_messages_of_a_bucket() -> None:
    """The model in messages of its largest layer; each costs 5 us for each of eight ranks."""
    layout = Layout(data=8)
    one = acting(layout=layout, cluster=TWO_NODES)
    part = share(one, layout)
    messages = -(-part.parameters // part.largest_layer)
    assert messages > 1
    once = seconds(one, "all_gather", WHOLE / messages, Group(8))
    assert cost(one, collective(message="largest_layer", per_rank=5.0)) == pytest.approx(messages * (once + 8 * 5e-6))
    assert cost(one, collective(per_rank=5.0)) == pytest.approx(seconds(one, "all_gather", WHOLE, Group(8)) + 8 * 5e-6)


def test_a_rank_alone_or_nothing_to_send_waits_for_no_host() -> None:
    """Two ranks that send: 2 x 5 us."""
    pair = acting(layout=Layout(data=2))
    waiting = collective(per_rank=5.0)
    assert cost(pair, waiting) == pytest.approx(cost_of(pair) + 10e-6)
    assert cost(pair, waiting, size=0) == 0.0
    assert cost(acting(layout=Layout(tensor=2)), waiting) == 0.0


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather"])
def test_copies_of_the_states_are_reduced_once_more(operation: str) -> None:
    """Two copies of four ranks: what a rank holds of a sum, a quarter, is summed over both; a gather stays inside."""
    one = acting(layout=Layout(data=8, shard=4), cluster=TWO_NODES)
    expected = seconds(one, operation, WHOLE, Group(4))
    if operation != "all_gather":
        expected += seconds(one, "all_reduce", WHOLE / 4, Group(2, 4))
    assert cost(one, collective(operation=operation)) == pytest.approx(expected)


def test_a_conversion_is_traffic_that_nothing_hides() -> None:
    """3 bytes of each of 30e6 elements, in every forward: two ranks make eight sequences in four micro-batches."""
    one = acting(Convert(kind="convert", name="cast", bytes=3, of="trainable", every="micro_batch", during="forward"))
    expected = memory_seconds(one.cluster.gpu, 3 * 30_000_000, 0, OUTLOOK)
    assert paid(one, "cast") == {("forward", "serial"): microseconds(4 * expected)}


def test_what_travels_between_nodes_is_a_rank_s_part_of_its_node_s() -> None:
    """60e6 bytes over four ranks of a node are 15e6, which go between two nodes."""
    one = acting(layout=Layout(data=8), cluster=TWO_NODES)
    found_cost = cost(one, collective(operation="all_to_all", axis="nodes"))
    assert found_cost == pytest.approx(seconds(one, "all_to_all", WHOLE / 4, Group(2, 4)))


def test_copies_around_a_collective_are_of_elements() -> None:
    """60e6 bytes are 30e6 elements of two bytes, 4 bytes of traffic each; nothing where one rank has all."""
    one = acting(collective(copied=4.0, during="backward", source="here"))
    expected = memory_seconds(one.cluster.gpu, 4 * 30_000_000, 0, OUTLOOK)
    assert paid(one, COPIES) == {("last_backward", "serial"): microseconds(expected)}
    assert {term.source for term in found(one, COPIES)} == {"here"}
    alone = acting(collective(copied=4.0), cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 1})
    assert paid(alone, COPIES) == {("optimizer_step", "serial"): 0}
    assert found(acting(collective()), COPIES) == []


def test_compute_slows_down_beside_a_collective_on_every_stage() -> None:
    layout = Layout(pipeline=2, data=4)
    one = acting(collective(during="backward", source="here"), layout=layout, cluster=TWO_NODES)
    once = cost(one, collective(), size=2 * share(one, layout, "first").parameters)
    lost = overlap_slowdown(one).at(OUTLOOK)
    assert paid(one, "gather") == {("last_backward", "communication"): microseconds(once)}
    lanes = ("compute", "compute_inner", "compute_last")
    assert paid(one, SLOWDOWN) == {("last_backward", lane): microseconds(lost * once) for lane in lanes}
    assert {term.source for term in (*found(one, SLOWDOWN), *found(one, "gather"))} == {"here"}


def test_nothing_runs_beside_what_is_serial() -> None:
    """A slowdown is of compute in the same window: a collective of the step's end has a lane, compute has none."""
    one = acting(collective())
    assert paid(one, "gather") == {("optimizer_step", "serial"): microseconds(cost_of(one))}
    assert found(one, SLOWDOWN) == []


def cost_of(one: Job) -> float:
    """The gather over both ranks of the small job."""
    return seconds(one, "all_gather", WHOLE, Group(2))


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"during": "backward"}, True),
        ({"during": "forward"}, False),
        ({"during": "backward", "operation": "reduce_scatter"}, False),
    ],
)
def test_a_layer_above_the_limit_is_waited_for(changes: dict[str, Any], again: bool) -> None:
    """A layer is larger than one element: serial, and a gather of backward comes once more for recomputed layers."""
    effect = collective(every="micro_batch", awaited_above=1.0, source="here", **changes)
    one = acting(effect)
    assert {lane for _, lane in paid(one, "gather")} == {"serial"}
    assert found(one, SLOWDOWN) == []
    assert bool(found(one, "gather, once more")) == again
    if again:
        once = cost_of(one) / 30_000_000 * one.layer_kinds[0].parameters
        expected = {
            ("backward", "serial"): 3 * microseconds(3 * once),
            ("last_backward", "serial"): 3 * microseconds(once),
        }
        assert paid(one, "gather, once more", checkpoint_interval=1, checkpoint_count=3) == expected
        term = found(one, "gather, once more")[0]
        assert (term.scope, term.measures) == (("layout", "micro_batch"), ("recomputed_layers",))
        assert term.source == "here"


def test_a_layer_at_the_limit_is_gathered_ahead() -> None:
    limit = float(job().architecture.largest_layer)
    for awaited in 0.0, limit:
        one = acting(collective(every="micro_batch", during="backward", awaited_above=awaited))
        assert {lane for _, lane in paid(one, "gather")} == {"communication"}
        assert found(one, "gather, once more") == []


def test_a_collective_is_of_what_its_conditions_leave() -> None:
    one = acting(collective(when={"zero_stage": [3]}, copied=1.0))
    place = ("optimizer_step", "serial")
    assert [paid(one, "gather", zero_stage=stage)[place] for stage in (2, 3)] == [0, microseconds(cost_of(one))]
    assert {term.scope for term in (*found(one, "gather"), *found(one, COPIES))} == {
        ("layout", "micro_batch", "zero_stage")
    }
