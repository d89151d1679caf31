"""How a job's settings become times of layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.compute import (
    attention_kernel,
    clock,
    ends_seconds,
    layers_seconds,
    loss_of,
    overlap_slowdown,
    pace,
    recomputed_seconds,
    updated_seconds,
)
from planner.job import Job
from planner.plan import Layout
from planner.share import share
from planner.speed.memory_bound import update_seconds
from planner.speed.seconds import layer_seconds
from tests.jobs import job, plan

BATCH = {"sequence_length": 512, "global_batch": 8}


def trained(**training: Any) -> Job:
    return job(training={**BATCH, **training})


@pytest.mark.parametrize(
    ("training", "kernel"),
    [
        ({}, "flash"),
        ({"attention": "sdpa"}, "sdpa"),
        ({"attention": "eager"}, "eager"),
        ({"attention": "eager", "runtime": "megatron"}, "fused-softmax"),
        ({"runtime": "megatron"}, "cudnn"),
        ({"runtime": "megatron", "deterministic": True}, "deterministic"),
    ],
)
def test_which_attention_runs(training: dict[str, Any], kernel: str) -> None:
    found = trained(**training)
    assert attention_kernel(found, found.layer_kinds[0]) == kernel


def test_a_bias_on_the_scores_needs_the_first_flash_attention() -> None:
    found = trained()
    kind = found.layer_kinds[0]
    assert kind.attention is not None
    assert attention_kernel(found, replace(kind, attention=replace(kind.attention, alibi=True))) == "flash1"


@pytest.mark.parametrize(
    ("training", "loss"),
    [({}, "standard"), ({"kernels": "compiled"}, "compiled"), ({"runtime": "megatron"}, "parallel"),
     ({"kernels": "compiled", "loss": "chunked"}, "compiled"), ({"kernels": "liger", "loss": "chunked"}, "chunked")],
)  # fmt: skip
def test_which_loss_runs(training: dict[str, Any], loss: str) -> None:
    found = trained(**training)
    assert loss_of(found, str(plan(found)["loss"])) == loss


def test_a_layer_takes_what_the_speed_package_says() -> None:
    found = trained()
    times, kind = clock(share(found, Layout(data=2))), found.layer_kinds[0]
    setting = times.setting("flash")
    assert (setting.peak, setting.kernels, setting.accumulated_bytes) == ("bf16", "huggingface", 6)
    expected = layer_seconds(
        found.cluster.gpu, kind, found.architecture.hidden, 1024, 512, "forward", setting, "typical"
    )
    assert times.layer(kind, 1024, "forward", "typical") == expected * pace(2, "typical")


def test_a_share_adds_its_layers_and_its_ends() -> None:
    # 4 layers over two stages: 2 each; the embedding with the first, the head with the last
    found = trained(runtime="megatron").with_choices({"layout": (Layout(pipeline=2),)})
    kind, layout = found.layer_kinds[0], Layout(pipeline=2)
    first, last = share(found, layout, "first"), share(found, layout, "last")
    times = clock(first)
    assert layers_seconds(first, 512, "forward", "typical") == 2 * times.layer(kind, 512, "forward", "typical")
    assert ends_seconds(first, 512, "forward", "typical") == times.embedding(512, "forward", "typical")
    assert ends_seconds(last, 512, "forward", "typical") == times.head(512, "forward", "typical")


@pytest.mark.parametrize(("optimizer", "share_of_streaming"), [("adamw", 1.0), ("adamw-8bit", 0.49)])
def test_codes_of_states_are_searched_for(optimizer: str, share_of_streaming: float) -> None:
    found = trained(optimizer=optimizer)
    streamed = update_seconds(found.cluster.gpu, 16e9 / share_of_streaming, 1.0, 40, "typical")
    assert updated_seconds(found, 16e9, 40, "typical") == pytest.approx(streamed)


def test_ranks_that_share_a_division_share_a_clock() -> None:
    found = trained()
    assert clock(share(found, Layout(data=2))) is clock(share(found, Layout(data=1)))


def test_selective_recomputation_takes_less_than_a_whole_forward() -> None:
    found = trained(runtime="fsdp2")
    part, kind = share(found, Layout(data=2)), found.layer_kinds[0]
    whole = recomputed_seconds(part, kind, 1024, "full", "typical")
    assert 0 < recomputed_seconds(part, kind, 1024, "selective", "typical") < whole
    # the closing product of the layer is not made again
    assert whole < clock(part).layer(kind, 1024, "forward", "typical")


def test_megatron_fills_the_vocabulary_up() -> None:
    # 8000 entries over 2 ranks: multiples of 256, 8192
    found = trained(runtime="megatron")
    assert clock(share(found, Layout(tensor=2))).vocabulary == 8192
    assert clock(share(trained(), Layout(data=2))).vocabulary == 8000


def test_the_slowest_card_sets_the_pace() -> None:
    # quantiles: 0.625/1.25 = 0.5 is 0; 7.625/8.25 is 1.434; 127.625/128.25 is 2.585; 2 % of each
    assert pace(8, "typical") == 1.0
    assert pace(1, "typical") == pytest.approx(1 / 1.02868, rel=1e-4)
    assert pace(128, "typical") == pytest.approx(1.0517 / 1.02868, rel=1e-4)


def test_collectives_slow_compute_by_architecture() -> None:
    assert overlap_slowdown(trained()).typical == 0.25  # A100
