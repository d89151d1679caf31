"""Nodes: figures in proportion to their GPUs and cores, and to the links that they name."""

from __future__ import annotations

from collections.abc import Iterator

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.envelope import Envelope, judged
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.gpus import matrix_rate
from planner.catalog_check.names import hardware_entries
from planner.hardware_catalog import GpuEntry, NodeEntry
from planner.units import format_bandwidth, format_bytes, format_seconds


def node_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Everything about the nodes."""
    for place, _, node in hardware_entries(catalog, "nodes"):
        gpu: GpuEntry | None = catalog.entries("gpus").get(node.gpu)
        yield from _host(envelope, place, node, gpu)
        yield from _network(catalog, envelope, place, node)
        yield from _nvme(envelope, place, node)
        yield from _price(envelope, place, node, gpu)


def _host(envelope: Envelope, place: Place, node: NodeEntry, gpu: GpuEntry | None) -> Iterator[Finding]:
    """Host memory, its bandwidth and cores in proportion."""
    ranges, memory, bandwidth = envelope.nodes, node.host_memory, node.host_memory_bandwidth
    at = place / "host_memory"
    if gpu is not None:
        share = memory / (gpu.nominal_memory * node.gpus)
        yield from judged(at, share, ranges["host_memory_over_gpu_memory"], "host memory")
    rate = place / "host_memory_bandwidth"
    seconds = memory / bandwidth
    yield from judged(rate, seconds, ranges["host_read_time"], "the time to read host memory", format_seconds)
    if node.cpu_cores:
        cores, per_core = node.cpu_cores, ranges["host_memory_per_core"]
        yield from judged(at, memory / cores, per_core, "host memory of a core", format_bytes)
        per_core, what = ranges["host_bandwidth_per_core"], "host bandwidth of a core"
        yield from judged(rate, bandwidth / cores, per_core, what, format_bandwidth)
        yield from judged(place / "cpu_cores", cores / node.gpus, ranges["cores_per_gpu"], "cores for each GPU")


def _network(catalog: Catalog, envelope: Envelope, place: Place, node: NodeEntry) -> Iterator[Finding]:
    """The rate of a port is the link's or a share of it."""
    if not node.nics or node.nic_link is None or node.nic_bandwidth is None:
        return
    ranges, at = envelope.nodes, place / "nic_bandwidth"
    link = catalog.entries("links").get(node.nic_link)
    if link is not None:
        yield from judged(at, node.nic_bandwidth / link.bandwidth, ranges["nic_share"], "the rate of a port")
    each = node.nics * node.nic_bandwidth / node.gpus
    yield from judged(place / "nics", each, ranges["network_per_gpu"], "the network of a GPU", format_bandwidth)


def _nvme(envelope: Envelope, place: Place, node: NodeEntry) -> Iterator[Finding]:
    """Drives read at least as fast as they write, and in proportion to what they hold."""
    if node.nvme is None:
        return
    nvme, at, ranges = node.nvme, place / "nvme", envelope.nodes
    seconds, share = nvme.capacity / nvme.read, nvme.read / nvme.write
    what = "the time to read the drives"
    yield from judged(at / "capacity", seconds, ranges["nvme_read_time"], what, format_seconds)
    yield from judged(at / "write", share, ranges["nvme_read_over_write"], "the read rate")
    each, read = nvme.capacity / node.gpus, nvme.read / node.gpus
    yield from judged(at / "capacity", each, ranges["nvme_capacity_per_gpu"], "NVMe for each GPU", format_bytes)
    yield from judged(at / "read", read, ranges["nvme_read_per_gpu"], "reading for each GPU", format_bandwidth)


def _price(envelope: Envelope, place: Place, node: NodeEntry, gpu: GpuEntry | None) -> Iterator[Finding]:
    """The price of a GPU's share, beside the GPU's own price and its rate."""
    if gpu is None or node.price_per_hour is None:
        return
    at, price = place / "price_per_hour", node.price_per_hour / node.gpus
    if gpu.price_per_hour:
        share = price / gpu.price_per_hour
        yield from judged(at, share, envelope.nodes["price_over_gpu_price"], "the price for each GPU")
    architecture, rate = envelope.architectures.get(gpu.architecture), matrix_rate(gpu)
    if architecture and rate:
        yield from judged(at, price / rate, architecture.price_over_rate, "price for each GPU over its 16-bit peak")
