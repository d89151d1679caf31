"""How long data takes to move in a cluster: between GPUs, to the host, to NVMe, through the CPU optimizer.

All results are seconds for one call, nothing else running. Payloads are bytes as nccl-tests counts them: all_reduce the
buffer, all_gather the gathered whole, reduce_scatter the whole input, all_to_all the buffer of one rank, broadcast and
send_receive the message. An outlook is one of `low`, `typical`, `high` and speaks of the time: `low` means few seconds.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from planner import communication
from planner.errors import InputError
from planner.hardware import Nvme
from planner.topology import (
    Cluster,
    Group,
    Path,
    Spread,
    bottleneck,
    describe,
    levels,
    link_inside,
    nic_share,
    spread,
    topology,
)

__all__ = [
    "Cluster",
    "Group",
    "Path",
    "Spread",
    "bottleneck",
    "collective_seconds",
    "cpu_optimizer_seconds",
    "describe",
    "host_link_seconds",
    "nvme_seconds",
    "spread",
    "topology",
]

_WIRE = {"all_reduce": 2.0, "all_gather": 1.0, "reduce_scatter": 1.0, "all_to_all": 1.0}


def _wire_bytes(operation: str, payload_bytes: float, ranks: int) -> float:
    """Bytes that each rank puts on its link: the ring volume of nccl-tests' bus bandwidth."""
    return payload_bytes * _WIRE[operation] * (ranks - 1) / ranks if operation in _WIRE else payload_bytes


@lru_cache(maxsize=262144)
def collective_seconds(
    cluster: Cluster, operation: str, payload_bytes: float, group: Group, outlook: str = "typical"
) -> float:
    """Seconds of one `operation` over every group like `group` at once; 0 for a group of 1 or an empty payload.

    Inside a node the measured curve of the link; across nodes the ring passes every NIC, chunks are pipelined, so the
    slower of the two levels sets the pace. Raises InputError for an unknown operation or outlook.
    """
    place = spread(cluster, group)
    communication.check("collective", operation, communication.OPERATIONS)
    communication.check("outlook", outlook, communication.OUTLOOKS)
    if group.size == 1 or payload_bytes <= 0:
        return 0.0
    inside = _inside_seconds(cluster, operation, payload_bytes, group, place, outlook)
    if place.nodes == 1:
        return inside + cluster.gpu.calibration.inside_node * communication.call_seconds(outlook)
    return max(inside, _network_seconds(cluster, operation, payload_bytes, group, place, outlook))


def _inside_seconds(
    cluster: Cluster, operation: str, payload_bytes: float, group: Group, place: Spread, outlook: str
) -> float:
    """Seconds of the part inside one node, as if the network were free; 0 where a node holds one member."""
    if place.members == 1:
        return 0.0
    link, bandwidth = link_inside(cluster, group, place.members)
    curve, kind = _curve_inside(cluster, operation, group, place.members, link)
    wire = _wire_bytes(operation, payload_bytes, group.size)
    if operation == "all_to_all":
        wire = payload_bytes * (place.members - 1) / group.size
    factor = cluster.gpu.calibration.inside_node * communication.time_factor(kind, outlook)
    return curve.seconds(payload_bytes, wire, bandwidth) * factor


@lru_cache(maxsize=16384)
def _curve_inside(
    cluster: Cluster, operation: str, group: Group, members: int, link: str
) -> tuple[communication.Curve, str]:
    """Curve of `operation` inside a node and the kind of its link; through a host bridge all GPUs of a node count."""
    gpu = cluster.gpu
    name = communication.curve_name(gpu.key, link, cluster.node.topology, gpu.peer_to_peer)
    kind = communication.curve_kind(name)
    if operation == "send_receive" and kind == "nvlink":
        return communication.message(), kind
    curve = communication.curve(name, operation, _ranks_on_link(cluster, operation, group, members, kind))
    efficiency = cluster.links[link].efficiency
    stated = efficiency.get(operation, efficiency.get("others"))
    if stated is not None and not communication.has_own_curve(link):
        curve = replace(curve, share=stated.typical)
    return curve, kind


def _ranks_on_link(cluster: Cluster, operation: str, group: Group, members: int, kind: str) -> int:
    """GPUs that count for the curve: neighbours talk alone, but a host bridge carries all GPUs of the node at once."""
    if kind == "pcie_host_bridge" and not (members == 2 and group.stride == 1):
        return cluster.gpus_per_node
    return 2 if kind == "mesh" and operation == "send_receive" else members


def _network_seconds(
    cluster: Cluster, operation: str, payload_bytes: float, group: Group, place: Spread, outlook: str
) -> float:
    """Seconds of the part between nodes, with the hops and the latency of the part inside each node."""
    network = communication.network(cluster.node.nic_link or "")
    wire = _wire_bytes(operation, payload_bytes, group.size)
    bandwidth = nic_share(cluster, place.members)
    if operation == "all_to_all":
        wire = payload_bytes * place.members * (group.size - place.members) / group.size
    if operation == "send_receive":
        bandwidth = _message_bandwidth(cluster, group)
    latency = _hops_seconds(network, operation, group, place)
    if place.members > 1:
        link, _ = link_inside(cluster, group, place.members)
        latency += _curve_inside(cluster, operation, group, place.members, link)[0].latency
    seconds = latency + network.root * math.sqrt(payload_bytes) + wire / (network.share * bandwidth)
    return seconds * cluster.gpu.calibration.between_nodes * communication.time_factor(network.outlook, outlook)


