"""The network of a run, out of the free text that its log has for it."""

from __future__ import annotations

import re

from planner.accuracy.run_log import Run

_RATE = r"([0-9]+(?:\.[0-9]+)?)\s*(G|T)(?:b|bit)(?:ps|/s)?"
_PORTS = re.compile(rf"([0-9]+)\s*[xX×]\s*{_RATE}")
_PER_NODE = re.compile(rf"{_RATE}\s*(?:/|per )\s*node")
_PER_GPU = re.compile(rf"{_RATE}\s*(?:/|per )\s*(?:GPU|gpu)")


# Words of a log by the link of the catalog that behaves as they say; the first that matches counts.
_LINKS = (
    (re.compile(r"RoCE"), "roce-200"),
    (re.compile(r"\b(IB|InfiniBand|HDR|NDR|EDR)\b"), "ib-hdr"),
    (re.compile(r"\bEFA"), "efa-v2"),
    (re.compile(r"Omni-?Path"), "omni-path-4x100"),
    (re.compile(r"Ethernet|\bTCP\b"), "ethernet-100gbe"),
)


def network_link(run: Run) -> str | None:
    """The link that a run's network behaves like; None where the text names no kind."""
    text = run.interconnect or ""
    return next((link for pattern, link in _LINKS if pattern.search(text)), None)


def network_gigabits(run: Run, gpus_per_node: int) -> float | None:
    """Gbit/s, one way, of all ports of one node together; None where the text does not say.

    A small `b` is a bit. Understood: `8x200Gb` (ports of a node), `1600Gbps/node`, `400Gb/s per GPU`.
    """
    text = run.interconnect or ""
    if ports := _PORTS.search(text):
        return int(ports.group(1)) * _gigabits(ports.group(2), ports.group(3))
    if node := _PER_NODE.search(text):
        return _gigabits(node.group(1), node.group(2))
    if gpu := _PER_GPU.search(text):
        return gpus_per_node * _gigabits(gpu.group(1), gpu.group(2))
    return None


def _gigabits(number: str, prefix: str) -> float:
    return float(number) * (1000.0 if prefix == "T" else 1.0)
