"""What a cluster is made of, and where a group of its ranks lies: links crossed, bandwidth and latency of each level.

Bandwidths are bytes/s one way, latencies seconds. Two nodes stand for all of them, so size costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.hardware import Gpu, Link, Node

if TYPE_CHECKING:
    import networkx

_NANO = 1e-9


@dataclass(frozen=True)
class Cluster:
    """`nodes` equal machines `node` of GPUs `gpu`; `links` holds every link that the GPU or node names.

    Raises InputError where several nodes have no network, or a link is missing.
    """

    gpu: Gpu
    node: Node
    nodes: int
    links: Mapping[str, Link]

    def __post_init__(self) -> None:
        if self.nodes < 1:
            raise InputError(f"a cluster of {self.nodes} nodes", path="cluster.nodes", expected="1 or more")
        if self.nodes > 1 and not (self.node.nics and self.node.nic_link and self.node.nic_bandwidth > 0):
            hint = "state the network of the node (nics, nic_link and nic_bandwidth)"
            message = f"node {self.node.key} has no network to reach another node"
            raise InputError(message, path="cluster.nodes", hint=hint)
        for key in _links_named(self):
            if key not in self.links:
                raise InputError(f"link {key} is not in the catalog of links", path="cluster")

    def __hash__(self) -> int:
        return hash((self.gpu.key, self.node.key, self.nodes))

    @property
    def gpus_per_node(self) -> int:
        """GPUs in one node."""
        return self.node.gpus

    @property
    def gpus(self) -> int:
        """GPUs in all nodes."""
        return self.nodes * self.node.gpus

    @property
    def gpu_price_per_hour(self) -> float | None:
        """US dollars for one GPU and hour, the node's price first; None where neither has one."""
        if self.node.price_per_hour is not None:
            return self.node.price_per_hour / self.node.gpus
        return self.gpu.price_per_hour


@dataclass(frozen=True)
class Group:
    """`size` ranks, consecutive members `stride` apart in the global order of ranks; all such groups run at once."""

    size: int
    stride: int = 1


@dataclass(frozen=True)
class Spread:
    """Where a group lies: `members` in one node, `nodes` it spans, `groups_per_node` sharing a node's NICs."""

    members: int
    nodes: int
    groups_per_node: int


@dataclass(frozen=True)
class Path:
    """The slowest link a group crosses: bytes/s one way for each member's bus, seconds per message, and its key."""

    bandwidth: float
    latency: float
    link: str
    description: str


@dataclass(frozen=True)
class Levels:
    """What the topology offers: bytes/s leaving one GPU inside its node, to its bridged pair, and leaving one node."""

    link: str
    inside: float
    pair_link: str
    pair: float
    between: float
    inside_latency: float
    between_latency: float


def _links_named(cluster: Cluster) -> list[str]:
    node = cluster.node
    named = [node.host_link, node.scale_up_link, node.nic_link if cluster.nodes > 1 else None]
    return [key for key in named if key is not None]


def topology(cluster: Cluster) -> networkx.Graph[Any]:
    """Graph of one node, or of two joined by a network switch where the cluster has more; all others are alike.

    Nodes carry `kind`: gpu, switch, pcie_switch, host, host_memory, nvme, nic, network_switch. Edges carry
    `bandwidth` (bytes/s one way), `latency` (seconds) and `link` (key, or the name of an inner path).
    """
    import networkx

    graph: networkx.Graph[Any] = networkx.Graph()
    for machine in range(min(cluster.nodes, 2)):
        _add_host(graph, cluster, machine)
        _add_gpus(graph, cluster, machine)
        _add_scale_up(graph, cluster, machine)
        _add_nics(graph, cluster, machine)
    return graph