def _message_bandwidth(cluster: Cluster, group: Group) -> float:
    """NIC bytes/s for one GPU's message to the next node, when every rank that must cross sends at once."""
    node = cluster.node
    total = levels(cluster).between
    own = max(node.nic_bandwidth, total / node.gpus)
    return min(total / min(group.stride, node.gpus), own)


def _hops_seconds(network: communication.Network, operation: str, group: Group, place: Spread) -> float:
    """Latency between nodes: once per collective, and the hops one after another."""
    if operation == "send_receive":
        return network.ring_hop
    depth = math.ceil(math.log2(place.nodes))
    hops = {
        "all_reduce": 2 * depth * network.tree_hop,
        "all_to_all": network.tree_hop + network.peer * (group.size - place.members),
    }
    inside = (group.size - place.nodes) * communication.gpu_hop()
    return network.base + hops.get(operation, (place.nodes - 1) * network.ring_hop + inside)


@lru_cache(maxsize=65536)
def host_link_seconds(
    cluster: Cluster,
    payload_bytes: float,
    direction: str,
    concurrent_gpus: int,
    outlook: str = "typical",
    pinned: bool = True,
) -> float:
    """Seconds to copy `payload_bytes` per GPU between `concurrent_gpus` GPUs of one node and its host memory.

    `direction`: to_gpu, from_gpu, or both (the payload each way at once). GPUs behind one uplink share it, and all
    share the host memory.
    """
    if payload_bytes <= 0:
        return 0.0
    node = cluster.node
    active = max(1, min(concurrent_gpus, node.gpus))
    sharing = math.ceil(active / math.ceil(node.gpus / node.gpus_per_host_link))
    copy, factor = _host_copy(cluster, direction, outlook, pinned)
    link = payload_bytes * sharing / (copy.share * cluster.links[node.host_link].bandwidth)
    memory = payload_bytes * active * (2 if direction == "both" else 1) / _host_memory_bandwidth(cluster)
    return (copy.latency + max(link, memory)) * factor * cluster.gpu.calibration.host_link


def _host_copy(cluster: Cluster, direction: str, outlook: str, pinned: bool) -> tuple[communication.Curve, float]:
    """Latency and share of a copy, and the multiple of its time; a share that the link states replaces the general one.

    The link's range already holds the outlook: its low share means high seconds.
    """
    copy = communication.host_copy(cluster.node.host_link, direction, pinned)
    factor = communication.time_factor("host", outlook)
    stated = cluster.links[cluster.node.host_link].efficiency.get("host_copy")
    if stated is None:
        return copy, factor
    general = communication.host_copy(cluster.node.host_link, "to_gpu", pinned=True).share
    share = stated.at({"low": "high", "typical": "typical", "high": "low"}[outlook])
    return replace(copy, share=share * copy.share / general), 1.0


def _host_memory_bandwidth(cluster: Cluster) -> float:
    return cluster.node.host_memory_bandwidth * float(communication.coefficients()["host_memory"]["share"])


def _drives(cluster: Cluster) -> Nvme:
    if cluster.node.nvme is None:
        raise InputError(f"node {cluster.node.key} has no NVMe drives", path="cluster", hint="state nvme of the node")
    return cluster.node.nvme


def nvme_seconds(
    cluster: Cluster, read_bytes: float, write_bytes: float, ranks: int, outlook: str = "typical"
) -> float:
    """Seconds for each of `ranks` ranks of one node to read and write that many bytes on the node's drives.

    Reads and writes share the drives, so their times add. Raises InputError where the node has no NVMe.
    """
    drives = _drives(cluster)
    share = float(communication.coefficients()["nvme"]["share"])
    seconds = ranks * (read_bytes / drives.read + write_bytes / drives.write) / share
    return seconds * cluster.gpu.calibration.nvme * communication.time_factor("nvme", outlook)


def cpu_optimizer_seconds(
    cluster: Cluster,
    elements: float,
    ranks: int,
    outlook: str = "typical",
    implementation: str = "deepspeed_cpu_adam",
) -> float:
    """Seconds for each of `ranks` ranks of one node to update `elements` elements with Adam on the CPU.

    The slower of moving the bytes through host memory and the rate that a node's cores were measured at.
    `implementation`: deepspeed_cpu_adam or torch.
    """
    entry = communication.coefficients()["cpu_optimizer"]
    communication.check("outlook", outlook, communication.OUTLOOKS)
    communication.check("CPU optimizer", implementation, entry["slower"])
    rate = float(entry["elements_per_second"][outlook])
    if cluster.node.cpu_cores:
        rate = min(rate, cluster.node.cpu_cores * float(entry["elements_per_second_per_core"]))
    slower = float(entry["slower"][implementation])
    total = elements * ranks
    moved = total * float(entry["bytes_per_element"])
    return cluster.gpu.calibration.cpu_optimizer * max(moved / _host_memory_bandwidth(cluster), total * slower / rate)
