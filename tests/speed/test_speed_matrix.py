"""Matrix products: the formula on paper, measured shapes, and how curves move to other cards."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from planner import hardware_catalog
from planner.errors import InputError
from planner.speed.matrix import MatrixCurve, is_aligned, matrix_curve, matrix_seconds, power_share

# 100 TFLOP/s, 1 TB/s, 100 multiprocessors, tiles of 128 x 128, nothing lost to launches or waves.
PLAIN = MatrixCurve(1e14, 0.0, 0.0, 0.0, 1e12, 128, 128, 100, 2, 2)

# (m, n, k, share of peak) as measured with cuBLAS in bf16, github.com/ai-dynamo/aiconfigurator@095f58a51c4c.
MEASURED = {
    "a100-sxm-80gb": [(4096, 4096, 4096, 0.773), (8192, 8192, 8192, 0.819), (32768, 4096, 16384, 0.802),
                      (2048, 8192, 4096, 0.851), (8192, 1024, 4096, 0.822)],
    "h100-sxm-80gb": [(4096, 4096, 4096, 0.797), (8192, 8192, 8192, 0.791), (16384, 4096, 16384, 0.799),
                      (4096, 6144, 8192, 0.811), (8192, 1024, 8192, 0.805)],
}  # fmt: skip


def test_compute_bound_product_takes_its_flop_over_the_rate() -> None:
    # 2 x 8192^3 = 1.0995e12 FLOP at 1e14 = 10.995 ms; traffic 3 x 8192^2 x 2 B = 0.403 ms hardly adds: (0.0366)^4 / 4
    assert PLAIN.seconds(8192, 8192, 8192, 1) == pytest.approx(10.995e-3, rel=1e-3)


def test_memory_bound_product_takes_its_bytes_over_the_bandwidth() -> None:
    # weight 4096 x 4096 x 2 B = 33.55 MB and two vectors of 8 KB at 1 TB/s = 33.57 us; compute 0.34 us
    assert PLAIN.seconds(1, 4096, 4096, 1) == pytest.approx(33.57e-6, rel=1e-3)


def test_part_filled_wave_costs_its_weight() -> None:
    # 1280 x 1408: 10 x 11 = 110 tiles on 100 multiprocessors are 1.1 waves run as 2: 1 + 0.5 (2 / 1.1 - 1) = 1.409
    curve, whole = replace(PLAIN, wave=0.5, bandwidth=1e18), replace(PLAIN, bandwidth=1e18)
    assert curve.seconds(1280, 1408, 512, 1) / whole.seconds(1280, 1408, 512, 1) == pytest.approx(1.409, rel=1e-3)


def test_short_contraction_costs_its_share() -> None:
    # half_inner 100 at a contraction of 400: 1 + 100 / 400
    curve, whole = replace(PLAIN, half_inner=100, bandwidth=1e18), replace(PLAIN, bandwidth=1e18)
    assert curve.seconds(1024, 1024, 400, 1) / whole.seconds(1024, 1024, 400, 1) == pytest.approx(1.25)


def test_batch_is_one_launch() -> None:
    curve = replace(PLAIN, launch=5e-6)
    # 8 products of 1024^3: 8 x 21.47 us = 171.8 us and 5 us once
    assert curve.seconds(1024, 1024, 1024, 8) == pytest.approx(176.8e-6, rel=2e-3)


@pytest.mark.parametrize("key", MEASURED)
def test_short_runs_agree_with_measured_shapes(key: str) -> None:
    gpu = hardware_catalog.gpus()[key]
    burst = replace(matrix_curve(gpu, "bf16"), rate=gpu.peak["bf16"] * {"a": 0.812, "h": 0.789}[key[0]])
    errors = [
        abs(burst.seconds(m, n, k, 1) / (2 * m * n * k / share / gpu.peak["bf16"]) - 1)
        for m, n, k, share in MEASURED[key]
    ]
    assert median(errors) < 0.05
    assert max(errors) < 0.12


@pytest.mark.parametrize("key", hardware_catalog.gpus())
def test_every_gpu_has_a_curve_for_each_of_its_precisions(key: str) -> None:
    gpu = hardware_catalog.gpus()[key]
    for peak, rate in gpu.peak.items():
        share = 2 * 8192**3 / matrix_seconds(gpu, peak, 8192, 8192, 8192, "typical") / rate
        assert 0.2 < share < 0.95, (peak, share)


def test_lower_power_limit_slows_the_same_chip() -> None:
    gpus = hardware_catalog.gpus()
    # 500 of 700 W: sqrt(5 / 7) = 0.845
    assert power_share(gpus["h100-sxm-80gb"]) == 1.0
    assert power_share(gpus["h100-96gb-500w"]) == pytest.approx(0.845, abs=1e-3)


def test_outlooks_are_ordered() -> None:
    gpu = hardware_catalog.gpus()["rtx3090-24gb"]
    low, typical, high = (matrix_seconds(gpu, "bf16", 512, 512, 512, name) for name in ("low", "typical", "high"))
    assert low < typical < high


def test_empty_product_takes_no_time() -> None:
    assert matrix_seconds(hardware_catalog.gpus()["l4-24gb"], "bf16", 0, 512, 512, "typical") == 0.0


def test_rows_that_do_not_fill_sixteen_bytes_are_slower() -> None:
    gpu = hardware_catalog.gpus()["a100-sxm-80gb"]
    assert (is_aligned(108, 4096), is_aligned(104)) == (False, True)
    fast = matrix_seconds(gpu, "bf16", 8192, 8192, 8192, "typical")
    # 0.4 of the rate; the 10.3 us of the launch stay
    slow = matrix_seconds(gpu, "bf16", 8192, 8192, 8192, "typical", aligned=False)
    assert slow / fast == pytest.approx(2.5, rel=1e-2)


def test_unknown_outlook_is_an_input_error() -> None:
    with pytest.raises(InputError) as caught:
        matrix_seconds(hardware_catalog.gpus()["l4-24gb"], "bf16", 1, 1, 1, "best")
    assert caught.value.message == "unknown outlook 'best'"


def test_a_precision_may_sustain_a_share_of_its_own() -> None:
    gpu = hardware_catalog.gpus()["b200-180gb"]
    wide, narrow = matrix_curve(gpu, "bf16"), matrix_curve(gpu, "fp8")
    # 0.682 of 2250 TFLOP/s in short runs, 0.72 of it sustained; 0.678 of 4500 and 0.88
    assert wide.rate == pytest.approx(2250e12 * 0.682 * 0.72)
    assert narrow.rate == pytest.approx(4500e12 * 0.678 * 0.88)
