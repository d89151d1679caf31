"""How a rank reads its memory: by its storages on processors, by the allocator's counters on a GPU."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any, Protocol

from planner.verify.books import books_on, held
from planner.verify.storages import Life, unnamed, watch_gradients, watching

Peaks = tuple[dict[str, int], dict[str, int]]


class Meter(Protocol):
    """Bytes on one rank's device, phase by phase."""

    def watching(self) -> Any:
        """The context in which everything is made that shall be counted."""

    def made(self, engine: Any) -> None:
        """The engine is there: what it holds can be told apart from now on."""

    def enter(self, phase: str) -> None:
        """Begins a phase."""

    def peaks(self, engine: Any) -> Peaks:
        """Bytes by book at the phase's peak, which they add up to, and the most of each book in the phase."""

    def facts(self) -> dict[str, int]:
        """What the allocator and the device say after all, in bytes; empty where there is neither."""

    def name(self) -> str:
        """What the device is called; empty for processors."""


class StorageMeter:
    """Storages of a process on processors. Exact, and slow."""

    def __init__(self) -> None:
        self.life = Life()

    def watching(self) -> Any:
        """The mode that sees every operator."""
        return watching(self.life)

    def made(self, engine: Any) -> None:
        """Gradients are told from now on, and what an update makes is filed as its stage does it."""
        self.life.sub_groups = engine.zero_optimization_stage() == 3
        watch_gradients(self.life, engine.module.parameters())

    def enter(self, phase: str) -> None:
        """Begins a phase."""
        self.life.enter(phase)

    def peaks(self, engine: Any) -> Peaks:
        """After the engine was asked what it holds."""
        if engine is not None:
            self.life.settle(held(engine))
        peak, most = self.life.peaks()
        return dict(peak), dict(most)

    def facts(self) -> dict[str, int]:
        """Nothing: a processor has no allocator of its own."""
        return {}

    def name(self) -> str:
        """Nothing: the ranks share the processors."""
        return ""


class AllocatorMeter:
    """Counters of torch's CUDA allocator. What nothing names goes into one book by phase."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.phase = "load"
        self.sub_groups = False
        self.peak_reserved = 0

    def watching(self) -> Any:
        """Nothing has to be on."""
        return nullcontext()

    def made(self, engine: Any) -> None:
        """What an update makes is filed as its stage does it."""
        self.sub_groups = engine.zero_optimization_stage() == 3

    def enter(self, phase: str) -> None:
        """Begins a phase: the allocator's peaks start anew."""
        import torch

        torch.cuda.synchronize(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        self.phase = phase

    def peaks(self, engine: Any) -> Peaks:
        """As the engine holds them at the end of the phase; the rest of the peak is one book's."""
        import torch

        torch.cuda.synchronize(self.device)
        gc.collect()
        most = torch.cuda.max_memory_allocated(self.device)
        self.peak_reserved = max(self.peak_reserved, torch.cuda.max_memory_reserved(self.device))
        found = books_on(engine, self.device) if engine is not None else {}
        rest = unnamed(self.phase, self.sub_groups)
        found[rest] = found.get(rest, 0) + most - sum(found.values())
        return found, found

    def facts(self) -> dict[str, int]:
        """Reserved by the allocator, used on the device by everything that runs there, and all that it has."""
        import torch

        free, total = torch.cuda.mem_get_info(self.device)
        return {
            "peak_reserved": max(self.peak_reserved, torch.cuda.max_memory_reserved(self.device)),
            "reserved": torch.cuda.memory_reserved(self.device),
            "used": total - free,
            "memory": total,
        }

    def name(self) -> str:
        """As its driver calls it."""
        import torch

        return str(torch.cuda.get_device_name(self.device))


def meter(device: Any) -> Meter:
    """The meter of a device."""
    return StorageMeter() if device.type == "cpu" else AllocatorMeter(device)
