"""Recomputation that is forced: by hand, and never more than any plan that holds does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

import pytest

from planner.blocks import Blocks
from planner.compute import recomputed_seconds
from planner.exchange import tensor_seconds
from planner.floors import Floors
from planner.forced_recompute import ForcedRecompute
from planner.forms import LARGEST
from planner.layouts import layouts
from planner.plan import Layout
from planner.points import OuterSpace, legal_values, outer_space, readers
from planner.rows import least_rows
from planner.share import share
from planner.specification import Specification, specify
from planner.standing import StandingFloors
from tests.jobs import PLAIN, job

MODEL = {"parameters": 2_000_000_000, "layers": 12, "vocabulary": 32000, "heads": 16}
ONE_GPU = {"gpu": "a100-sxm-80gb", "gpus_per_node": 1}


def planned(usable: str, **training: Any) -> Specification:
    """Eight cards whose memory is near what states and activations of the model take."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 8, "gpu_memory": usable}
    choices = {"activation_offload": "none"}
    training = {"global_batch": 32, "sequence_length": 4096, **training}
    return specify(job(model=MODEL, cluster=cluster, training=training, choices=choices))


@pytest.mark.parametrize("usable", ["12 GiB", "20 GiB"])
@pytest.mark.parametrize("runtime", ["megatron", "megatron-deepspeed", "deepspeed", "fsdp2", "ddp"])
def test_no_plan_that_holds_is_faster(runtime: str, usable: str) -> None:
    """Over every legal combination and every row of it; the floor bites somewhere."""
    _held(planned(usable, runtime=runtime))


@pytest.mark.parametrize("usable", ["12 GiB", "16 GiB"])
def test_blocks_in_tiles_store_less(usable: str) -> None:
    """With one sequence at a time of 16,384 tokens a feed-forward block may keep its input alone."""
    specification = planned(usable, runtime="deepspeed", sequence_length=16384, global_batch=8)
    assert max(blocks.tiles for blocks in specification.job.block_ways) > 1
    _held(specification)


def _held(specification: Specification) -> None:
    """No row that holds is faster than the floor of its layout and micro-batch."""
    outer, floors = outer_space(specification, None), Floors(specification.job)
    forced = ForcedRecompute(specification.job, StandingFloors(specification))
    legal = [v for v in legal_values(outer.choices, outer.rules) if outer.key(v) in outer.relations]
    bitten = 0
    for values, fastest in zip(legal, _fastest(specification, outer, legal), strict=True):
        again = forced.seconds(values)
        bitten += again is None or any(again.values())
        assert fastest == LARGEST if again is None else floors.microseconds(values, again) <= fastest
    assert bitten


def _fastest(specification: Specification, outer: OuterSpace, legal: list[dict[str, Any]]) -> list[int]:
    """Microseconds of the fastest row of each combination that holds."""
    memory, time = readers(specification)
    relations = [outer.relations[outer.key(values)] for values in legal]
    sums = memory.sums(legal), time.sums(legal)
    return least_rows("time", (memory, time), sums, relations, 1, specification.capacities).tolist()


def test_half_of_what_is_stored_too_much_forces_half_of_the_layers() -> None:
    """4 layers store s bytes each, a checkpoint keeps its input b of them: freeing 2 s takes 2 s / (s - b) forwards.

    Beside what they store some layer runs forward.
    """
    found = job(cluster=ONE_GPU, choices={**PLAIN, "checkpoint_interval": [0, 1]})
    specification, layout = specify(found), layouts(found)[0]
    one, values, limit = share(found, layout), {"layout": layout, "micro_batch": 1}, specification.limits["gpu"]
    tokens, ((kind, count),) = found.tokens(values), one.kind_counts
    stored, kept = one.of(kind).stored.at(tokens), one.of(kind).boundary.at(tokens)
    again = recomputed_seconds(one, kind, tokens, "full", "typical")
    running = min(one.of(kind).checkpointed_forward_live.at(tokens), one.of(kind).forward_live.at(tokens))
    assert count == 4 and running > 0

    def forced(room: int) -> Mapping[str, float] | None:
        standing = StandingFloors(specification)
        standing.limit, standing.found[layout] = replace(limit, capacity=room + running), {}
        return ForcedRecompute(found, standing).seconds(values)

    assert forced(4 * stored) == {"whole": 0}
    assert forced(2 * stored) == {"whole": pytest.approx(2 * stored / (stored - kept) * again)}
    assert forced(4 * kept) == {"whole": pytest.approx(4 * again)}
    assert forced(4 * kept - 1) is None


