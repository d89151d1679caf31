"""The efficiency catalogs hold together: sources resolve, curves and GPUs exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from planner import hardware_catalog
from planner.speed.catalog import curve_name, efficiency, remembered

FILES = ("matrix", "attention", "kernels")


def cited(node: Any) -> Iterator[str]:
    """Every `source` of a catalog."""
    if isinstance(node, Mapping):
        if isinstance(node.get("source"), str):
            yield node["source"]
        for value in node.values():
            yield from cited(value)


@pytest.mark.parametrize("name", FILES)
def test_short_sources_stand_in_the_list(name: str) -> None:
    catalog = efficiency(name)
    missing = {source for source in cited(catalog) if " " not in source and source not in catalog["sources"]}
    assert not missing
    assert set(catalog["sources"]) <= set(cited(catalog))


@pytest.mark.parametrize("name", ("matrix", "attention"))
def test_gpus_and_curves_exist(name: str) -> None:
    catalog = efficiency(name)
    assert set(catalog["gpus"]) <= set(hardware_catalog.gpus())
    named = {entry["curve"] for entry in catalog["gpus"].values()} | set(catalog["architectures"].values())
    assert named <= set(catalog["curves"])
    assert "any" in catalog["curves"]


def test_an_unknown_gpu_follows_its_architecture_and_else_any() -> None:
    gpu, catalog = hardware_catalog.gpus()["h100-sxm-80gb"], efficiency("matrix")
    assert curve_name(replace(gpu, key="h300"), catalog) == "h100"
    assert curve_name(replace(gpu, key="h300", architecture="rubin"), catalog) == "any"


def test_curves_are_made_once_per_gpu() -> None:
    calls: list[str] = []
    build = remembered(lambda gpu, name: calls.append(name) or name)
    gpu = hardware_catalog.gpus()["l4-24gb"]
    assert [build(gpu, "a"), build(gpu, "a"), build(gpu, "b")] == ["a", "a", "b"]
    assert calls == ["a", "b"]
