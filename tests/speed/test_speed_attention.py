"""Attention: the formula on paper, and published bars."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner import hardware_catalog
from planner.errors import InputError
from planner.speed.attention import AttentionCurve, AttentionShape, Side, attention_seconds, head_factor

SHAPE = AttentionShape(batch=4, sequence=4096, heads=16, kv_heads=16, head_dim=128, value_dim=128)
CURVE = AttentionCurve(
    rate={"forward": 1e14, "backward": 1e14},
    half_sequence={"forward": 0.0, "backward": 0.0},
    tile={"forward": 0.0, "backward": 0.0},
    work={"forward": 1.0, "backward": 2.5},
    launch=0.0,
    bandwidth=1e30,
    multiprocessors=100,
    unmasked=0.4,
)


def rate(key: str, sequence: int, side: Side, implementation: str, causal: bool = True) -> float:
    """TFLOP/s at hidden 2048 and 16384 tokens, as the bars count them."""
    shape = AttentionShape(16384 / sequence, sequence, 16, 16, 128, 128, causal)
    flop = 4 * shape.batch * 16 * 128 * shape.pairs * (1.0 if side == "forward" else 2.5)
    return flop / attention_seconds(hardware_catalog.gpus()[key], "bf16", shape, side, implementation, "typical") / 1e12


def both(key: str, sequence: int, implementation: str) -> float:
    """TFLOP/s of forward and backward together: 3.5 times the forward work."""
    forward, backward = rate(key, sequence, "forward", implementation), rate(key, sequence, "backward", implementation)
    return 3.5 / (1 / forward + 2.5 / backward)


def test_causal_pairs_are_half_of_the_square() -> None:
    assert SHAPE.pairs == 4096 * 4096 / 2
    assert replace(SHAPE, causal=False).pairs == 4096 * 4096


def test_window_limits_the_pairs() -> None:
    # 4096 x 1024 less the corner of the first window, 1024 x 1024 / 2
    assert replace(SHAPE, window=1024).pairs == 4096 * 1024 - 1024 * 1024 / 2


def test_work_over_the_rate() -> None:
    # 2 x (128 + 128) x 4096^2 / 2 x 4 x 16 = 2.749e11 FLOP at 1e14 = 2.749 ms; backward 2.5 times
    assert CURVE.seconds(SHAPE, "forward") == pytest.approx(2.749e-3, rel=1e-3)
    assert CURVE.seconds(SHAPE, "backward") == pytest.approx(6.872e-3, rel=1e-3)


def test_heads_are_padded_to_32() -> None:
    narrow = replace(SHAPE, head_dim=100, value_dim=100)
    assert CURVE.seconds(narrow, "forward") == CURVE.seconds(SHAPE, "forward")


def test_few_heads_wait_for_the_longest_row() -> None:
    curve = replace(CURVE, tile={"forward": 128.0, "backward": 0.0})
    # one head: work 512 x 4096^2 / 2 = 4.29e9; row block 512 x 4096 x 128 x 100 = 2.68e10 on one of 100 multiprocessors
    single = replace(SHAPE, batch=1, heads=1)
    assert curve.seconds(single, "forward") == pytest.approx(268.8e-6, rel=1e-2)


@pytest.mark.parametrize(("sequence", "measured"), [(1024, 133), (2048, 155), (4096, 173), (8192, 182), (16384, 189)])
def test_a100_bars(sequence: int, measured: float) -> None:
    assert both("a100-sxm-80gb", sequence, "flash") == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(("sequence", "measured"), [(1024, 221), (2048, 265), (4096, 294), (8192, 308), (16384, 328)])
def test_h100_bars_of_the_second_flash_attention(sequence: int, measured: float) -> None:
    assert both("h100-sxm-80gb", sequence, "flash") == pytest.approx(measured, rel=0.08)


@pytest.mark.parametrize(("sequence", "measured"), [(2048, 521), (4096, 579), (8192, 602), (16384, 616)])
def test_h100_bars_of_the_third(sequence: int, measured: float) -> None:
    assert rate("h100-sxm-80gb", sequence, "forward", "flash3") == pytest.approx(measured, rel=0.1)


def test_first_flash_attention_takes_twice_the_time() -> None:
    second, first = both("a100-sxm-80gb", 16384, "flash"), both("a100-sxm-80gb", 16384, "flash1")
    assert second / first == pytest.approx(2.0, rel=0.02)


def test_written_out_scores_cost_more_than_flash() -> None:
    gpu = hardware_catalog.gpus()["a100-sxm-80gb"]
    times = {
        name: attention_seconds(gpu, "bf16", SHAPE, "forward", name, "typical")
        for name in ("flash", "fused-softmax", "eager")
    }
    assert times["flash"] < times["fused-softmax"] < times["eager"]


def test_attention_stays_in_16_bit_under_fp8() -> None:
    gpu = hardware_catalog.gpus()["h100-sxm-80gb"]
    times = {peak: attention_seconds(gpu, peak, SHAPE, "forward", "flash", "typical") for peak in ("bf16", "fp8")}
    assert times["fp8"] == times["bf16"]


def test_head_sizes_between_two_of_the_catalog() -> None:
    # 64: 0.88 and 128: 1.0, half way
    assert head_factor(96) == pytest.approx(0.94)
    assert (head_factor(16), head_factor(512)) == (0.3, 1.0)


def test_unknown_implementation_is_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        attention_seconds(hardware_catalog.gpus()["l4-24gb"], "bf16", SHAPE, "forward", "magic", "typical")
    assert caught.value.message == "unknown attention 'magic'"


def test_adding_gradients_in_a_fixed_order_slows_backward_alone() -> None:
    flash, fixed = (rate("a100-sxm-80gb", 8192, "backward", name) for name in ("flash", "deterministic"))
    assert fixed / flash == pytest.approx(0.7, rel=0.01)  # the rest is the launch
    assert rate("a100-sxm-80gb", 8192, "forward", "deterministic") == rate("a100-sxm-80gb", 8192, "forward", "flash")
