"""Seconds of work that moves bytes through device memory: norms, activation functions, losses, casts, updates."""

from __future__ import annotations

from planner.hardware import Gpu
from planner.speed.catalog import efficiency, remembered
from planner.units import parse_seconds


def memory_seconds(gpu: Gpu, traffic: float, kernels: float, outlook: str) -> float:
    """Seconds of `kernels` kernels that read and write `traffic` bytes of device memory in all."""
    return gpu.calibration.memory * _seconds(gpu, traffic, kernels, outlook)


def weight_seconds(gpu: Gpu, traffic: float, kernels: float, outlook: str) -> float:
    """The same for weights, their gradients and optimizer states, whose traffic does not grow with the tokens."""
    return gpu.calibration.weights * _seconds(gpu, traffic, kernels, outlook)


def _seconds(gpu: Gpu, traffic: float, kernels: float, outlook: str) -> float:
    """What the catalogs say."""
    return traffic / (gpu.memory_bandwidth * gpu.memory_efficiency.for_time(outlook)) + kernels * _gap(gpu)


def copy_seconds(gpu: Gpu, traffic: float, kernels: float, outlook: str) -> float:
    """The same for kernels that gather or scatter rows, which reach less of the bandwidth."""
    share: float = efficiency("kernels")["gather_share"]["value"]
    return memory_seconds(gpu, traffic / share, kernels, outlook)


def host_seconds(kernels: float, mode: str, direction: str, outlook: str) -> float:
    """Seconds that the host takes to launch `kernels` kernels: `eager`, `compiled` or `replayed` (CUDA graphs).

    A GPU that needs less waits for it.
    """
    return kernels * float(efficiency("kernels")["host"][mode][direction][outlook]) * 1e-6


def update_seconds(gpu: Gpu, parameters: float, bytes_per_parameter: float, tensors: int, outlook: str) -> float:
    """Seconds of an optimizer update of `parameters` in `tensors` tensors whose kernels touch that many bytes each.

    Horizontally fused kernels take many tensors at once; each launch still carries at most a few dozen.
    """
    entry = efficiency("kernels")["update"]
    launches = 1 + tensors / entry["tensors_per_kernel"]["value"]
    return weight_seconds(gpu, parameters * bytes_per_parameter, launches, outlook)


@remembered
def _gap(_: Gpu) -> float:
    """Seconds between two kernels of a stream that the host keeps filled."""
    return parse_seconds(efficiency("kernels")["gap"]["value"])
