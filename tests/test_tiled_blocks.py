"""Feed-forward blocks in tiles: what they keep, what they pay, where they are planned, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.architecture.activation_mixer import attention_work
from planner.architecture.activation_sites import layer_sites
from planner.architecture.amount import ActivationSettings
from planner.compute import block_seconds
from planner.errors import NoPlan
from planner.evaluate import evaluate
from planner.job import Job
from planner.layouts import layouts
from planner.ledger import ledger
from planner.search import solve
from planner.share import share
from planner.space import job_space
from planner.step_time import time_terms
from tests.jobs import job, plan

# One layer of 4 × 256 × 256 of attention and 3 × 256 × 1024 of feed-forward.
SHAPE = {"hidden": 256, "intermediate": 1024, "heads": 4, "layers": 4, "vocabulary": 8192, "parameters": 8_390_912}
LONG = {"sequence_length": 16384, "global_batch": 2}


def long_job(**overrides: Any) -> Job:
    """Two GPUs with one long sequence each."""
    return job(model=SHAPE, training={**LONG, **overrides.pop("training", {})}, **overrides)


@pytest.mark.parametrize(
    ("tiles", "stored", "forward", "alone", "backward"),
    [
        (1, 256 + 4 * 1024, 2 * 256, 3 * 1024 + 2 * 256, 2 * 1024 + 256),
        (4, 256, 2 * 256 + 768, 3 * 256 + 768, 1536 + 2 * 256),
        (16, 256, 3 * 256, 4 * 256, 384 + 2 * 256),
    ],
)
def test_a_tile_stands_for_the_whole_width(tiles: int, stored: int, forward: int, alone: int, backward: int) -> None:
    """In 16-bit elements for each token; gate, activation, up and product are 1024 wide, the stream is 256.

    Whole: all four are stored with their input; three are alive while nothing is stored; two gradients of that width
    and the stream's. A quarter: the input alone is stored; three quarters of 1024 run beside what is done of the output
    and the stream; backward makes (4 + 2) × 1024 / 4 beside whole gradients of output and input. A sixteenth: joining
    the parts, 256 once more, is more than the three that run, 192.
    """
    kind, settings = long_job().layer_kinds[0], ActivationSettings(16384, mlp_tiles=tiles)
    (site,) = (site for site in layer_sites(kind, 256, settings) if site.name == "feed_forward")
    work = site.work
    assert site.stored.per_token == 2 * stored
    assert (work.forward, work.alone, work.backward) == (2 * forward, 2 * alone, 2 * backward)
    assert work.recomputed == work.backward


@pytest.mark.parametrize(("key_heads", "alone"), [(4, 16), (2, 12), (1, 11)])
def test_beside_tiles_attention_is_the_widest(key_heads: int, alone: int) -> None:
    """Live tensors of Llama's first forward under a checkpoint, in bytes for each token and unit of width.

    Stream and norm, 4; queries, keys and values; while queries are rotated two more of their width stand beside the
    product (4 + 6 + 2 × keys), while keys are two of theirs beside rotated queries (4 + 4 + 4 × keys).
    """
    attention = long_job().layer_kinds[0].attention
    assert attention is not None
    work = attention_work(replace(attention, kv_heads=key_heads), 256, ActivationSettings(512))
    assert work[1] == alone * 256


def test_every_block_is_made_again() -> None:
    """Forward: four quarters in place of one whole. Backward: four quarters forward and back in place of one back."""
    found = long_job()
    part, tokens = share(found, layouts(found)[0]), 16384
    kind = found.layer_kinds[0]
    whole, back = (block_seconds(part, kind, tokens, way, "typical") for way in ("forward", "backward"))
    quarter, back_quarter = (block_seconds(part, kind, tokens / 4, way, "typical") for way in ("forward", "backward"))
    told = terms(found, mlp_tiles=4)
    assert told["forward"] == pytest.approx(4 * (4 * quarter - whole) * 1e6, abs=1)
    assert told["last_backward"] == pytest.approx(4 * (4 * quarter + 4 * back_quarter - back) * 1e6, abs=1)
    assert set(terms(found).values()) == {0}


def test_a_recomputed_block_runs_to_its_end() -> None:
    """Two of four layers recomputed: the closing product, which torch leaves out otherwise, and tiles of their own."""
    found = long_job()
    part, kind = share(found, layouts(found)[0]), found.layer_kinds[0]
    stopped = block_seconds(part, kind, 16384, "recompute", "typical")
    quarter = block_seconds(part, kind, 16384 / 4, "forward", "typical")
    with_two = terms(found, mlp_tiles=4, checkpoint_interval=1, checkpoint_count=2)["last_backward"]
    without = terms(found, mlp_tiles=4)["last_backward"]
    assert with_two - without == pytest.approx(2 * (4 * quarter - stopped) * 1e6, abs=3)
    assert stopped < block_seconds(part, kind, 16384, "forward", "typical")


def terms(found: Job, **values: Any) -> dict[str, int]:
    """Microseconds that tiles add in each window."""
    chosen = job_space(found).complete(plan(found, **values))
    tiled = [term for term in time_terms(found, "typical") if term.name == "feed-forward blocks in tiles"]
    return {term.window: term.value(chosen) for term in tiled}


def test_gradients_of_a_block_wait_for_the_last_tile() -> None:
    """2 bytes of 3 × 256 × 1024 elements."""
    found = long_job()
    chosen = plan(found, zero_stage=2, mlp_tiles=4)
    held = {line.name: line.bytes for line in ledger(found, chosen)["gpu"].phases["backward"].lines}
    assert held["gradients of a block in tiles"] == 2 * 3 * 256 * 1024


@pytest.mark.parametrize(
    ("changes", "values"),
    [
        ({}, (1, 4, 16)),
        ({"training": {"sequence_length": 16383}}, (1,)),
        ({"training": {"runtime": "fsdp2"}}, (1,)),
        ({"training": {"kernels": "liger"}}, (1,)),
        ({"training": {"method": {"lora": {"rank": 8}}}}, (1,)),
    ],
)
def test_where_tiles_do_anything(changes: dict[str, Any], values: tuple[int, ...]) -> None:
    found = long_job(**changes)
    assert job_space(found).by_name["mlp_tiles"].values == values == tuple(blocks.tiles for blocks in found.block_ways)


@pytest.mark.parametrize("model", ["gpt2-xl", "mixtral-8x7b"])
def test_only_plain_gated_blocks_are_tiled(model: str) -> None:
    found = job(model=model, training=LONG)
    assert (found.feed_forward, {blocks.tiles for blocks in found.block_ways}) == ("other", {1})


def test_several_sequences_are_divided_by_micro_batches() -> None:
    with pytest.raises(NoPlan) as caught:
        solve(long_job(training={"global_batch": 4}, choices={"mlp_tiles": 4, "micro_batch": 2}))
    assert caught.value.reasons == (
        "techniques_have_what_they_need: mlp_tiles 4 needs micro_batch 1, the plan has micro_batch 2",
    )


def test_tiles_spare_the_optimizer_its_way_to_the_host() -> None:
    """Llama-3.1-8B with 131,072 tokens on each of eight 80 GB GPUs: tiles leave room for the optimizer's states."""
    cluster = {"gpu": "h100-sxm-80gb", "gpus_per_node": 8}
    found = job(model="llama-3.1-8b", cluster=cluster, training={"sequence_length": 131072, "global_batch": 8})
    best = solve(found).best
    assert (best.plan["mlp_tiles"], best.plan["optimizer_offload"]) == (4, "none")
    without = solve(found.with_choices({"mlp_tiles": (1,)})).best
    assert without.plan["optimizer_offload"] == "cpu"
    assert without.step_time.seconds > best.step_time.seconds
    assert not evaluate(found, best.plan).violations
