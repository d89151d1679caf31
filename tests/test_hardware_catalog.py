"""The shipped catalogs: every number has a source and a sane size, names fit together, mistakes are named."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

import pytest
from pydantic import BaseModel, ValidationError

from planner import hardware_catalog as catalog
from planner.errors import InputError
from planner.hardware import Nvme, Range
from planner.units import GIB, KIB, MIB

REQUIRED_GPUS = (
    "v100-sxm2-16gb",
    "v100-sxm2-32gb",
    "t4-16gb",
    "a10g-24gb",
    "l4-24gb",
    "l40s-48gb",
    "a100-sxm-40gb",
    "a100-sxm-80gb",
    "a100-pcie-40gb",
    "a100-pcie-80gb",
    "a800-sxm-80gb",
    "h100-sxm-80gb",
    "h100-pcie-80gb",
    "h100-nvl-94gb",
    "h200-sxm-141gb",
    "b200-180gb",
    "b300-288gb",
    "gb200-192gb",
    "gb300-288gb",
    "mi250x-128gb",
    "mi300x-192gb",
    "mi325x-256gb",
    "rtx3090-24gb",
    "rtx4090-24gb",
    "rtx5090-32gb",
    "rtx-a6000-48gb",
    "rtx-6000-ada-48gb",
    "rtx4070ti-super-16gb",
    "h100-96gb-500w",
)

# Least and greatest sane value of each field; a slip by 1000 (or 1024, or 8) in a unit falls outside.
GPU_RANGES = {
    "nominal_memory": (16 * GIB, 300 * GIB),
    "usable_memory": (14 * GIB, 290 * GIB),
    "memory_bandwidth": (300e9, 8.1e12),
    "scale_up_bandwidth": (50e9, 900e9),
    "scale_up_gpus": (2, 72),
    "power_watts": (70, 1400),
    "price_per_hour": (0.5, 40),
}
PEAK_RANGES = {
    "fp32": (8e12, 164e12),
    "tf32": (30e12, 1250e12),
    "fp16": (60e12, 2500e12),
    "bf16": (60e12, 2500e12),
    "fp8": (170e12, 5000e12),
    "fp4": (1600e12, 15e15),
}
LINK_RANGES = {"bandwidth": (1.2e9, 900e9), "latency": (5e-6, 1e-3)}
NODE_RANGES = {
    "gpus": (1, 72),
    "host_memory_bandwidth": (15e9, 1.9e13),
    "host_memory": (32 * GIB, 17e12),
    "gpus_per_host_link": (1, 2),
    "nics": (0, 72),
    "nic_bandwidth": (0, 100e9),
    "cpu_cores": (4, 2592),
    "price_per_hour": (1, 150),
}


def numbers(value: object, field: str = "") -> Iterator[tuple[str, float]]:
    """Every number in an entry with the dotted path of its field; a range counts as one field."""
    if isinstance(value, bool) or value is None:
        return
    if isinstance(value, (int, float)):
        yield field, value
    elif isinstance(value, Range):
        yield from ((field, number) for number in (value.low, value.typical, value.high))
    elif isinstance(value, (BaseModel, Mapping)):
        names = type(value).model_fields if isinstance(value, BaseModel) else value
        for name in names:
            inner = getattr(value, name) if isinstance(value, BaseModel) else value[name]
            yield from numbers(inner, f"{field}.{name}" if field else name)


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_every_number_has_a_source(kind: str) -> None:
    for key, entry in catalog.entries(kind).items():
        for field, number in numbers(entry):
            assert math.isfinite(number)
            assert len(catalog.source(kind, key, field)) > 10, (key, field)


@pytest.mark.parametrize("kind", catalog.KINDS)
def test_every_named_source_is_listed_and_used(kind: str) -> None:
    entries = catalog.entries(kind)
    for key, entry in entries.items():
        fields = {field for field, _ in numbers(entry)}
        for field, name in entry.sources.items():
            assert isinstance(catalog.is_weak(kind, name), bool)
            if field != "default":
                assert any(known == field or known.startswith(f"{field}.") for known in fields), (key, field)


def test_every_listed_source_is_used() -> None:
    for kind in catalog.KINDS:
        listed = set(catalog.source_names(kind))
        files = ("gpus", "efficiencies") if kind in ("gpus", "efficiencies") else (kind,)
        used = {name for other in files for entry in catalog.entries(other).values() for name in entry.sources.values()}
        assert listed == used, kind


def test_an_assumption_is_a_weak_source() -> None:
    for kind in catalog.KINDS:
        for key, entry in catalog.entries(kind).items():
            for field, name in entry.sources.items():
                text = catalog.source(kind, key, "" if field == "default" else field)
                assert catalog.is_weak(kind, name) or not text.startswith("assumption"), name


def test_required_gpus_are_present() -> None:
    assert set(REQUIRED_GPUS) <= set(catalog.gpus())


@pytest.mark.parametrize("key", catalog.gpus())
def test_gpu_magnitudes(key: str) -> None:
    gpu = catalog.gpu(key)
    for field, (least, most) in GPU_RANGES.items():
        value = getattr(gpu, field)
        assert value is None or least <= value <= most, field
    for precision, rate in gpu.peak.items():
        least, most = PEAK_RANGES[precision]
        assert least <= rate <= most, precision
    # the driver keeps up to a tenth of the memory on the card, ECC of GDDR included
    assert 0.9 <= gpu.usable_memory / gpu.nominal_memory <= 1.0
    # FLOP per byte of memory traffic: H20 148e12 / 4e12 = 37, L40S 362e12 / 864e9 = 419
    assert 30 <= gpu.peak["fp16"] / gpu.memory_bandwidth <= 450


@pytest.mark.parametrize("key", catalog.gpus())
def test_gpu_rates_fit_together(key: str) -> None:
    gpu = catalog.gpu(key)
    assert set(gpu.matrix_efficiency) == set(gpu.peak)
    assert gpu.host_link in catalog.links()
    assert (gpu.scale_up_link is None) == (gpu.scale_up_bandwidth is None) == (gpu.scale_up_gpus is None)
    if gpu.scale_up_link is not None and gpu.scale_up_bandwidth is not None:
        assert gpu.scale_up_bandwidth <= catalog.link(gpu.scale_up_link).bandwidth
    if "bf16" in gpu.peak:
        assert gpu.peak["bf16"] == gpu.peak["fp16"]
    if "fp8" in gpu.peak:
        # fp8 runs at twice the bf16 rate, rounded differently by the vendors
        assert gpu.peak["fp8"] / gpu.peak["bf16"] == pytest.approx(2, rel=0.02)
    # only GPUs from Ampere and CDNA 2 on have bf16
    assert ("bf16" in gpu.peak) == (gpu.architecture not in ("volta", "turing"))


def test_gpu_values_by_hand() -> None:
    gpu = catalog.gpu("a100-sxm-80gb")
    # 79.15 GiB, 2039 GB/s, 600 GB/s both ways over NVLink
    assert gpu.usable_memory == round(79.15 * GIB)
    assert gpu.memory_bandwidth == 2039e9
    assert gpu.scale_up_bandwidth == 300e9
    assert gpu.peak == {"fp32": 19.5e12, "tf32": 156e12, "fp16": 312e12, "bf16": 312e12}
    # measured median 0.802 of the peak, sustained share 0.95
    assert gpu.matrix_efficiency["bf16"].typical == pytest.approx(0.802 * 0.95, abs=5e-4)
    assert gpu.assumptions == ()


def test_reduced_links_are_on_the_gpu() -> None:
    # 400 GB/s both ways instead of 600 and 900
    assert catalog.gpu("a800-sxm-80gb").scale_up_bandwidth == 200e9
    assert catalog.gpu("h800-sxm-80gb").scale_up_bandwidth == 200e9


def test_efficiency_by_rule_is_an_assumption() -> None:
    note = "matrix and memory efficiency follow a rule (tensor-core-rule), not a measurement"
    assert catalog.gpu("rtx4090-24gb").assumptions == (note,)


def test_mi250x_is_one_die() -> None:
    gpu = catalog.gpu("mi250x-128gb")
    assert gpu.nominal_memory == 64 * GIB
    assert gpu.name == "AMD Instinct MI250X, one of its two 64 GB dies (what one process sees)"


@pytest.mark.parametrize("key", catalog.links())
def test_link_magnitudes(key: str) -> None:
    link = catalog.link(key)
    for field, (least, most) in LINK_RANGES.items():
        assert least <= getattr(link, field) <= most, field
    assert set(link.efficiency) <= {*catalog.COLLECTIVES, "host_copy"}
    assert set(link.efficiency) >= set(catalog.COLLECTIVES) or key == "nvlink-c2c"
    assert "host_copy" in link.efficiency or not key.startswith(("pcie", "nvlink-c2c"))


@pytest.mark.parametrize("kind", ["efficiencies", "links"])
def test_shares_are_ordered(kind: str) -> None:
    for key, entry in catalog.entries(kind).items():
        values = [number for field, number in numbers(entry) if field.startswith(("efficiency", "matrix", "memory"))]
        for low, typical, high in zip(values[::3], values[1::3], values[2::3], strict=True):
            assert 0 < low <= typical <= high <= 1.1, key


def test_shares_out_of_order_are_refused() -> None:
    entry = {"low": 0.5, "typical": 0.4, "high": 0.6}
    with pytest.raises(ValidationError, match="0.5, 0.4, 0.6 are not in order"):
        catalog.EfficiencyEntry.model_validate({"basis": "rule", "matrix": {}, "memory": entry, "sources": {}})


@pytest.mark.parametrize("key", catalog.nodes())
def test_node_magnitudes(key: str) -> None:
    node = catalog.node(key)
    for field, (least, most) in NODE_RANGES.items():
        value = getattr(node, field)
        assert value is None or least <= value <= most, field
    if node.nvme is not None:
        assert 400e9 <= node.nvme.capacity <= 1e15
        assert 1e9 <= node.nvme.read <= 200e9
        assert node.nvme.write <= node.nvme.read


@pytest.mark.parametrize("key", catalog.nodes())
def test_node_names_exist(key: str) -> None:
    node = catalog.node(key)
    gpu = catalog.gpu(node.gpu)
    for name in (node.host_link, node.scale_up_link, node.nic_link):
        assert name is None or name in catalog.links()
    assert node.host_link == gpu.host_link
    assert node.scale_up_link in (None, gpu.scale_up_link)
    assert (node.scale_up_link is not None) == (node.topology in ("switch", "mesh", "pairs"))
    assert (node.topology == "single") == (node.gpus == 1)
    assert (node.nics > 0) == (node.nic_link is not None) == (node.nic_bandwidth > 0)
    if node.nic_link is not None:
        # a slice of a machine gets less than the port, never more
        assert node.nic_bandwidth <= catalog.link(node.nic_link).bandwidth


def test_node_values_by_hand() -> None:
    node = catalog.node("azure-nd96isr-h200-v5")
    # eight ports of 400 Gbit/s are 50 GB/s each; 2 sockets x 8 channels x 38.4 GB/s
    assert (node.nics, node.nic_bandwidth) == (8, 50e9)
    assert node.host_memory_bandwidth == pytest.approx(2 * 8 * 38.4e9)
    assert node.host_memory == 1850 * KIB * MIB
    assert node.nvme == Nvme(28_000 * GIB, 48e9, 26e9)
    assert node.price_per_hour == 84.8


def test_price_of_a_gpu_is_that_of_its_cheapest_node() -> None:
    for key, gpu in catalog.gpus().items():
        nodes = [node for node in catalog.nodes().values() if node.gpu == key and node.price_per_hour is not None]
        if not nodes:
            assert gpu.price_per_hour is None, key
            continue
        cheapest = min((node.price_per_hour or 0.0) / node.gpus for node in nodes)
        assert gpu.price_per_hour == pytest.approx(cheapest, rel=1e-4), key


def test_precisions() -> None:
    # fp32 needs no master copy; 16-bit parameters have one of 4 bytes
    found = {
        key: (
            precision.compute_bytes,
            precision.gradient_bytes,
            precision.master_bytes,
            precision.dtype,
            precision.peak,
        )
        for key, precision in catalog.precisions().items()
    }
    assert found == {
        "fp32": (4, 4, 0, "fp32", "fp32"),
        "fp16": (2, 2, 4, "fp16", "fp16"),
        "bf16": (2, 2, 4, "bf16", "bf16"),
        "fp8": (2, 2, 4, "bf16", "fp8"),
        "pure-bf16": (2, 2, 0, "bf16", "bf16"),
    }


def test_optimizer_states() -> None:
    states = {key: optimizer.state_bytes_per_parameter for key, optimizer in catalog.optimizers().items()}
    # two fp32 moments 8; 8-bit 2 x (1 + 4/256) = 2.03; 4-bit 2 x (0.5 + 4/128) = 1.0625; one moment 4
    assert states == {
        "adamw": 8,
        "adam": 8,
        "adamw-foreach": 8,
        "adamw-bf16-states": 4,
        "adamw-8bit": 2.032,
        "adamw-4bit": 1.0625,
        "paged-adamw": 8,
        "paged-adamw-8bit": 2.032,
        "adafactor": 0.012,
        "lion": 4,
        "lion-8bit": 1.016,
        "muon": 4,
        "sgd": 0,
        "sgd-momentum": 4,
    }


def test_optimizer_traffic_by_hand() -> None:
    # AdamW reads parameter, gradient and two moments (16 bytes) and writes all but the gradient (12)
    assert catalog.optimizer("adamw").step_bytes_per_parameter == 16 + 12
    # SGD reads parameter and gradient (8) and writes the parameter (4)
    assert catalog.optimizer("sgd").step_bytes_per_parameter == 8 + 4
    assert [key for key, optimizer in catalog.optimizers().items() if optimizer.paged] == [
        "paged-adamw",
        "paged-adamw-8bit",
    ]


@pytest.mark.parametrize(
    ("find", "message"),
    [
        (lambda: catalog.gpu("h100-sxm-80g"), "unknown GPU 'h100-sxm-80g'; did you mean 'h100-sxm-80gb'?"),
        (lambda: catalog.gpu("rtx 4090"), "unknown GPU 'rtx 4090'; did you mean 'rtx4090-24gb'?"),
        (
            lambda: catalog.gpu("a100"),
            "unknown GPU 'a100'; did you mean one of a100-sxm-40gb, a100-sxm-80gb, a100-pcie-40gb, a100-pcie-80gb?",
        ),
        (lambda: catalog.gpu("zzz"), "unknown GPU 'zzz'; `planner catalog list` names them"),
        (lambda: catalog.gpu(""), "unknown GPU ''; `planner catalog list` names them"),
        (lambda: catalog.node("dgx-h1000"), "unknown node 'dgx-h1000'; did you mean 'dgx-h100'?"),
        (lambda: catalog.link("nvlink9"), "unknown link 'nvlink9'; did you mean 'nvlink5'?"),
        (lambda: catalog.precision("int8"), "unknown precision 'int8'; one of fp32, fp16, bf16, fp8, pure-bf16"),
        (lambda: catalog.optimizer("adamw8bit"), "unknown optimizer 'adamw8bit'; did you mean 'adamw-8bit'?"),
        (lambda: catalog.entries("gpu"), "unknown kind of catalog entry 'gpu'; did you mean 'gpus'?"),
    ],
)
def test_unknown_names(find: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as failure:
        find()
    assert str(failure.value) == message


def test_source_of_one_number() -> None:
    # peak.fp4 has a source of its own, peak another, and the default stands for the rest
    assert "b300_sxm.yaml" in catalog.source("gpus", "b300-288gb", "peak.fp4")
    assert "compute/accelerator" in catalog.source("gpus", "b300-288gb", "peak.bf16")
    assert "b300_sxm.yaml" in catalog.source("gpus", "b300-288gb", "memory_bandwidth")
