"""Times of moving data: hand arithmetic, and published measurements within a stated tolerance."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from planner.cluster import (
    Cluster,
    Group,
    collective_seconds,
    cpu_optimizer_seconds,
    host_link_seconds,
    nvme_seconds,
)
from planner.communication import OPERATIONS, coefficients, curve, has_own_curve, network
from planner.errors import InputError
from planner.hardware import Gpu, Link, Node, Nvme, Range
from planner.hardware_catalog import nodes
from planner.units import GIB, MIB

RATES = {
    "nvlink2": 150e9,
    "nvlink3": 300e9,
    "nvlink4": 450e9,
    "nvlink5": 900e9,
    "xgmi-mi300x": 448e9,
    "pcie4-x16": 31.5e9,
    "pcie5-x16": 63e9,
    "nvlink-c2c": 450e9,
}


def machine(
    gpu: str, link: str | None, host: str, gpus: int, nodes: int = 1, nic: tuple[str, int, float] | None = None
) -> Cluster:
    """`nodes` machines of `gpus` GPUs over `link` (None: PCIe only); `nic` is key, count and bytes/s each."""
    name, count, rate = nic or (None, 0, 0.0)
    rates = {**RATES, **({name: rate} if name else {})}
    bandwidth = RATES[link] if link else None
    device = Gpu(gpu, gpu, "", "", 1, 1, 2e12, {}, {}, Range(0.7, 0.8, 0.9), host, link, bandwidth)
    node = Node(
        "node", gpu, gpus, "switch" if link else "pcie", 10**12, 400e9, host, link,
        nics=count, nic_link=name, nic_bandwidth=rate, nvme=Nvme(10**13, 20e9, 10e9),
    )  # fmt: skip
    return Cluster(device, node, nodes, {key: Link(key, value, 5e-6, {}) for key, value in rates.items()})


A100 = machine("a100-sxm-80gb", "nvlink3", "pcie4-x16", 8)
A100_CLUSTER = machine("a100-sxm-80gb", "nvlink3", "pcie4-x16", 8, 8, ("ib-hdr", 8, 25e9))
H100 = machine("h100-sxm-80gb", "nvlink4", "pcie5-x16", 8)
H200_CLUSTER = machine("h200-sxm-141gb", "nvlink4", "pcie5-x16", 8, 4, ("efa-v3", 16, 25e9))
B200_CLUSTER = machine("b200-180gb", "nvlink5", "pcie5-x16", 8, 4, ("efa-v4", 8, 50e9))
A3_MEGA = machine("h100-sxm-80gb", "nvlink4", "pcie5-x16", 8, 2, ("gpudirect-tcpxo", 8, 25e9))
MI300X = machine("mi300x-192gb", "xgmi-mi300x", "pcie5-x16", 8)
L40S = machine("l40s-48gb", None, "pcie4-x16", 8)
PRO_6000 = machine("rtx-pro-6000-96gb", None, "pcie5-x16", 8)


def bus_bandwidth(cluster: Cluster, operation: str, payload: float, size: int) -> float:
    """GB/s as nccl-tests prints it: payload * factor / time."""
    factor = (2 if operation == "all_reduce" else 1) * (size - 1) / size
    return payload * factor / collective_seconds(cluster, operation, payload, Group(size)) / 1e9


@pytest.mark.parametrize(
    ("cluster", "operation", "payload", "size", "measured", "tolerance"),
    [
        # nccl-tests tables of github.com/ai-dynamo/aiconfigurator@095f58a51c4c, one node, 512 MiB
        (A100, "all_reduce", 512 * MIB, 8, 222, 0.05),
        (A100, "all_gather", 512 * MIB, 8, 205, 0.05),
        (A100, "reduce_scatter", 512 * MIB, 8, 213, 0.05),
        (A100, "all_to_all", 512 * MIB, 8, 203, 0.05),
        (A100, "all_reduce", 512 * MIB, 4, 217, 0.05),
        (A100, "all_reduce", 512 * MIB, 2, 193, 0.05),
        (H100, "all_reduce", 512 * MIB, 8, 445, 0.05),
        (H100, "all_gather", 512 * MIB, 8, 335, 0.05),
        (H100, "reduce_scatter", 512 * MIB, 8, 336, 0.05),
        (H100, "all_reduce", 64 * MIB, 8, 362, 0.10),
        (B200_CLUSTER, "all_reduce", 512 * MIB, 8, 704, 0.06),
        (B200_CLUSTER, "all_gather", 512 * MIB, 8, 617, 0.05),
        (L40S, "all_reduce", 512 * MIB, 8, 1.45, 0.05),
        (PRO_6000, "all_reduce", 512 * MIB, 8, 24.7, 0.05),
        # github.com/stas00/ml-engineering@744d01e18b79:network/README.md
        (MI300X, "all_reduce", 4 * GIB, 8, 312.9, 0.05),
        (MI300X, "all_reduce", 4 * GIB, 2, 47.7, 0.05),
        # the same, between nodes: 4 nodes of 8 GPUs
        (B200_CLUSTER, "all_reduce", 4 * GIB, 32, 377, 0.05),
        (B200_CLUSTER, "all_reduce", 512 * MIB, 32, 327, 0.10),
        (B200_CLUSTER, "all_reduce", 64 * MIB, 32, 157, 0.10),
        (B200_CLUSTER, "all_reduce", MIB, 32, 5.37, 0.10),
        (H200_CLUSTER, "all_reduce", 4 * GIB, 32, 365, 0.05),
        # github.com/GoogleCloudPlatform/cluster-toolkit@1047080375af:examples/gke-a3-megagpu/README.md, 2 nodes
        (A3_MEGA, "all_gather", 128 * MIB, 16, 156, 0.05),
        (A3_MEGA, "all_gather", 16 * MIB, 16, 79.5, 0.05),
    ],
)
def test_measured_bus_bandwidth(
    cluster: Cluster, operation: str, payload: float, size: int, measured: float, tolerance: float
) -> None:
    assert bus_bandwidth(cluster, operation, payload, size) == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize(
    ("cluster", "through_torch", "nccl_tests"),
    [(A100, 18.0, 47.2), (H100, 39.9, 72.2), (B200_CLUSTER, 36.1, 61.0)],
)
def test_small_messages_lie_between_both_measurements(
    cluster: Cluster, through_torch: float, nccl_tests: float
) -> None:
    # all_reduce of 1 MiB over 8 GPUs: 6, 9 and 4 % of the link through torch, 16, 16 and 7 % in nccl-tests
    assert through_torch < bus_bandwidth(cluster, "all_reduce", MIB, 8) < nccl_tests


def test_inside_a_node_by_hand() -> None:
    # all_reduce of 1 GiB over 8 A100: call 10 us + 21.3 us + 0.0119 us * 32768 + 2 * 7/8 * 2^30 / (0.77 * 300 GB/s)
    expected = 31.3e-6 + 0.0119e-6 * 32768 + 1.75 * GIB / (0.77 * 300e9)
    assert collective_seconds(A100, "all_reduce", GIB, Group(8)) == pytest.approx(expected)


def test_between_nodes_by_hand() -> None:
    # all_gather of 1 GiB over 8 nodes, one GPU each: 8 groups share 8 ports, 25 GB/s for each
    # 7 ring hops of 14 us + 0.006 us * 32768 + 7/8 * 2^30 / (0.92 * 25 GB/s)
    expected = 7 * 14e-6 + 0.006e-6 * 32768 + 0.875 * GIB / (0.92 * 25e9)
    assert collective_seconds(A100_CLUSTER, "all_gather", GIB, Group(8, 8)) == pytest.approx(expected)


def test_all_gpus_of_a_node_use_all_its_ports() -> None:
    # 64 ranks over 8 nodes: 15.0 us inside + 7 hops of 14 us and 56 of 1 us + root + 63/64 * 2^30 / (0.92 * 200 GB/s)
    expected = 15.0e-6 + 7 * 14e-6 + 56e-6 + 0.006e-6 * 32768 + 63 / 64 * GIB / (0.92 * 200e9)
    assert collective_seconds(A100_CLUSTER, "all_gather", GIB, Group(64)) == pytest.approx(expected)


def test_tree_of_an_all_reduce_grows_with_the_logarithm_of_the_nodes() -> None:
    # an empty-handed message: 8 nodes, 2 * log2(8) = 6 hops of 14 us
    assert collective_seconds(A100_CLUSTER, "all_reduce", 1, Group(8, 8)) == pytest.approx(6 * 14e-6, rel=1e-3)


def test_a_broadcast_passes_the_whole_ring() -> None:
    # 1 byte over 64 ranks of 8 nodes: 15.0 us inside, 7 hops of 14 us, 56 of 1 us
    expected = 15.0e-6 + 7 * 14e-6 + 56e-6
    assert collective_seconds(A100_CLUSTER, "broadcast", 1, Group(64)) == pytest.approx(expected, rel=1e-3)


def test_all_to_all_sends_most_of_the_buffer_through_the_ports() -> None:
    # 64 ranks: 56/64 of each GPU's 64 MiB leaves the node; 8 GPUs through 200 GB/s * 0.92
    # 12.8 us inside, one hop of 14 us, 56 peers of 1 us
    payload = 64 * MIB
    expected = 12.8e-6 + 70e-6 + 0.006e-6 * math.sqrt(payload) + 8 * payload * 56 / 64 / (0.92 * 200e9)
    assert collective_seconds(A100_CLUSTER, "all_to_all", payload, Group(64)) == pytest.approx(expected)


def test_message_to_the_next_stage() -> None:
    # inside: call 10 us + 10 us + 2^30 / (0.80 * 300 GB/s)
    # between nodes all 8 GPUs send: 14 us + root + 2^30 / (0.92 * 25 GB/s)
    inside = collective_seconds(A100, "send_receive", GIB, Group(2))
    assert inside == pytest.approx(20e-6 + GIB / 240e9)
    between = collective_seconds(A100_CLUSTER, "send_receive", GIB, Group(2, 8))
    assert between == pytest.approx(14e-6 + 0.006e-6 * 32768 + GIB / 23e9)


def test_a_mesh_message_uses_one_link_only() -> None:
    # MI300X: 0.106 of 448 GB/s, also as part of a group of 8
    seconds = collective_seconds(MI300X, "send_receive", GIB, Group(8))
    assert GIB / seconds == pytest.approx(0.106 * 448e9, rel=0.05)


def test_a_group_of_one_and_an_empty_payload_cost_nothing() -> None:
    for operation in OPERATIONS:
        assert collective_seconds(A100, operation, GIB, Group(1)) == 0
        assert collective_seconds(A100, operation, 0, Group(8)) == 0


def test_sharp_serves_all_reduce_only() -> None:
    # Hopper with 8 GPUs: the all_reduce passes the wire rate of 450 GB/s asymptotically, the all_gather does not
    assert bus_bandwidth(H100, "all_reduce", 16 * GIB, 8) > 450
    assert bus_bandwidth(H100, "all_gather", 16 * GIB, 8) < 400
    assert bus_bandwidth(H100, "all_reduce", 16 * GIB, 4) < 400


def test_groups_crossing_a_host_bridge_at_once_share_it() -> None:
    # pairs of neighbours copy directly; strided pairs cross the bridge together with all others
    neighbours = collective_seconds(L40S, "all_reduce", GIB, Group(2))
    strided = collective_seconds(L40S, "all_reduce", GIB, Group(2, 4))
    assert strided > 5 * neighbours


def test_cards_without_peer_to_peer_stage_in_host_memory() -> None:
    # 0.41 of 31.5 GB/s = 12.9 GB/s; all_reduce of 2 moves the payload once
    cluster = machine("rtx4090-24gb", None, "pcie4-x16", 2)
    without = Cluster(replace(cluster.gpu, peer_to_peer=False), cluster.node, 1, cluster.links)
    assert bus_bandwidth(without, "all_reduce", GIB, 2) == pytest.approx(12.9, rel=0.02)
    assert bus_bandwidth(cluster, "all_reduce", GIB, 2) == pytest.approx(21, rel=0.05)


def test_a_link_nobody_measured_takes_its_stated_efficiency() -> None:
    link = Link("gaudi-ethernet", 100e9, 5e-6, {"all_reduce": Range(0.4, 0.5, 0.6)})
    gpu = Gpu("other", "", "", "", 1, 1, 1e12, {}, {}, Range(0.7, 0.8, 0.9), "pcie5-x16", link.key, 100e9)
    node = Node("node", "other", 8, "switch", 10**12, 400e9, "pcie5-x16", link.key)
    cluster = Cluster(gpu, node, 1, {link.key: link, "pcie5-x16": Link("pcie5-x16", 63e9, 5e-6, {})})
    assert bus_bandwidth(cluster, "all_reduce", 64 * GIB, 8) == pytest.approx(50, rel=0.02)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("group", [Group(2), Group(8), Group(3), Group(64), Group(8, 8), Group(16, 4)])
def test_outlooks_are_ordered_and_time_grows_with_the_payload(operation: str, group: Group) -> None:
    low, typical, high = (
        collective_seconds(A100_CLUSTER, operation, 64 * MIB, group, outlook) for outlook in ("low", "typical", "high")
    )
    assert 0 < low < typical < high
    assert collective_seconds(A100_CLUSTER, operation, 65 * MIB, group) > typical


def test_sizes_between_measured_columns() -> None:
    # 3 GPUs lie log2(1.5) = 0.585 of the way from 2 to 4; 16 GPUs add one more step of latency to 8
    two, four, eight = (curve("nvlink3", "all_reduce", ranks) for ranks in (2, 4, 8))
    three, sixteen = curve("nvlink3", "all_reduce", 3), curve("nvlink3", "all_reduce", 16)
    assert three.share == pytest.approx(two.share + 0.585 * (four.share - two.share), rel=1e-3)
    assert sixteen.latency == pytest.approx(2 * eight.latency - four.latency)
    assert sixteen.share == eight.share


def test_unknown_names_are_input_errors() -> None:
    with pytest.raises(InputError) as error:
        collective_seconds(A100, "gossip", 1, Group(8))
    assert str(error.value) == (
        "unknown collective 'gossip'; expected one of "
        "all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send_receive"
    )
    with pytest.raises(InputError) as error:
        collective_seconds(A100, "all_reduce", 1, Group(8), "best")
    assert str(error.value) == "unknown outlook 'best'; expected one of low, typical, high"
    with pytest.raises(InputError) as error:
        host_link_seconds(A100, 1, "up", 1)
    assert str(error.value) == "unknown direction 'up'; expected one of to_gpu, from_gpu, both"
    with pytest.raises(InputError) as error:
        cpu_optimizer_seconds(A100, 1, 1, implementation="numpy")
    assert str(error.value) == "unknown CPU optimizer 'numpy'; expected one of deepspeed_cpu_adam, torch"


def test_host_link_measured() -> None:
    # nvbandwidth on H200, each GPU on its own PCIe 5 link: 55.43 GB/s in, 55.06 out
    assert GIB / host_link_seconds(H200_CLUSTER, GIB, "to_gpu", 1) / 1e9 == pytest.approx(55.43, rel=0.01)
    assert GIB / host_link_seconds(H200_CLUSTER, GIB, "from_gpu", 1) / 1e9 == pytest.approx(55.06, rel=0.01)


def test_a_host_link_keeps_the_share_it_states() -> None:
    # PCIe 3 reaches 0.79 (0.71 to 0.87); the other direction keeps its proportion 0.87 / 0.88
    link = Link("pcie4-x16", 31.5e9, 5e-6, {"host_copy": Range(0.71, 0.79, 0.87)})
    cluster = Cluster(A100.gpu, A100.node, 1, {**A100.links, link.key: link})
    assert host_link_seconds(cluster, GIB, "to_gpu", 1) == pytest.approx(10e-6 + GIB / (0.79 * 31.5e9))
    assert host_link_seconds(cluster, GIB, "to_gpu", 1, "high") == pytest.approx(10e-6 + GIB / (0.71 * 31.5e9))
    assert host_link_seconds(cluster, GIB, "from_gpu", 1) == pytest.approx(10e-6 + GIB / (0.79 * 0.87 / 0.88 * 31.5e9))


def test_host_link_shared() -> None:
    # 8 GPUs, 4 per uplink: 2 uplinks, each carries 4 payloads: 10 us + 4 * 2^30 / (0.88 * 31.5 GB/s)
    shared = Cluster(A100.gpu, replace(A100.node, gpus_per_host_link=4), 1, A100.links)
    assert host_link_seconds(shared, GIB, "to_gpu", 8) == pytest.approx(10e-6 + 4 * GIB / (0.88 * 31.5e9))
    # alone it has an uplink for itself; pageable memory reaches half
    alone = host_link_seconds(shared, GIB, "to_gpu", 1)
    assert alone == pytest.approx(10e-6 + GIB / (0.88 * 31.5e9))
    assert host_link_seconds(shared, GIB, "to_gpu", 1, pinned=False) == pytest.approx(2 * alone, rel=1e-3)


def test_host_memory_limits_copies_of_all_gpus() -> None:
    # 8 GPUs at 27.7 GB/s would take 222 GB/s; a host of 100 GB/s gives 0.75 of it
    slow = Cluster(A100.gpu, replace(A100.node, host_memory_bandwidth=100e9), 1, A100.links)
    assert host_link_seconds(slow, GIB, "to_gpu", 8) == pytest.approx(10e-6 + 8 * GIB / 75e9)


def test_nvme_reads_and_writes_add() -> None:
    # 8 ranks * (10 GB / 20 GB/s + 5 GB / 10 GB/s) / 0.85
    assert nvme_seconds(A100, 10e9, 5e9, 8) == pytest.approx(8 * 1.0 / 0.85)


def test_no_drives_are_an_input_error() -> None:
    bare = Cluster(A100.gpu, replace(A100.node, nvme=None), 1, A100.links)
    with pytest.raises(InputError) as error:
        nvme_seconds(bare, 1, 1, 1)
    assert str(error.value) == "cluster: node node has no NVMe drives; state nvme of the node"


def test_cpu_optimizer() -> None:
    # 8 ranks * 1e9 elements at 1.5e9/s per node; memory alone: 8e9 * 30 B / (0.75 * 400 GB/s) = 0.8 s
    assert cpu_optimizer_seconds(A100, 1e9, 8) == pytest.approx(8 / 1.5)
    # 50 GB/s of host memory is the limit: 8e9 * 30 / 37.5e9
    slow = Cluster(A100.gpu, replace(A100.node, host_memory_bandwidth=50e9), 1, A100.links)
    assert cpu_optimizer_seconds(slow, 1e9, 8) == pytest.approx(6.4)
    # 4 cores at 0.15e9/s each
    small = Cluster(A100.gpu, replace(A100.node, cpu_cores=4), 1, A100.links)
    assert cpu_optimizer_seconds(small, 1e9, 1) == pytest.approx(1 / 0.6)
    # 11.6e9 parameters took 8.2 s with DeepSpeed's CPU Adam and 56 s with torch's (pull request 735)
    assert cpu_optimizer_seconds(A100, 11.6e9, 1) == pytest.approx(8.2, rel=0.1)
    assert cpu_optimizer_seconds(A100, 11.6e9, 1, implementation="torch") == pytest.approx(56, rel=0.2)


def test_every_coefficient_names_its_source() -> None:
    catalog = coefficients()
    groups = [*catalog["outlook"].values(), *catalog["curves"].values(), *catalog["networks"].values()]
    groups += [catalog[name] for name in ("send_receive", "host_link", "host_memory", "nvme")]
    assert all(group["source"] for group in groups)


def test_every_network_and_link_of_the_catalog_has_coefficients() -> None:
    networks = {link for entry in coefficients()["networks"].values() for link in entry["links"]}
    assert {node.nic_link for node in nodes().values() if node.nic_link} <= networks
    assert all(has_own_curve(node.scale_up_link) for node in nodes().values() if node.scale_up_link)


def test_a_fabric_with_a_base_pays_it_once() -> None:
    # EFA, 1 byte over 4 nodes: all_reduce 24.8 us inside + 215 + 4 hops of 30, all_gather 16.8 + 215 + 3 hops of 30
    # and 28 of 1 between GPUs
    assert collective_seconds(B200_CLUSTER, "all_reduce", 1, Group(32)) == pytest.approx(359.8e-6, rel=1e-3)
    assert collective_seconds(B200_CLUSTER, "all_gather", 1, Group(32)) == pytest.approx(349.8e-6, rel=1e-3)


def test_unknown_networks_count_as_ethernet() -> None:
    assert network("carrier-pigeon") == network("ethernet-10gbe")
