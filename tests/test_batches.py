"""Layouts with micro-batches by their floors: none that a plan is in is left out, and none comes before its floor."""

from __future__ import annotations

from typing import Any

import pytest

from planner.batches import Batches, LeanBatches
from planner.floors import TOLD_APART
from planner.forms import LARGEST
from planner.plan import Value
from planner.points import inner_choices, outer_space, readers
from planner.rows import least_rows
from planner.specification import Specification, specify
from tests.jobs import job

MODEL = {"parameters": 900_000_000, "layers": 6, "vocabulary": 32000, "heads": 8}
RUNTIMES = ("megatron", "megatron-deepspeed", "deepspeed", "fsdp2")


def specified(runtime: str, usable: str = "16 GiB") -> Specification:
    """Two nodes of four GPUs with little memory; which loss is taken is open."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "100 Gbit/s"}
    training = {"runtime": runtime, "global_batch": 16, "sequence_length": 2048}
    return specify(job(model=MODEL, cluster={**cluster, "gpu_memory": usable}, training=training))


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_every_plan_that_holds_is_in_a_batch_below_it(runtime: str) -> None:
    """By rising floors, each with the values that floors tell apart; no row that holds is faster than its batch."""
    specification = specified(runtime)
    outer = outer_space(specification, None)
    found = list(Batches(specification, outer).below(lambda: LARGEST - 1))
    floors = [batch.floor for batch in found]
    assert floors == sorted(floors) and len(set(floors)) > 1
    below = {_key(batch.values): batch.floor for batch in found}
    assert len(below) == len(found)
    legal, fastest = _least(specification, "time", specification.capacities)
    holding = [(values, least) for values, least in zip(legal, fastest, strict=True) if least < LARGEST]
    assert holding
    for values, least in holding:
        key = _key(values) if _key(values) in below else _key({**values, **dict.fromkeys(TOLD_APART)})
        assert below[key] <= least


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_no_plan_takes_less_than_its_lean_batch(runtime: str) -> None:
    """By rising bytes; no row of any point takes less than its layout and micro-batch."""
    specification = specified(runtime)
    outer = outer_space(specification, None)
    found = list(LeanBatches(specification, outer).below(lambda: LARGEST - 1))
    assert [size for size, _ in found] == sorted(size for size, _ in found)
    below = {(values["layout"], values["micro_batch"]): size for size, values in found}
    legal, leanest = _least(specification, "memory", specification.capacities)
    holding = [(values, least) for values, least in zip(legal, leanest, strict=True) if least < LARGEST]
    assert holding
    for values, least in holding:
        assert below[values["layout"], values["micro_batch"]] <= least


def test_batches_that_nothing_makes_room_for_are_left_out() -> None:
    """On 2 GiB the states of no layout fit: there is no batch, whatever the ceiling."""
    specification = specified("megatron", "2 GiB")
    outer = outer_space(specification, None)
    assert list(Batches(specification, outer).below(lambda: LARGEST)) == []


def test_a_falling_ceiling_ends_both() -> None:
    """What is left when the ceiling falls below every floor is not gone through."""
    specification = specified("megatron")
    outer = outer_space(specification, None)
    for batches in (Batches(specification, outer), LeanBatches(specification, outer)):
        ceilings = iter([LARGEST - 1] * 100_000)
        assert len(list(batches.below(lambda left=ceilings: next(left)))) > 1
        found: list[object] = []
        for batch in batches.below(lambda found=found: 0 if found else LARGEST - 1):
            found.append(batch)
        assert len(found) == 1


def _key(values: Any) -> tuple[Value | None, ...]:
    return values["layout"], values["micro_batch"], *(values.get(name) for name in TOLD_APART)


def _least(specification: Specification, coordinate: Any, capacities: Any) -> tuple[list[dict[str, Value]], list[int]]:
    """Every legal combination, and the least that a row of it reaches within the capacities, LARGEST where none is."""
    outer = outer_space(specification, None)
    legal = [v for layout in outer.layouts for v in outer.under(layout) if outer.key(v) in outer.relations]
    memory, time = readers(specification)
    relations, inner = [outer.relations[outer.key(values)] for values in legal], len(inner_choices(specification))
    sums = memory.sums(legal), time.sums(legal)
    return legal, least_rows(coordinate, (memory, time), sums, relations, inner, capacities).tolist()
