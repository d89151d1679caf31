"""The allocator's meter on a GPU that is not there, and one phase of several ranks."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from planner.verify import meters
from planner.verify.worker import joined


class Allocator:
    """Counters of torch.cuda: the peak of each phase, and a reserve that a reset forgets."""

    def __init__(self) -> None:
        self.allocated, self.reserved = 0, 0

    def synchronize(self, device: Any) -> None: ...

    def reset_peak_memory_stats(self, device: Any) -> None:
        self.allocated, self.reserved = 0, 0

    def max_memory_allocated(self, device: Any) -> int:
        return self.allocated

    def max_memory_reserved(self, device: Any) -> int:
        return self.reserved

    def memory_reserved(self, device: Any) -> int:
        return self.reserved

    def mem_get_info(self, device: Any) -> tuple[int, int]:
        return 40, 100


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    found = Allocator()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=found))
    monkeypatch.setattr(meters, "books_on", lambda engine, device: {"parameters": 10, "optimizer_states": 20})
    return found


def engine(stage: int) -> Any:
    return SimpleNamespace(zero_optimization_stage=lambda: stage)


@pytest.mark.parametrize(("stage", "rest"), [(2, "gradients"), (3, "buffers")])
def test_what_nothing_names_is_filed_by_phase(allocator: Allocator, stage: int, rest: str) -> None:
    """Of 50 bytes 30 are held: 20 are left."""
    meter = meters.meter(SimpleNamespace(type="cuda"))
    meter.made(engine(stage))
    for phase, book in (("forward", "activations"), ("optimizer_step", rest)):
        meter.enter(phase)
        allocator.allocated = 50
        peak, most = meter.peaks(engine(stage))
        assert peak == most == {"parameters": 10, "optimizer_states": 20, book: 20}


def test_reserved_is_the_most_of_all_phases(allocator: Allocator) -> None:
    """A phase that begins resets the counter: 70 in the first, 60 in the second."""
    meter = meters.meter(SimpleNamespace(type="cuda"))
    for reserved in (70, 60):
        meter.enter("forward")
        allocator.reserved = reserved
        meter.peaks(engine(2))
    assert meter.facts() == {"peak_reserved": 70, "reserved": 60, "used": 60, "memory": 100}


def test_a_phase_of_several_ranks() -> None:
    """The peak is one rank's, the most of a book may be another's."""
    first = {"peak": {"parameters": 4, "buffers": 1}, "most": {"parameters": 4, "buffers": 6}}
    second = {"peak": {"parameters": 4, "gradients": 3}, "most": {"parameters": 4, "gradients": 3}}
    assert joined([first, second]) == {
        "peak": second["peak"], "most": {"parameters": 4, "buffers": 6, "gradients": 3},
    }  # fmt: skip
