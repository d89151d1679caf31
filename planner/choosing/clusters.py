"""Clusters that a job leaves open, written out one by one: `choose` with lists of counts, or any GPU of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from planner.document_builder import Path
from planner.errors import InputError
from planner.hardware import Node
from planner.hardware_catalog import Hardware
from planner.reading import Document
from planner.units import Mistake, misfit, nearest, parse_count

Cluster = Mapping[str, Any]
Found = TypeVar("Found")
ANY = "any"
MOST = 400  # clusters that one job may list
LARGEST = 1_000_000
COUNTS_EXPECTED = "a whole number, a list of them, or {min: 1, max: 8}"


def is_open(cluster: object) -> bool:
    """Whether the `cluster` of a job file leaves the cluster to the planner."""
    return isinstance(cluster, dict) and ("choose" in cluster or cluster.get("gpu") == ANY)


def listed(document: Document, hardware: Hardware) -> list[tuple[Path, Cluster]]:
    """Every cluster that the document leaves open, as a `cluster` of a job file has it, with the place it comes from.

    In the order of the file and of `hardware`, each once. Raises InputError.
    """
    found: list[tuple[Path, Cluster]] = []
    for at, entry in _entries(document):
        found += [(at, cluster) for cluster in _expanded(document, hardware, at, entry) if (at, cluster) not in found]
    distinct = [item for index, item in enumerate(found) if item[1] not in [other for _, other in found[:index]]]
    if len(distinct) > MOST:
        raise document.error(("cluster",), f"{len(distinct)} clusters are listed", f"at most {MOST}")
    return distinct


def _entries(document: Document) -> Iterator[tuple[Path, dict[str, Any]]]:
    """The mappings under `choose`, or the one of any GPU."""
    cluster = document.data["cluster"]
    if "choose" not in cluster:
        yield ("cluster",), cluster
        return
    for name in cluster:
        if name != "choose":
            raise document.error(("cluster", name), f"{name!r} stands beside choose", "choose alone", key=True)
    entries = cluster["choose"]
    if not isinstance(entries, list) or not entries:
        raise document.error(("cluster", "choose"), "no clusters are listed", "a list such as [{node: NAME, nodes: 2}]")
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            raise document.error(
                ("cluster", "choose", index), misfit(entry), "a cluster such as {node: NAME, nodes: 2}"
            )
        yield ("cluster", "choose", index), entry


def _expanded(document: Document, hardware: Hardware, at: Path, entry: Cluster) -> Iterator[Cluster]:
    """One mapping with a cluster for each of its counts."""
    rest = {name: value for name, value in entry.items() if name not in ("nodes", "gpus")}
    nodes, gpus = (_counts(document, (*at, name)) for name in ("nodes", "gpus"))
    if nodes and gpus:
        raise document.error((*at, "gpus"), "nodes and gpus exclude each other", "one of the two", key=True)
    if "gpu" in entry and "node" not in entry and "gpus_per_node" not in entry:
        yield from _of_catalog(document, hardware, at, rest, nodes, gpus)
    elif not gpus:
        yield from ({**rest, "nodes": count} for count in nodes or (1,))
    else:
        yield from _with_gpus(document, hardware, at, rest, gpus)


def _with_gpus(
    document: Document, hardware: Hardware, at: Path, rest: Cluster, gpus: Iterable[int]
) -> Iterator[Cluster]:
    """One machine as many times as makes each number of GPUs."""
    size = _size(document, hardware, at, rest)
    for count in gpus:
        if count % size:
            raise document.error((*at, "gpus"), f"{count} GPUs are no multiple of the {size} of one node")
        yield {**rest, "nodes": count // size}


def _size(document: Document, hardware: Hardware, at: Path, rest: Cluster) -> int:
    """GPUs in one of the entry's machines."""
    if "node" in rest:
        return _looked_up(document, (*at, "node"), lambda: hardware.node(str(rest["node"]))).gpus
    return _number(document, (*at, "gpus_per_node"), rest["gpus_per_node"])