def test_the_stage_that_stores_the_most_is_forced_too() -> None:
    """4 layers in 3 stages of 1, 2 and 1: the second has 2 micro-batches under way, and stores 4 layers' s bytes.

    Where it has room for 3 s, freeing 0.5 s of each micro-batch takes 0.5 s / (s - b) forwards; on the first stage 3
    micro-batches under way store 3 s, which there is room for.
    """
    choices = {**PLAIN, "checkpoint_interval": [0, 1], "pipeline_parallel": 3}
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 3}
    training = {"runtime": "megatron", "global_batch": 12}
    specification = specify(job(cluster=cluster, training=training, choices=choices))
    found, layout = specification.job, Layout(pipeline=3, spared=(1, 1))
    one, values = share(found, layout, "inner"), {"layout": layout, "micro_batch": 1}
    kind, tokens = one.kinds[0], found.tokens(values)
    stored, kept = one.of(kind).stored.at(tokens), one.of(kind).boundary.at(tokens)
    running = min(one.of(kind).checkpointed_forward_live.at(tokens), one.of(kind).forward_live.at(tokens))
    standing = StandingFloors(specification)
    limit = replace(specification.limits["gpu"], capacity=3 * stored + running)
    standing.limit, standing.found[layout] = limit, {}
    again = recomputed_seconds(one, kind, tokens, "full", "typical")
    assert ForcedRecompute(found, standing).seconds(values) == {
        "first": 0, "inner": pytest.approx(0.5 * stored / (stored - kept) * again), "last": 0,
    }  # fmt: skip


def test_what_is_made_again_is_exchanged_again() -> None:
    """Two tensor-parallel ranks: a layer that is made again takes its forward without the end, and its exchange."""
    choices = {**PLAIN, "checkpoint_interval": [0, 1], "tensor_parallel": 2, "pipeline_parallel": 1}
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 2}
    specification = specify(job(model=MODEL, cluster=cluster, training={"runtime": "megatron"}, choices=choices))
    found, layout = specification.job, Layout(tensor=2)
    one, values, tokens = share(found, layout), {"layout": layout, "micro_batch": 1}, found.training.sequence_length
    ((kind, count),) = one.kind_counts
    layer = one.of(kind)
    running = min(layer.checkpointed_forward_live.at(tokens), layer.forward_live.at(tokens))
    standing, least = StandingFloors(specification), count * layer.boundary.at(tokens) + running
    standing.limit, standing.found[layout] = replace(specification.limits["gpu"], capacity=least), {}
    exchanged = tensor_seconds(one, kind, tokens, "forward", "typical")
    again = recomputed_seconds(one, kind, tokens, "full", "typical") + exchanged
    assert exchanged > 0
    assert ForcedRecompute(found, standing).seconds(values) == {"whole": pytest.approx(count * again)}


def test_nothing_is_forced_where_tiles_make_room() -> None:
    """Blocks in 4 tiles store their input alone: with room for that, no layer needs to be made again."""
    found = job(cluster=ONE_GPU, choices={**PLAIN, "checkpoint_interval": [0, 1]})
    specification, layout = specify(found), layouts(found)[0]
    one, values = share(found, layout), {"layout": layout, "micro_batch": 1}
    ((kind, count),), tokens = one.kind_counts, found.tokens(values)
    layer = one.of(kind, Blocks(tiles=4))
    less = layer.stored.at(tokens) * count
    assert less < one.of(kind).stored.at(tokens) * count
    running = min(layer.checkpointed_forward_live.at(tokens), layer.forward_live.at(tokens))

    def forced(*tiles: int) -> float:
        standing = StandingFloors(specification)
        standing.limit, standing.found[layout] = replace(specification.limits["gpu"], capacity=less + running), {}
        standing.domains["mlp_tiles"] = tiles
        again = ForcedRecompute(found, standing).seconds(values)
        return inf if again is None else again["whole"]

    assert forced(1) > 0
    assert forced(1, 4) == 0
