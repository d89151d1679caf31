"""Files of coefficients, precisions and optimizers with one thing wrong each, and the whole of what is found."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from planner.catalog_check.catalog import Catalog, Part, parts_of, read_catalog
from planner.catalog_check.coefficients import coefficient_findings
from planner.catalog_check.envelope import envelope
from planner.catalog_check.numerics import optimizer_findings, precision_findings
from planner.catalog_check.techniques import technique_findings
from planner.reading import read_document


def parts(data: Any) -> tuple[Part, ...]:
    """A catalog file of one's own."""
    found, finding = parts_of("own.yaml", read_document("own.yaml", text=yaml.safe_dump(data, sort_keys=False)))
    assert finding is None
    return found


def told(data: Any) -> list[tuple[str, str, str]]:
    """(path, message, hint) of what is wrong with a file of coefficients beside the shipped hardware."""
    others = tuple(part for part in read_catalog().parts if part.kind in ("gpus", "nodes", "links"))
    findings = coefficient_findings(Catalog((*others, *parts(data))), envelope())
    return [(found.path, found.message, found.hint) for found in findings if found.severity == "error"]


SOURCES = {"paper": "a paper, section 1"}
RIGHT: dict[str, Any] = {
    "sources": SOURCES,
    "overlap": {"value": 0.5, "unit": "share", "source": "paper"},
    "range": {"low": 0.9, "typical": 1.0, "high": 1.1, "source": "measured here on 1/2 of the cards"},
}


def test_what_is_right() -> None:
    assert told(RIGHT) == []


@pytest.mark.parametrize(
    ("key", "value", "finding"),
    [
        ("overlap", {"value": 0.5, "source": "paper"},
         ("overlap.value", "a number without unit", "unit: what it counts")),
        ("overlap", {"value": 0.5, "unit": "share"},
         ("overlap", "a coefficient without source", "source: where it is from")),
        ("overlap", {"value": -0.5, "unit": "share", "source": "paper"}, ("overlap.value", "-0.5 is negative", "")),
        ("overlap", {"value": 0.5, "unit": "share", "source": "papr"},
         ("overlap.source", "unknown source 'papr'", "did you mean 'paper'?")),
        ("overlap", {"value": 0.5, "unit": "share", "source": 7}, ("overlap.source", "a source is a text", "")),
        ("overlap", {"value": 0.5, "unit": "share", "source": " "}, ("overlap.source", "a source is a text", "")),
        ("range", {"low": 1.2, "typical": 1.0, "high": 1.1},
         ("range.typical", "1.2, 1.0, 1.1 are not in order", "low, typical, high")),
        ("range", {"low": -1.2, "typical": 1.0, "high": 1.1}, ("range", "-1.2 is negative", "")),
        ("card", {"watts": 400, "peak": "312 GB/s"},
         ("card.peak", "'312 GB/s' is a bandwidth", "a compute rate such as 989 TFLOP/s")),
        ("passes", {"norm": {"forward": [0.5, 1]}},
         ("passes.norm.forward[0]", "0.5 bytes for each element", "0, or 1 and more")),
        ("passes", {"norm": {"forward": [4, 1.5]}}, ("passes.norm.forward[1]", "1.5 kernels", "a whole number")),
        ("shares", [0.5, -0.25], ("shares[1]", "-0.25 is negative", "")),
        ("latency", "5 GB", ("latency", "'5 GB' is a memory size", "a time such as 10 us or 1.5 s")),
        ("gpus", {"a100-sxm-80gb": {"curve": "b"}}, ("gpus.a100-sxm-80gb.curve", "unknown curve 'b'", "one of a")),
        ("gpus", {"a100-sxm-81gb": {"curve": "a"}},
         ("gpus.a100-sxm-81gb", "unknown GPU 'a100-sxm-81gb'", "did you mean 'a100-sxm-80gb'?")),
        ("architectures", {"hopper": "b"}, ("architectures.hopper", "unknown curve 'b'", "one of a")),
        ("curve_of_gpu", {"a100": "a"},
         ("curve_of_gpu.a100", "unknown GPU 'a100'", "")),
    ],
)  # fmt: skip
def test_one_thing_wrong(key: str, value: Any, finding: tuple[str, str, str]) -> None:
    """Beside what is right, and a curve `a`."""
    assert finding in told({**RIGHT, "curves": {"a": {}}, key: value})


