"""The sweeps of `calibrate --measure` on real torch: each call takes what it is given, small and on a processor."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from planner import hardware_catalog
from planner.calibrate import measure

SHIPPED = hardware_catalog.shipped()
A100 = SHIPPED.gpu("a100-sxm-80gb")
MAKERS = ("randn", "empty")


class OnProcessors:
    """torch, with everything that it would make on a GPU or pin for one in plain host memory."""

    def __getattr__(self, name: str) -> Any:
        if name not in MAKERS:
            return getattr(torch, name)

        def make(*size: Any, device: str = "cpu", pin_memory: bool = False, **rest: Any) -> Any:
            return getattr(torch, name)(*size, **rest)

        return make


def test_every_sweep_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of work once; a layer of 16 rows, 32 columns and 64 inside has a result of 16 x 32."""
    monkeypatch.setattr(measure, "PRODUCTS", ((16, 32, 64),))
    monkeypatch.setattr(measure, "ATTENTIONS", ((64, 2, 2),))
    monkeypatch.setattr(measure, "COPIED", (measure.MIB,))
    made: list[Any] = []

    def timer(work: Any) -> float:
        made.append(work())
        return 1e-3

    rows = list(measure.sweeps(OnProcessors(), A100, timer, SHIPPED))
    assert [row["group"] for row in rows] == ["products", "attention", "attention", "memory", "host_link", "host_link"]
    product, forward, backward, *copied = made
    assert product.shape == (16, 32)
    assert [one.shape for one in (forward, *backward)] == [(2, 2, 64, measure.HEAD)] * 4
    assert all(one.shape == (measure.MIB,) for one in copied)


def test_an_update_on_the_host_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's Adam in the place of DeepSpeed's, which would have to be compiled."""
    monkeypatch.setattr(measure, "UPDATED", 1024)
    monkeypatch.setitem(sys.modules, "deepspeed.ops.adam", SimpleNamespace(DeepSpeedCPUAdam=torch.optim.Adam))
    (row,) = measure.host_updates(torch, A100, SHIPPED)
    assert (row["group"], row["what"]) == ("cpu_optimizer", "Adam of 1,024 elements on the host")
    assert row["seconds"] > 0 and row["catalog_seconds"] > 0
