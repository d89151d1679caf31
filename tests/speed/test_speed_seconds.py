"""Sums of a layer's pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import hardware_catalog
from planner.architecture.catalog_models import catalog_model
from planner.hardware import Gpu
from planner.speed.attention import AttentionShape, Side, attention_seconds
from planner.speed.matrix import matrix_seconds
from planner.speed.memory_bound import memory_seconds
from planner.speed.operations import Division
from planner.speed.seconds import Parts, Pass, Setting, embedding_seconds, head_seconds, layer_parts, layer_seconds

LLAMA = catalog_model("llama-3-8b")
KIND = LLAMA.layers[0].kind
SETTING = Setting(kernels="compiled", host="compiled")


def gpu(key: str = "a100-sxm-80gb") -> Gpu:
    return hardware_catalog.gpus()[key]


def parts(direction: Pass, setting: Setting = SETTING, tokens: int = 8192, key: str = "a100-sxm-80gb") -> Parts:
    return layer_parts(gpu(key), KIND, 4096, tokens, 4096, direction, setting, "typical")


def product(columns: int, inner: int, rows: int = 8192) -> float:
    return matrix_seconds(gpu(), "bf16", rows, columns, inner, "typical")


def test_forward_is_the_sum_of_its_products_and_its_attention() -> None:
    found = parts("forward")
    expected = 2 * product(4096, 4096) + 2 * product(1024, 4096) + 2 * product(14336, 4096) + product(4096, 14336)
    shape = AttentionShape(2, 4096, 32, 8, 128, 128)
    assert found.products == pytest.approx(expected)
    assert found.attention == attention_seconds(gpu(), "bf16", shape, "forward", "flash", "typical")


def test_forward_moves_the_bytes_of_its_passes() -> None:
    # per token: norms 4 x 8192, residuals 4 x 8192, rotary 4 x 5120, gated 6 x 14336 = 172032 B x 8192 tokens at
    # 0.79 x 2039 GB/s = 874.9 us, and 2 us for each of 5 kernels: 2 norms, 2 rotations, 1 activation
    assert parts("forward").memory == pytest.approx(884.9e-6, rel=2e-3)


def test_backward_has_two_products_for_each() -> None:
    ratio = parts("backward").products / parts("forward").products
    assert 1.95 < ratio < 2.15


def test_frozen_weights_take_no_gradient() -> None:
    tensors = tuple(replace(tensor, trainable=False) for tensor in KIND.tensors)
    frozen = layer_parts(
        gpu(), replace(KIND, tensors=tensors), 4096, 8192, 4096, "backward", SETTING, "typical"
    )  # fmt: skip
    assert frozen.products < 0.55 * parts("backward").products


def test_recomputation_stops_before_the_last_product() -> None:
    # down projection: 4096 x 14336 of 218 million weights, 27 %
    again, forward = parts("recompute").products, parts("forward").products
    assert forward - again == pytest.approx(product(4096, 14336))
    assert parts("recompute", replace(SETTING, stops_early=False)).products == forward


def test_selective_recomputation_keeps_attention() -> None:
    again = parts("selective")
    assert (again.attention, again.memory) == (0.0, parts("forward").memory)
    assert 0 < again.products < parts("forward").products


def test_core_attention_alone_is_done_again() -> None:
    again = parts("attention")
    assert (again.products, again.memory, again.attention) == (0.0, 0.0, parts("forward").attention)


def test_fp8_speeds_products_up_and_pays_for_copies() -> None:
    wide, narrow = (
        parts("forward", key="h100-sxm-80gb"),
        parts("forward", replace(SETTING, peak="fp8"), key="h100-sxm-80gb"),
    )
    assert narrow.products < 0.6 * wide.products
    assert narrow.memory > wide.memory
    assert narrow.attention == wide.attention


def test_a_scale_per_row_slows_narrow_products() -> None:
    narrow = replace(SETTING, peak="fp8")
    whole, rows = (parts("backward", item, key="h100-sxm-80gb") for item in (narrow, replace(narrow, row_scaled=True)))
    assert rows.products == pytest.approx(whole.products / 0.8)
    assert rows.memory > whole.memory
    assert parts("backward", replace(SETTING, row_scaled=True)) == parts("backward")


def test_small_layers_wait_for_the_host() -> None:
    small = catalog_model("smollm2-135m")
    found = layer_parts(
        gpu("h100-sxm-80gb"), small.layers[0].kind, small.hidden, 256, 256, "forward", Setting(), "typical"
    )  # fmt: skip
    # eager: 7 products, attention, 2 norms of 7 kernels, 2 residuals, 2 rotations of 5, gated 2: 36 of 20 us
    assert found.host == pytest.approx(720e-6)
    assert found.seconds == found.host > found.products + found.attention + found.memory


@pytest.mark.parametrize(("direction", "width"), [("forward", 32 * 128), ("backward", (32 + 2 * 8) * 128)])
def test_a_ring_goes_round_in_calls_of_its_own_tokens(direction: Side, width: int) -> None:
    """Four ranks share 4,096 tokens: four causal calls of 1,024, each added up with 6 bytes for each element."""
    ring = Setting(division=Division(context_parallel=4))
    shape = AttentionShape(1, 1024, 32, 8, 128, 128)
    once = attention_seconds(gpu(), "bf16", shape, direction, "flash", "typical")
    merged = memory_seconds(gpu(), 4 * 6 * 1024 * width, 4, "typical")
    assert parts(direction, ring, 1024).attention == pytest.approx(4 * once + merged)


def test_ring_and_heads_take_equal_work() -> None:
    """Among very many tokens, where a call's own cost and what is added up vanish."""
    ring = Setting(division=Division(context_parallel=4))
    heads = Setting(division=Division(context_parallel=4, context="heads"))
    found = [
        layer_parts(gpu(), KIND, 4096, 2**18, 2**20, "forward", setting, "typical").attention
        for setting in (ring, heads)
    ]
    assert found[0] == pytest.approx(found[1], rel=0.01)


def test_layer_seconds_are_those_of_its_parts() -> None:
    seconds = layer_seconds(gpu(), KIND, 4096, 8192, 4096, "forward", SETTING, "typical")
    assert seconds == parts("forward").seconds


def test_head_is_a_product_in_16_bit_and_the_loss() -> None:
    narrow = head_seconds(gpu("h100-sxm-80gb"), 4096, 128256, 8192, "forward", Setting(peak="fp8"), "typical")
    assert narrow == head_seconds(gpu("h100-sxm-80gb"), 4096, 128256, 8192, "forward", Setting(), "typical")
    # standard against one kernel: 18 B x 8192 x 128256 more at 0.84 x 3350 GB/s = 6.72 ms, and 5 gaps
    one = head_seconds(gpu("h100-sxm-80gb"), 4096, 128256, 8192, "forward", Setting(loss="kernel"), "typical")
    assert narrow - one == pytest.approx(6.72e-3 + 10e-6, rel=5e-3)


def test_odd_vocabulary_slows_the_logits() -> None:
    times = [head_seconds(gpu(), 768, size, 16384, "forward", Setting(), "typical") for size in (50257, 50304)]
    assert times[0] > 1.1 * times[1]


def test_embedding_gradient_is_cleared_first() -> None:
    forward, backward = (
        embedding_seconds(gpu(), 4096, 128256, 8192, side, Setting(), "typical") for side in ("forward", "backward")
    )
    # 2 B x 128256 x 4096 = 1.05 GB at 0.79 x 2039 GB/s alone are 652 us
    assert backward > 652e-6 > forward