def _add_host(graph: networkx.Graph[Any], cluster: Cluster, machine: int) -> None:
    node = cluster.node
    graph.add_node(f"node{machine}/host", kind="host")
    graph.add_node(f"node{machine}/memory", kind="host_memory")
    bandwidth = node.host_memory_bandwidth
    graph.add_edge(f"node{machine}/host", f"node{machine}/memory", bandwidth=bandwidth, latency=0.0, link="host memory")
    if node.nvme is not None:
        graph.add_node(f"node{machine}/nvme", kind="nvme")
        rate = min(node.nvme.read, node.nvme.write)
        graph.add_edge(f"node{machine}/host", f"node{machine}/nvme", bandwidth=rate, latency=0.0, link="nvme")


def _add_gpus(graph: networkx.Graph[Any], cluster: Cluster, machine: int) -> None:
    """GPUs, each behind the PCIe switch whose one uplink to the host `gpus_per_host_link` of them share."""
    node = cluster.node
    edge = _edge(cluster.links[node.host_link])
    for gpu in range(node.gpus):
        switch = f"node{machine}/pcie{gpu // node.gpus_per_host_link}"
        if switch not in graph:
            graph.add_node(switch, kind="pcie_switch")
            graph.add_edge(switch, f"node{machine}/host", **edge)
        graph.add_node(f"node{machine}/gpu{gpu}", kind="gpu")
        graph.add_edge(f"node{machine}/gpu{gpu}", switch, **edge)


def _add_scale_up(graph: networkx.Graph[Any], cluster: Cluster, machine: int) -> None:
    """Links between GPUs: through one switch, all-to-all (mesh), or between neighbours (pairs)."""
    node = cluster.node
    if node.scale_up_link is None or node.gpus < 2:
        return
    edge = _edge(cluster.links[node.scale_up_link], cluster.gpu.scale_up_bandwidth)
    names = [f"node{machine}/gpu{gpu}" for gpu in range(node.gpus)]
    if node.topology == "pairs":
        graph.add_edges_from((names[gpu], names[gpu + 1], edge) for gpu in range(0, node.gpus - 1, 2))
    elif node.topology == "mesh":
        share = {**edge, "bandwidth": edge["bandwidth"] / (node.gpus - 1)}
        graph.add_edges_from((a, b, share) for index, a in enumerate(names) for b in names[index + 1 :])
    elif node.topology == "switch":
        graph.add_node(f"node{machine}/switch", kind="switch")
        graph.add_edges_from((name, f"node{machine}/switch", edge) for name in names)


def _add_nics(graph: networkx.Graph[Any], cluster: Cluster, machine: int) -> None:
    """NICs spread over the PCIe switches, joined by one network switch without contention."""
    node = cluster.node
    if cluster.nodes < 2 or node.nic_link is None:
        return
    graph.add_node("network", kind="network_switch")
    switches = math.ceil(node.gpus / node.gpus_per_host_link)
    for nic in range(node.nics):
        name = f"node{machine}/nic{nic}"
        graph.add_node(name, kind="nic")
        host = cluster.links[node.host_link]
        graph.add_edge(name, f"node{machine}/pcie{nic * switches // node.nics}", **_edge(host))
        graph.add_edge(name, "network", **_edge(cluster.links[node.nic_link], node.nic_bandwidth))


def _edge(link: Link, bandwidth: float | None = None) -> dict[str, Any]:
    return {"bandwidth": bandwidth or link.bandwidth, "latency": link.latency, "link": link.key}


@lru_cache(maxsize=256)
def levels(cluster: Cluster) -> Levels:
    """The topology read once: what leaves a GPU inside its node and a node, and the latency of the way there."""
    graph = topology(cluster)
    node = cluster.node
    first = "node0/gpu0"
    host = _leaving(graph, first, node.host_link)
    scale_up = _leaving(graph, first, node.scale_up_link) if node.scale_up_link else 0.0
    pair_link = node.scale_up_link if node.scale_up_link and scale_up else node.host_link
    bridged_only = node.topology == "pairs"
    return Levels(
        link=node.host_link if bridged_only else pair_link,
        inside=host if bridged_only else scale_up or host,
        pair_link=pair_link,
        pair=scale_up or host,
        between=_leaving(graph, "network", node.nic_link or "") / 2,
        inside_latency=_way(graph, first, f"node0/gpu{node.gpus - 1}"),
        between_latency=_way(graph, first, "node1/gpu0") if cluster.nodes > 1 else 0.0,
    )


