"""What drivers call GPUs, and what the catalog calls them."""

from __future__ import annotations

import pytest

from planner import hardware_catalog
from planner.driver_names import known_gpu, means
from planner.errors import InputError
from planner.units import GIB

GPUS = hardware_catalog.gpus()


# Names as nvidia-smi, rocm-smi and torch print them.
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"), ("NVIDIA H100 PCIe", "h100-pcie-80gb"),
        ("NVIDIA H100 NVL", "h100-nvl-94gb"), ("NVIDIA H200", "h200-sxm-141gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("Tesla V100-SXM2-16GB", "v100-sxm2-16gb"), ("Tesla T4", "t4-16gb"), ("NVIDIA A10G", "a10g-24gb"),
        ("NVIDIA A10", "a10-24gb"), ("NVIDIA L4", "l4-24gb"), ("NVIDIA L40S", "l40s-48gb"),
        ("NVIDIA GeForce RTX 4090", "rtx4090-24gb"), ("NVIDIA GeForce RTX 3090", "rtx3090-24gb"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070ti-super-16gb"), ("NVIDIA RTX A6000", "rtx-a6000-48gb"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada-48gb"), ("NVIDIA GB200", "gb200-192gb"),
        ("AMD Instinct MI300X", "mi300x-192gb"),
    ],
)  # fmt: skip
def test_a_driver_names_the_card(name: str, key: str) -> None:
    assert known_gpu(name, GPUS[key].usable_memory, GPUS.values()).key == key


def test_every_gpu_is_known_by_its_own_key() -> None:
    for key, gpu in GPUS.items():
        assert means(key, gpu)


def test_a_longer_name_is_another_card() -> None:
    assert not means("NVIDIA L40S", GPUS["l4-24gb"])
    assert not means("NVIDIA A100-SXM4-80GB", GPUS["a10-24gb"])
    assert not means("NVIDIA H200", GPUS["h20-96gb"])


def test_an_unknown_card_is_refused() -> None:
    with pytest.raises(InputError) as raised:
        known_gpu("Voodoo 2", 12 * GIB, GPUS.values())
    assert str(raised.value) == "no GPU of the catalog is 'Voodoo 2' with 12.0 GiB"


def test_memory_tells_cards_of_one_name_apart() -> None:
    with pytest.raises(InputError):
        known_gpu("NVIDIA H100 80GB HBM3", 40 * GIB, GPUS.values())
