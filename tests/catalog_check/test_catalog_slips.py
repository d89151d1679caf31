"""Slips over shipped entries: the shipped catalog has no finding, and with one value written wrongly it has."""

from __future__ import annotations

import pytest
from slips import HARDWARE, KINDS, Slip, found, leaves, sample, scaled, shipped

from planner.catalog_check.checking import check_catalog
from planner.document_builder import Path

# A file of each kind, and values of it that a slip by any of these kinds must not leave plausible.
VALUES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpus.yaml", ("gpus", "h100-sxm-80gb", "memory_bandwidth")),
    ("gpus.yaml", ("gpus", "h100-sxm-80gb", "peak", "bf16")),
    ("gpus.yaml", ("gpus", "a10g-24gb", "nominal_memory")),
    ("gpus.yaml", ("gpus", "rtx4090-24gb", "usable_memory")),
    ("gpus.yaml", ("gpus", "mi300x-192gb", "scale_up_bandwidth")),
    ("gpus.yaml", ("gpus", "a100-sxm-80gb", "price_per_hour")),
    ("nodes.yaml", ("nodes", "dgx-a100-80gb", "host_memory")),
    ("nodes.yaml", ("nodes", "aws-p5.48xlarge", "host_memory_bandwidth")),
    ("nodes.yaml", ("nodes", "dgx-h100", "nic_bandwidth")),
    ("nodes.yaml", ("nodes", "azure-nd96isr-h100-v5", "price_per_hour")),
    ("links.yaml", ("links", "ib-ndr", "bandwidth")),
    ("links.yaml", ("links", "nvlink4", "latency")),
)
NUMBERS = tuple(kind for kind in KINDS if kind != "name")
NAMES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("gpus.yaml", ("gpus", "h100-sxm-80gb", "efficiency")),
    ("gpus.yaml", ("gpus", "h100-sxm-80gb", "host_link")),
    ("gpus.yaml", ("gpus", "h100-sxm-80gb", "architecture")),
    ("gpus.yaml", ("gpus", "h100-sxm-80gb", "sources", "peak")),
    ("nodes.yaml", ("nodes", "dgx-h100", "gpu")),
    ("nodes.yaml", ("nodes", "dgx-h100", "nic_link")),
    ("optimizers.yaml", ("optimizers", "adamw", "sources", "default")),
    ("precisions.yaml", ("precisions", "fp8", "peak")),
)


def slip(kind: str, file: str, path: Path) -> Slip:
    """The slip of a kind at a value of a shipped file."""
    part = next(part for part in shipped(*HARDWARE) if part.name == file)
    value = dict(leaves(part.document.data))[path]
    return Slip(kind, part, path, KINDS[kind](path, value))


def test_the_shipped_catalog_has_no_finding() -> None:
    assert check_catalog().findings == ()


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(("file", "path"), VALUES, ids=lambda item: ".".join(item) if isinstance(item, tuple) else "")
def test_a_figure_written_wrongly_is_found(kind: str, file: str, path: tuple[str, ...]) -> None:
    """12 values x 6 kinds of slip."""
    findings = found(slip(kind, file, path))
    assert any(path[-1] in finding.path or path[-2] in finding.path for finding in findings), findings


@pytest.mark.parametrize(("file", "path"), NAMES, ids=lambda item: ".".join(item) if isinstance(item, tuple) else "")
def test_a_name_written_wrongly_is_found(file: str, path: tuple[str, ...]) -> None:
    assert found(slip("name", file, path)) != []


@pytest.mark.parametrize("precision", ["tf32", "fp16", "bf16", "fp8"])
def test_a_sparse_rate_given_as_dense_is_found(precision: str) -> None:
    """Twice the dense rate of one precision, the others as they are."""
    part = next(part for part in shipped("gpus") if part.name == "gpus.yaml")
    path = ("gpus", "h100-sxm-80gb", "peak", precision)
    value = scaled(dict(leaves(part.document.data))[path], 2)
    assert any("peak" in finding.path for finding in found(Slip("sparse", part, path, value)))


def test_nearly_every_random_slip_over_hardware_is_found() -> None:
    """docs/commands.md states the shares over 300 slips; 35 of them here, at most 2 unseen."""
    assert sum(found(one) == [] for one in sample(35, 5, shipped(*HARDWARE))) <= 2
