"""Sweeps without a GPU: a refusal, and the arithmetic on a torch that only pretends."""

from __future__ import annotations

from typing import Any

import pytest

from planner import hardware_catalog
from planner.calibrate.measure import entry_of, known_gpu, measured_entry, sweeps
from planner.errors import InputError
from planner.units import GIB


class Pretended:
    """Whatever is asked of it, it gives itself."""

    def __getattr__(self, name: str) -> Any:
        return self

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self


def test_without_a_gpu_it_says_so() -> None:
    with pytest.raises(InputError) as raised:
        measured_entry()
    assert str(raised.value) in (
        "--measure needs torch; pip install torch",
        "--measure needs a GPU, and torch sees none here; calibrate from RUNS.csv instead",
    )


def test_the_driver_names_the_card() -> None:
    usable = hardware_catalog.gpu("h100-sxm-80gb").usable_memory
    assert known_gpu("NVIDIA H100 80GB HBM3", usable).key.startswith("h100")
    assert known_gpu("NVIDIA A100-SXM4-40GB", hardware_catalog.gpu("a100-sxm-40gb").usable_memory).key.startswith(
        "a100"
    )


def test_an_unknown_card_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        known_gpu("Voodoo 2", 12 * GIB)
    assert str(raised.value) == "no GPU of the catalog is 'Voodoo 2' with 12.0 GiB"


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
    rows = list(sweeps(Pretended(), hardware_catalog.gpu("a100-sxm-80gb"), lambda work: 1e-3))
    assert {row["group"] for row in rows} == {"products", "attention", "memory", "host_link"}
    # 4096³ × 2 = 0.137 TFLOP take somewhat more than 0.137 / 312 s = 0.44 ms
    assert 0.44e-3 < rows[0]["catalog_seconds"] < 0.8e-3
