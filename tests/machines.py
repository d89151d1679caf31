"""A machine of which every part is new, as a catalog file has it."""

from __future__ import annotations

import json
from typing import Any

GPU: dict[str, Any] = {
    "name": "Lab GPU 40 GB", "vendor": "nvidia", "architecture": "ampere", "nominal_memory": "40 GiB",
    "usable_memory": "39 GiB", "memory_bandwidth": "1 TB/s", "peak": {"fp32": "20 TFLOP/s", "bf16": "100 TFLOP/s"},
    "efficiency": "lab-rule", "host_link": "lab-bus", "scale_up_link": "lab-link", "scale_up_bandwidth": "100 GB/s",
    "scale_up_gpus": 4, "sources": {"default": "lab"},
}  # fmt: skip
RANGE = {"low": 0.5, "typical": 0.6, "high": 0.7}
EFFICIENCY: dict[str, Any] = {
    "basis": "rule", "matrix": {"fp32": RANGE, "bf16": RANGE}, "memory": RANGE, "sources": {"default": "lab"},
}  # fmt: skip
NODE: dict[str, Any] = {
    "gpu": "lab-40gb", "gpus": 4, "topology": "switch", "host_memory": "256 GiB", "host_memory_bandwidth": "100 GB/s",
    "host_link": "lab-bus", "scale_up_link": "lab-link", "nics": 1, "nic_link": "ethernet-100gbe",
    "nic_bandwidth": "100 Gbit/s", "price_per_hour": "4 USD/hour", "sources": {"default": "lab"},
}  # fmt: skip
LINK: dict[str, Any] = {
    "summary": "a link", "bandwidth": "100 GB/s", "latency": "2 us", "efficiency": {"others": RANGE},
    "sources": {"default": "lab"},
}  # fmt: skip
BUS: dict[str, Any] = {**LINK, "bandwidth": "20 GB/s", "efficiency": {"host_copy": RANGE, "others": RANGE}}


def document() -> dict[str, Any]:
    """A machine of which every part is new."""
    whole = {
        "sources": {"lab": "measured"}, "efficiencies": {"lab-rule": EFFICIENCY}, "gpus": {"lab-40gb": GPU},
        "nodes": {"lab-box": NODE}, "links": {"lab-link": LINK, "lab-bus": BUS},
    }  # fmt: skip
    copied: dict[str, Any] = json.loads(json.dumps(whole))
    return copied
