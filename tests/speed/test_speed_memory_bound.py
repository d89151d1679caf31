"""Bytes over bandwidth, gaps between kernels and launches of the host."""

from __future__ import annotations

import pytest

from planner.hardware import Gpu, Range
from planner.speed.memory_bound import copy_seconds, host_seconds, memory_seconds, update_seconds

GPU = Gpu("one", "One", "nvidia", "ampere", 1, 1, 1e12, {}, {}, Range(0.5, 0.8, 1.0), "pcie4-x16")


def test_bytes_over_the_reached_bandwidth_and_a_gap_for_each_kernel() -> None:
    # 8e9 B at 0.8 TB/s = 10 ms, and 5 kernels of 2 us
    assert memory_seconds(GPU, 8e9, 5, "typical") == pytest.approx(10.01e-3)


def test_low_seconds_come_from_the_high_bandwidth() -> None:
    assert memory_seconds(GPU, 8e9, 0, "low") == pytest.approx(8e-3)
    assert memory_seconds(GPU, 8e9, 0, "high") == pytest.approx(16e-3)


def test_gathers_reach_half() -> None:
    assert copy_seconds(GPU, 8e9, 0, "typical") == pytest.approx(20e-3)


def test_host_launches() -> None:
    # 100 kernels of 20 us where Python runs them, 10 us in backward, 1 us replayed
    assert host_seconds(100, "eager", "forward", "typical") == pytest.approx(2000e-6)
    assert host_seconds(100, "eager", "backward", "typical") == pytest.approx(1000e-6)
    assert host_seconds(100, "replayed", "forward", "typical") == pytest.approx(100e-6)


def test_update_moves_its_bytes_per_parameter() -> None:
    # 1e9 parameters of 28 B at 0.8 TB/s = 35 ms; 290 tensors at 30 a launch and one more are 10.67 launches of 2 us
    assert update_seconds(GPU, 1e9, 28, 290, "typical") == pytest.approx(35e-3 + 10.667 * 2e-6, rel=1e-6)
