"""Sweeps without a GPU: a refusal, and the arithmetic on a torch that only pretends."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from planner import hardware_catalog
from planner.calibrate import measure
from planner.calibrate.measure import entry_of, host_updates, measured_entry, sweeps
from planner.errors import InputError

SHIPPED = hardware_catalog.shipped()


class Pretended:
    """Whatever is asked of it, it gives itself; as a context it does nothing."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *_: object) -> None: ...


class OneGpu(Pretended):
    """A torch that sees one A100; whatever is timed on it fails with `failure`."""

    def __init__(self, failure: str) -> None:
        self.failure = failure
        self.multiprocessing = SimpleNamespace(ProcessRaisedException=ChildProcessError)
        card = SimpleNamespace(name="NVIDIA A100-SXM4-80GB", total_memory=SHIPPED.gpu("a100-sxm-80gb").usable_memory)
        self.cuda = SimpleNamespace(
            is_available=lambda: True, get_device_properties=lambda _: card, Event=self.fails, device_count=lambda: 1
        )

    def fails(self, **_: object) -> Any:
        raise RuntimeError(self.failure)


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(InputError) as raised:
        measured_entry(SHIPPED)
    assert str(raised.value) in (
        "--measure needs torch; pip install torch",
        "--measure needs a GPU, and torch sees none here; calibrate from RUNS.csv instead",
    )


def test_multiples_are_geometric_means_over_the_catalogs() -> None:
    rows = [
        {"group": "products", "what": "a", "seconds": 2.0, "catalog_seconds": 1.0},
        {"group": "products", "what": "b", "seconds": 1.0, "catalog_seconds": 2.0},
        {"group": "memory", "what": "c", "seconds": 3.0, "catalog_seconds": 2.0},
    ]
    # (2 × 1/2)^(1/2) = 1 with ln 2 / √2 = 0.4901
    found = entry_of("a100-sxm-80gb", rows)
    assert {name: (figure.times, figure.error) for name, figure in found.time.items()} == {
        "products": (1.0, 0.4901),
        "memory": (1.5, 0.0),
    }
    assert len(found.measured) == 3


def test_each_shape_is_held_against_the_catalog() -> None:
    rows = list(sweeps(Pretended(), hardware_catalog.gpu("a100-sxm-80gb"), lambda work: 1e-3, SHIPPED))
    assert {row["group"] for row in rows} == {"products", "attention", "memory", "host_link"}
    assert [row["what"] for row in rows if row["group"] == "host_link"] == [
        "256 MiB to the GPU", "256 MiB from the GPU", "1024 MiB to the GPU", "1024 MiB from the GPU",
    ]  # fmt: skip
    back, forth = ([r["catalog_seconds"] for r in rows if r["what"].endswith(s)] for s in ("backward", "forward"))
    assert all(one > other for one, other in zip(back, forth, strict=True))
    # 4096³ × 2 = 0.137 TFLOP take somewhat more than 0.137 / 312 s = 0.44 ms
    assert 0.44e-3 < rows[0]["catalog_seconds"] < 0.8e-3


def test_a_gpu_without_bf16_is_timed_in_fp16() -> None:
    rows = list(sweeps(Pretended(), hardware_catalog.gpu("v100-sxm2-32gb"), lambda work: 1e-3, SHIPPED))
    assert {row["what"].rpartition(" ")[2] for row in rows if row["group"] == "products"} == {"fp16"}


def test_a_gpu_that_fails_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = OneGpu("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a total capacity of 79.15 GiB")
    monkeypatch.setattr(measure, "_torch", lambda: torch)
    with pytest.raises(InputError) as raised:
        measured_entry(SHIPPED)
    assert str(raised.value) == (
        "--measure: the GPU failed while it was timed: CUDA out of memory. Tried to allocate 2.00 GiB.; "
        "see whether something else runs on it"
    )


def test_the_host_is_left_out_without_deepspeed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deepspeed.ops.adam", None)
    assert list(host_updates(Pretended(), SHIPPED.gpu("a100-sxm-80gb"), SHIPPED)) == []
