"""GPUs, nodes and links fit together: names that exist, and a topology that the parts can have.

Nothing here asks how plausible a figure is: whatever passes can be planned with.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.names import hardware_entries, known
from planner.hardware_catalog import COLLECTIVES, GpuEntry, NodeEntry

SCALE_UP = ("scale_up_link", "scale_up_bandwidth", "scale_up_gpus")
LISTED = "`planner catalog list` names what ships"
USES = (*COLLECTIVES, "others", "host_copy")


def machine_findings(catalog: Catalog) -> Iterator[Finding]:
    """Everything that keeps a machine from being put together."""
    for place, _, link in hardware_entries(catalog, "links"):
        for use in link.efficiency:
            yield from known(place / "efficiency" / use, use, USES, "use of a link")
    for place, _, gpu in hardware_entries(catalog, "gpus"):
        yield from _gpu(catalog, place, gpu)
    for place, _, node in hardware_entries(catalog, "nodes"):
        yield from _node(catalog, place, node)
        yield from _topology(place, node, catalog.entries("gpus").get(node.gpu))


def _gpu(catalog: Catalog, place: Place, gpu: GpuEntry) -> Iterator[Finding]:
    """Links and efficiencies exist and have what this GPU asks of them; the link between GPUs is described whole."""
    yield from known(place / "host_link", gpu.host_link, catalog.names("links"), "link", LISTED)
    yield from known(place / "efficiency", gpu.efficiency, catalog.names("efficiencies"), "efficiency", LISTED)
    if gpu.scale_up_link:
        yield from known(place / "scale_up_link", gpu.scale_up_link, catalog.names("links"), "link", LISTED)
    host = catalog.entries("links").get(gpu.host_link)
    if host is not None and "host_copy" not in host.efficiency:
        message = f"{gpu.host_link} is no link to a host: it has no efficiency host_copy"
        yield (place / "host_link").error(message, "name a link that has one")
    shares = catalog.entries("efficiencies").get(gpu.efficiency)
    for precision in gpu.peak:
        if shares is not None and precision not in shares.matrix:
            message = f"efficiency '{gpu.efficiency}' says nothing about {precision}"
            yield (place / "peak" / precision).error(message, "it knows " + ", ".join(shares.matrix))
    missing = [name for name in SCALE_UP if getattr(gpu, name) is None]
    if missing and len(missing) < len(SCALE_UP):
        message = f"{', '.join(missing)} missing beside the rest of the link between GPUs"
        yield place.error(message, "state all three or none")


def _node(catalog: Catalog, place: Place, node: NodeEntry) -> Iterator[Finding]:
    """The GPU and the links exist; ports have a link and a rate."""
    yield from known(place / "gpu", node.gpu, catalog.names("gpus"), "GPU", LISTED)
    for name in ("host_link", "scale_up_link", "nic_link"):
        link = getattr(node, name)
        if link is not None:
            yield from known(place / name, link, catalog.names("links"), "link", LISTED)
    if node.nics and (node.nic_link is None or node.nic_bandwidth is None):
        yield (place / "nics").error("ports without nic_link or nic_bandwidth", "state both")


def _topology(place: Place, node: NodeEntry, gpu: GpuEntry | None) -> Iterator[Finding]:
    """One GPU is `single`, switches and meshes have a link between GPUs, links are those of the GPU."""
    at = place / "topology"
    if (node.topology == "single") != (node.gpus == 1):
        yield at.error(f"'{node.topology}' with {node.gpus} GPUs", "one GPU is 'single', several are not")
    if node.topology in ("switch", "mesh", "pairs") and node.scale_up_link is None:
        yield at.error(f"'{node.topology}' without scale_up_link", "name the link between the GPUs")
    if node.gpus % node.gpus_per_host_link:
        message = f"{node.gpus_per_host_link} does not divide {node.gpus} GPUs"
        yield (place / "gpus_per_host_link").error(message, "each host link serves as many GPUs")
    if gpu is None:
        return
    if node.topology in ("switch", "mesh") and (gpu.scale_up_gpus or 0) < min(node.gpus, 3):
        message = f"'{node.topology}' of {node.gpus} GPUs, {node.gpu} joins {gpu.scale_up_gpus or 1}"
        yield at.error(message, "'pairs' has bridges between two, 'pcie' no link between GPUs")
    for name in ("host_link", "scale_up_link"):
        link = getattr(node, name)
        if link is not None and link != getattr(gpu, name):
            yield (place / name).error(f"{link}, but {node.gpu} has {getattr(gpu, name) or 'none'}", "the GPU's own")