def test_a_link_without_a_network_is_told_where_it_is_used() -> None:
    """The shipped nodes have links of many kinds; one network lists one of them."""
    networks = {"networks": {"one": {"links": ["ib-hdr"]}}, "network_of_other": "one", "curves": {}}
    others = tuple(part for part in read_catalog().parts if part.kind in ("gpus", "nodes", "links"))
    found = [
        finding for finding in coefficient_findings(Catalog((*others, *parts(networks))), envelope())
        if finding.path.endswith("nic_link")
    ]  # fmt: skip
    assert {(one.severity, one.file) for one in found} == {("warn", "catalogs/nodes.yaml")}
    assert "no network lists the link ib-ndr: it follows one" in {one.message for one in found}
    assert not any("ib-hdr" in one.message for one in found)


# ── number formats and optimizers ────────────────────────────────────────────────────────────────────────────────────

BF16: dict[str, Any] = {
    "summary": "bf16 with fp32 masters", "dtype": "bf16", "compute_bytes": 2, "gradient_bytes": 2, "master_bytes": 4,
    "peak": "bf16", "sources": {"default": "paper"},
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        ({"compute_bytes": 4}, "compute_bytes", "4 bytes, bf16 has 2"),
        ({"gradient_bytes": 1}, "gradient_bytes", "1 bytes, bf16 has 2"),
        ({"master_bytes": 2}, "master_bytes", "2 bytes, a master copy has 4 or is not there (0)"),
        ({"peak": "fp16"}, "peak", "products of own at the rate of fp16, layers in bf16"),
    ],
)
def test_bytes_of_a_format(changes: dict[str, Any], path: str, message: str) -> None:
    right, wrong = (
        Catalog(parts({"sources": SOURCES, "precisions": {"own": {**BF16, **more}}})) for more in ({}, changes)
    )
    assert list(precision_findings(right)) == []
    assert [(one.path, one.message) for one in precision_findings(wrong)] == [(f"precisions.own.{path}", message)]


ADAM: dict[str, Any] = {
    "summary": "two moments", "state_bytes_per_parameter": 8, "step_flops_per_parameter": 15,
    "step_bytes_per_parameter": 28, "sources": {"default": "paper"},
}  # fmt: skip


def test_states_are_whole_values_and_traffic_is_in_proportion() -> None:
    """12 + 2 · 8 = 28 bytes a step; 7 bytes of states are no fp32 values, and 280 bytes ten times the traffic."""

    def found(**changes: Any) -> list[tuple[str, str]]:
        data = {"sources": SOURCES, "optimizers": {"own": {**ADAM, **changes}}}
        findings = optimizer_findings(Catalog(parts(data)), envelope())
        return [(one.path.rpartition(".")[2], one.message) for one in findings]

    assert found() == []
    assert found(state_bytes_per_parameter=7, step_bytes_per_parameter=26, fixed_state_bytes=True) == []
    assert found(state_bytes_per_parameter=7, step_bytes_per_parameter=26) == [
        ("state_bytes_per_parameter", "7.0 bytes are no whole number of fp32 values")
    ]
    ((path, message),) = found(step_bytes_per_parameter=280)
    assert (path, message.startswith("traffic of a step is 10")) == ("step_bytes_per_parameter", True)


# ── choices ──────────────────────────────────────────────────────────────────────────────────────────────────────────

CHOICE: dict[str, Any] = {"choice": "own", "summary": "a choice", "order": 90, "default": "none"}


@pytest.mark.parametrize(
    ("changes", "path", "message", "hint"),
    [
        ({}, "", "no values", "list them under values, or name a domain"),
        ({"values": {"a": {"summary": "a"}}}, "default", "the default 'none' is no value of own", "one of a"),
        ({"domain": "layers", "values": {"none": {"summary": "a"}}}, "values",
         "values are listed, but the domain is layers", ""),
        ({"domain": "elements"}, "choice", "unknown buffer with a size: 'own'",
         "one of reduce_bucket, prefetch_bucket, live_parameters, sub_group"),
    ],
)  # fmt: skip
def test_values_and_domain_of_a_choice(changes: dict[str, Any], path: str, message: str, hint: str) -> None:
    findings = technique_findings(Catalog(parts({**CHOICE, **changes})))
    assert [(one.severity, one.path, one.message, one.hint) for one in findings] == [("error", path, message, hint)]


def test_defaults_that_exclude_each_other() -> None:
    """`own=none` is the default and needs `other=on`, which is not."""
    own = {**CHOICE, "values": {"none": {"summary": "a", "needs": {"other": ["on"]}}}}
    other = {**CHOICE, "choice": "other", "values": {"none": {"summary": "off"}, "on": {"summary": "on"}}}
    findings = technique_findings(Catalog((*parts(own), *parts(other))))
    assert [(one.severity, one.path, one.message) for one in findings] == [
        ("warn", "default", "the default 'none' excludes other=none")
    ]
