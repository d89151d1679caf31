"""The graph of one node or two, where groups of ranks lie, and the links they cross."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.cluster import Cluster, Group, Spread, bottleneck, describe, spread, topology
from planner.errors import InputError
from planner.hardware import Gpu, Link, Node, Nvme, Range

UNKNOWN = Range(0.7, 0.8, 0.9)


def make_cluster(nodes: int = 1, **changes: Any) -> Cluster:
    """Nodes of 8 A100 over NVLink 3, each GPU on its own PCIe 4 link, 8 HDR ports and drives per node."""
    gpu = Gpu("a100-sxm-80gb", "A100", "nvidia", "ampere", 1, 1, 2e12, {}, {}, UNKNOWN, "pcie4-x16", "nvlink3", 300e9)
    node = Node(
        "dgx-a100-80gb", gpu.key, 8, "switch", 10**12, 400e9, "pcie4-x16", "nvlink3",
        nics=8, nic_link="ib-hdr", nic_bandwidth=25e9, nvme=Nvme(10**13, 20e9, 10e9),
    )  # fmt: skip
    rates = {"nvlink2": 150e9, "nvlink3": 300e9, "pcie4-x16": 31.5e9, "ib-hdr": 25e9}
    links = {key: Link(key, rate, 5e-6, {}) for key, rate in rates.items()}
    return Cluster(gpu, replace(node, **changes), nodes, links)


def count(cluster: Cluster, kind: str) -> int:
    return sum(data["kind"] == kind for _, data in topology(cluster).nodes(data=True))


def test_one_node_is_drawn_without_a_network() -> None:
    cluster = make_cluster()
    kinds = ("gpu", "switch", "pcie_switch", "host", "host_memory", "nvme", "nic", "network_switch")
    assert [count(cluster, kind) for kind in kinds] == [8, 1, 8, 1, 1, 1, 0, 0]


def test_two_nodes_stand_for_2048() -> None:
    cluster = make_cluster(2048)
    assert cluster.gpus == 16384
    assert count(cluster, "gpu") == 16
    assert count(cluster, "nic") == 16
    assert count(cluster, "network_switch") == 1


def test_gpus_behind_one_pcie_switch_share_its_uplink() -> None:
    # 8 GPUs, 2 per uplink: 4 switches; 8 NICs: 2 on each switch
    graph = topology(make_cluster(2, gpus_per_host_link=2))
    assert sorted(graph["node0/pcie3"]) == ["node0/gpu6", "node0/gpu7", "node0/host", "node0/nic6", "node0/nic7"]


def test_mesh_divides_a_gpus_bandwidth_among_its_peers() -> None:
    edge = topology(make_cluster(topology="mesh")).edges["node0/gpu0", "node0/gpu5"]
    assert edge == {"bandwidth": 300e9 / 7, "latency": 5e-6, "link": "nvlink3"}


def test_pairs_reach_others_over_pcie() -> None:
    cluster = make_cluster(topology="pairs", gpus=4)
    assert bottleneck(cluster, Group(2)).link == "nvlink3"
    assert bottleneck(cluster, Group(2, stride=2)).link == "pcie4-x16"
    assert bottleneck(cluster, Group(4)).link == "pcie4-x16"


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        (1, 1, Spread(1, 1, 8)),
        (8, 1, Spread(8, 1, 1)),
        (2, 1, Spread(2, 1, 4)),
        (4, 2, Spread(4, 1, 2)),  # ranks 0 2 4 6
        (64, 1, Spread(8, 8, 1)),  # the whole cluster
        (8, 8, Spread(1, 8, 8)),  # data parallel over tensor parallel 8: all 8 groups use a node's NICs
        (16, 4, Spread(2, 8, 4)),  # ranks 0 4 | 8 12 | ...
        (3, 1, Spread(2, 2, 4)),  # ranks 6 7 | 8 lie across two nodes
        (4, 16, Spread(1, 4, 8)),  # pipeline stages two nodes apart
    ],
)
def test_where_a_group_lies(size: int, stride: int, expected: Spread) -> None:
    assert spread(make_cluster(8), Group(size, stride)) == expected


def test_three_gpus_stay_inside_the_only_node() -> None:
    assert spread(make_cluster(1), Group(3)) == Spread(3, 1, 2)


def test_a_group_that_does_not_fit_is_an_input_error() -> None:
    with pytest.raises(InputError) as error:
        spread(make_cluster(2), Group(16, 2))
    assert str(error.value) == "a group of 16 ranks, 2 apart, among 16 GPUs"


def test_bottleneck_inside_and_between_nodes() -> None:
    cluster = make_cluster(8)
    assert bottleneck(cluster, Group(8)).bandwidth == 300e9
    whole = bottleneck(cluster, Group(64))  # 8 ports x 25 GB/s = 200 GB/s per node, below NVLink's 300
    assert (whole.link, whole.bandwidth) == ("ib-hdr", 200e9)
    one_of_eight = bottleneck(cluster, Group(8, 8))  # 200 GB/s shared by 8 groups
    assert one_of_eight.bandwidth == 25e9
    assert one_of_eight.latency == pytest.approx(30e-6)  # gpu, pcie, nic, network, nic, pcie, gpu: 6 edges x 5 us
    assert one_of_eight.description == "ib-hdr, 25 GB/s one way per node, shared by 8 groups"
    assert bottleneck(cluster, Group(1)).description == "one GPU, nothing to cross"


def test_describe_in_plain_words() -> None:
    cluster = make_cluster(8)
    assert describe(cluster, Group(64)) == "8 GPUs over nvlink3 inside each node, 8 nodes over ib-hdr 200 Gbit/s x8"
    assert describe(cluster, Group(8)) == "8 GPUs over nvlink3 inside one node"
    shared = "1 GPU of each node, 8 nodes over ib-hdr 200 Gbit/s x8, shared by 8 groups"
    assert describe(cluster, Group(8, 8)) == shared
    assert describe(cluster, Group(1)) == "1 GPU, no communication"


def test_nodes_without_a_network_are_refused() -> None:
    with pytest.raises(InputError) as error:
        make_cluster(2, nics=0)
    assert str(error.value) == (
        "cluster.nodes: node dgx-a100-80gb has no network to reach another node; "
        "state the network of the node (nics, nic_link and nic_bandwidth)"
    )
    assert make_cluster(1, nics=0).gpus == 8


def test_a_missing_link_is_named() -> None:
    with pytest.raises(InputError) as error:
        make_cluster(1, host_link="pcie9-x16")
    assert str(error.value) == "cluster: link pcie9-x16 is not in the catalog of links"


def test_no_nodes_are_refused() -> None:
    with pytest.raises(InputError) as error:
        make_cluster(0)
    assert str(error.value) == "cluster.nodes: a cluster of 0 nodes; expected 1 or more"
