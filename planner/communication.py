"""Coefficients of communication from `catalogs/communication.yaml`, in seconds and shares of a bandwidth.

Units are converted here, once: microseconds to seconds. The formulas that use them stand in `planner.cluster`.
Every function raises InputError where the catalog lacks what it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from planner.errors import InputError

OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_receive")
DIRECTIONS = ("to_gpu", "from_gpu", "both")
OUTLOOKS = ("low", "typical", "high")
_MICROSECOND = 1e-6
# A broadcast moves the message once along the same rings that an all_gather uses.
_SAME_CURVE = {"broadcast": "all_gather", "send_receive": "all_gather"}


@dataclass(frozen=True)
class Curve:
    """Time of one collective inside a node: latency + root * sqrt(bytes) + bytes * factor / (share * bandwidth).

    `latency` in seconds, `root` in seconds per square root of a byte, `share` of the link bandwidth one way.
    """

    latency: float
    root: float
    share: float

    def seconds(self, payload_bytes: float, wire_bytes: float, bandwidth: float) -> float:
        """Seconds for `payload_bytes` of which every GPU puts `wire_bytes` on a link of `bandwidth` bytes/s."""
        return self.latency + self.root * math.sqrt(payload_bytes) + wire_bytes / (self.share * bandwidth)


@dataclass(frozen=True)
class Network:
    """A network between nodes: `share` of the NICs' bandwidth, `root` as in Curve, the rest in seconds.

    `base`: once per collective; `tree_hop`, `ring_hop`: one hop between nodes of a tree or ring; `peer`: one more
    peer of an all_to_all.
    """

    outlook: str
    share: float
    root: float
    base: float
    tree_hop: float
    ring_hop: float
    peer: float


@lru_cache(maxsize=1)
def coefficients() -> Mapping[str, Any]:
    """The catalog as read, in the catalog's own units."""
    from planner.reading import read_document

    text = files("catalogs").joinpath("communication.yaml").read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", read_document("catalogs/communication.yaml", text=text).data)


def check(what: str, value: str, known: Iterable[str]) -> None:
    """Raise InputError unless `value` is one of `known`."""
    if value not in known:
        raise InputError(f"unknown {what} {value!r}", expected="one of " + ", ".join(known))


def time_factor(kind: str, outlook: str) -> float:
    """Multiple of the typical time that `outlook` (low, typical or high seconds) means for links of `kind`."""
    check("outlook", outlook, OUTLOOKS)
    if outlook == "typical":
        return 1.0
    return float(coefficients()["outlook"][kind][outlook])


def call_seconds(outlook: str) -> float:
    """Seconds that a framework's call adds to a collective inside a node."""
    return float(coefficients()["call"][outlook]) * _MICROSECOND


def curve_name(gpu: str, link: str, topology: str, peer_to_peer: bool | None) -> str:
    """Name of the curve that GPUs `gpu` over `link` follow in a node of `topology`."""
    catalog = coefficients()
    if link.startswith("pcie"):
        direct = {True: "yes", False: "no", None: "unknown"}[peer_to_peer]
        return str(catalog["curve_of_gpu"].get(gpu, catalog["curve_of_pcie"][direct]))
    by_link = {**catalog["curve_of_link"], **(catalog["curve_of_mesh"] if topology == "mesh" else {})}
    return str(by_link.get(link, catalog["curve_of_other"]))


def has_own_curve(link: str) -> bool:
    """Whether `link` was measured, or follows a measured link by analogy."""
    return link.startswith("pcie") or link in coefficients()["curve_of_link"]


def curve_kind(name: str) -> str:
    """Kind of the links that follow curve `name`: nvlink, mesh, pcie_peer_to_peer or pcie_host_bridge."""
    return str(coefficients()["curves"][name]["kind"])


@lru_cache(maxsize=4096)
def curve(name: str, operation: str, ranks: int) -> Curve:
    """The curve `name` for `operation` among `ranks` >= 2 GPUs, between measured sizes on a logarithmic scale."""
    columns = coefficients()["curves"][name][_SAME_CURVE.get(operation, operation)]
    return _between({int(size): _curve(column) for size, column in columns.items()}, max(ranks, 2))


def _curve(column: Mapping[str, float]) -> Curve:
    return Curve(column["latency"] * _MICROSECOND, column["root"] * _MICROSECOND, column["share"])


def _between(columns: Mapping[int, Curve], ranks: int) -> Curve:
    """Columns around `ranks` mixed by the logarithm of the size; beyond the last only the latency grows."""
    if ranks in columns:
        return columns[ranks]
    sizes = sorted(columns)
    upper = next((size for size in sizes if size > ranks), sizes[-1])
    lower = sizes[max(sizes.index(upper) - 1, 0)]
    weight = math.log(ranks / lower) / math.log(upper / lower)
    below, above = columns[lower], columns[upper]
    mixed = min(weight, 1.0)
    return Curve(
        _mix(below.latency, above.latency, weight),
        _mix(below.root, above.root, mixed),
        _mix(below.share, above.share, mixed),
    )


def _mix(below: float, above: float, weight: float) -> float:
    return below + (above - below) * weight


@lru_cache(maxsize=64)
def network(link: str) -> Network:
    """Coefficients of the network that NICs of `link` make."""
    entries = coefficients()["networks"]
    name = next((name for name, entry in entries.items() if link in entry["links"]), coefficients()["network_of_other"])
    entry = entries[name]
    times = {key: entry[key] * _MICROSECOND for key in ("root", "base", "tree_hop", "ring_hop", "peer")}
    return Network(outlook=entry["outlook"], share=entry["share"], **times)


@lru_cache(maxsize=1)
def gpu_hop() -> float:
    """Seconds of one hop of a ring between two GPUs of a node."""
    return float(coefficients()["ring"]["gpu_hop"]) * _MICROSECOND


@lru_cache(maxsize=1)
def message() -> Curve:
    """One message between two GPUs over a switched link: latency in seconds and share of the link, no root."""
    entry = coefficients()["send_receive"]
    return Curve(entry["latency"] * _MICROSECOND, 0.0, entry["share"])


@lru_cache(maxsize=64)
def host_copy(link: str, direction: str, pinned: bool) -> Curve:
    """Copy between GPU and host over `link`: `direction` is to_gpu, from_gpu, or both (each way at once)."""
    check("direction", direction, DIRECTIONS)
    entry = coefficients()["host_link"]
    share = entry[direction]["c2c_share" if link == entry["c2c_link"] else "share"]
    return Curve(entry["latency"] * _MICROSECOND, 0.0, share * (1.0 if pinned else entry["unpinned"]))