def _of_catalog(
    document: Document, hardware: Hardware, at: Path, rest: Cluster, nodes: tuple[int, ...], gpus: tuple[int, ...]
) -> Iterator[Cluster]:
    """Every node of the catalog with the entry's GPU in the counts asked for; with any GPU those that have a price."""
    others = {name: value for name, value in rest.items() if name != "gpu"}
    found = 0
    for node in _machines(document, hardware, at, str(rest["gpu"])):
        for count in _node_counts(node, nodes, gpus):
            found += 1
            yield {"node": node.key, **others, "nodes": count}
    if not found:
        counts = ", ".join(map(str, gpus or nodes or (1,)))
        what = "GPUs" if gpus else "nodes"
        raise document.error(at, f"no node of the catalog makes a cluster of {counts} {what} with gpu: {rest['gpu']}")


def _machines(document: Document, hardware: Hardware, at: Path, name: str) -> list[Node]:
    """Nodes of the catalog with a GPU, in the order of the GPUs and then of the nodes."""
    nodes = list(hardware.nodes.values())
    if name == ANY:
        priced = [node for node in nodes if node.price_per_hour is not None]
        return [node for gpu in hardware.gpus for node in priced if node.gpu == gpu]
    key = _looked_up(document, (*at, "gpu"), lambda: hardware.gpu(name)).key
    return [node for node in nodes if node.gpu == key]


def _node_counts(node: Node, nodes: tuple[int, ...], gpus: tuple[int, ...]) -> list[int]:
    """How many of a node there can be: what is asked for, several only where a network joins them."""
    counts = [count // node.gpus for count in gpus if count % node.gpus == 0] if gpus else list(nodes or (1,))
    return [count for count in counts if count == 1 or (node.nics and node.nic_link)]


def _looked_up(document: Document, at: Path, read: Callable[[], Found]) -> Found:
    """An entry of the catalog; its error gets the place in the file."""
    try:
        return read()
    except InputError as error:
        raise document.error(at, error.message, error.expected, error.hint) from None


def _counts(document: Document, at: Path) -> tuple[int, ...]:
    """The whole numbers at a place: one, a list, or a range with both ends; none where nothing stands there."""
    value = _at(document, at)
    if value is None:
        return ()
    if isinstance(value, dict):
        return _range(document, at, value)
    if not isinstance(value, list):
        return (_number(document, at, value),)
    if not value:
        raise document.error(at, "the list is empty", COUNTS_EXPECTED)
    return tuple(dict.fromkeys(_number(document, (*at, index), item) for index, item in enumerate(value)))


def _at(document: Document, at: Path) -> Any:
    """The value at a place, None where its key is not there."""
    place = document.data
    for step in at[:-1]:
        place = place[step]
    return place.get(at[-1])


def _range(document: Document, at: Path, value: Mapping[str, Any]) -> tuple[int, ...]:
    """All whole numbers of a range."""
    for name in value:
        if name not in ("min", "max"):
            hint = nearest(name, ("min", "max"))
            raise document.error((*at, name), f"unknown key {name!r}", "one of min, max", hint, key=True)
    low, high = (_number(document, (*at, name), value.get(name)) for name in ("min", "max"))
    if low > high:
        raise document.error((*at, "min"), f"min {low} is above max {high}", "min of at most max")
    if high - low >= MOST:
        raise document.error(at, f"the range holds {high - low + 1} numbers", f"at most {MOST}")
    return tuple(range(low, high + 1))


def _number(document: Document, at: Path, value: object) -> int:
    """A whole number above zero."""
    try:
        return parse_count(value, positive=True, largest=LARGEST)
    except Mistake as mistake:
        raise document.error(at, mistake.message, COUNTS_EXPECTED, mistake.hint) from None