def _leaving(graph: networkx.Graph[Any], name: str, link: str) -> float:
    if name not in graph:
        return 0.0
    return float(sum(edge["bandwidth"] for _, _, edge in graph.edges(name, data=True) if edge["link"] == link))


def _way(graph: networkx.Graph[Any], start: str, end: str) -> float:
    import networkx

    way = networkx.shortest_path(graph, start, end)
    return float(sum(graph.edges[edge]["latency"] for edge in zip(way, way[1:], strict=False)))


@lru_cache(maxsize=65536)
def spread(cluster: Cluster, group: Group) -> Spread:
    """Members of `group` per node, nodes it spans, and groups alike in one node; the widest group counts.

    Raises InputError where the group does not fit the cluster.
    """
    per_node = cluster.gpus_per_node
    if group.size < 1 or group.stride < 1 or (group.size - 1) * group.stride >= cluster.gpus:
        raise InputError(f"a group of {group.size} ranks, {group.stride} apart, among {cluster.gpus} GPUs")
    whole = group.size * group.stride
    if group.size == 1 or (whole <= per_node and (per_node % whole == 0 or cluster.nodes == 1)):
        return Spread(group.size, 1, per_node // group.size)
    members = min(math.ceil(per_node / group.stride), group.size)
    if members == group.size:
        # groups do not divide the node: some group lies across two nodes
        members = math.ceil(group.size / 2)
    return Spread(members, math.ceil(group.size / members), max(per_node // members, 1))


def link_inside(cluster: Cluster, group: Group, members: int) -> tuple[str, float]:
    """Link between the members inside one node and its bytes/s one way per GPU."""
    offered = levels(cluster)
    if members == 2 and group.stride == 1:
        return offered.pair_link, offered.pair
    return offered.link, offered.inside


def nic_share(cluster: Cluster, members: int) -> float:
    """NIC bytes/s one way that one group has in each of its nodes when all GPUs communicate."""
    return levels(cluster).between * min(members / cluster.gpus_per_node, 1.0)


def bottleneck(cluster: Cluster, group: Group) -> Path:
    """The slowest link that a ring over `group` crosses; a group of 1 crosses nothing and has its GPU's own memory."""
    place = spread(cluster, group)
    if group.size == 1:
        return Path(cluster.gpu.memory_bandwidth, 0.0, "", "one GPU, nothing to cross")
    offered = levels(cluster)
    link, inside = link_inside(cluster, group, place.members)
    between = nic_share(cluster, place.members)
    if place.nodes == 1 or (place.members > 1 and inside <= between):
        return Path(inside, offered.inside_latency, link, f"{link}, {inside * _NANO:.4g} GB/s one way per GPU")
    nic = cluster.node.nic_link or ""
    shared = f", shared by {place.groups_per_node} groups" if place.groups_per_node > 1 else ""
    return Path(between, offered.between_latency, nic, f"{nic}, {between * _NANO:.4g} GB/s one way per node{shared}")


def describe(cluster: Cluster, group: Group) -> str:
    """Where `group` communicates: `8 GPUs over nvlink3 inside each node, 8 nodes over ib-hdr 200 Gbit/s x8`."""
    place = spread(cluster, group)
    if group.size == 1:
        return "1 GPU, no communication"
    link, _ = link_inside(cluster, group, place.members)
    if place.nodes == 1:
        return f"{place.members} GPUs over {link} inside one node"
    node = cluster.node
    network = f"{place.nodes} nodes over {node.nic_link} {node.nic_bandwidth * 8 * _NANO:g} Gbit/s x{node.nics}"
    if place.groups_per_node > 1:
        network += f", shared by {place.groups_per_node} groups"
    inside = f"{place.members} GPUs over {link} inside each node" if place.members > 1 else "1 GPU of each node"
    return f"{inside}, {network}"
