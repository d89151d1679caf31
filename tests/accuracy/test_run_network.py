"""The network out of free text."""

from __future__ import annotations

import pytest

from planner.accuracy.run_log import Run
from planner.accuracy.run_network import network_gigabits, network_link


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVLink/NVSwitch; 8x200Gb HDR IB per node", 1600.0),  # 8 × 200
        ("4x100Gb RoCE", 400.0),
        ("RoCE 1600Gbps/node", 1600.0),
        ("NVLink; RDMA 400Gb/s per GPU", 3200.0),  # 8 GPUs × 400
        ("3.2 Tbit/s per node", 3200.0),
        ("NVLink 600GB/s per GPU", None),
        ("NVLink", None),
        (None, None),
    ],
)
def test_gigabits_of_a_node(text: str | None, expected: float | None) -> None:
    assert network_gigabits(Run(line=2, id="a-1", source="a", interconnect=text), 8) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4x100Gb RoCE", "roce-200"),
        ("NVLink/NVSwitch; 8x200Gb HDR IB per node", "ib-hdr"),
        ("EFA 3200 Gbit/s per node", "efa-v2"),
        ("4x100Gb Omni-Path", "omni-path-4x100"),
        ("25 Gbit/s per node Ethernet", "ethernet-100gbe"),
        ("NVLink; RDMA 400Gb/s per GPU", None),
        (None, None),
    ],
)
def test_kind_of_a_network(text: str | None, expected: str | None) -> None:
    assert network_link(Run(line=2, id="a-1", source="a", interconnect=text)) == expected
