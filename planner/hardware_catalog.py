"""The catalogs of GPUs, nodes, links, precisions and optimizers that ship with the planner, in base units.

Each file is read once, when first asked for. Every number of an entry resolves to a source: its `sources` name, by
field (`peak.fp8` before `peak` before `default`), a key of the file's own list. Unknown names raise InputError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator

from planner.errors import InputError
from planner.fields import Bandwidth, Bytes, Count, FlopRate, Name, Price, Record, Seconds, counted, numbered
from planner.hardware import Gpu, Link, Node, Nvme, Range
from planner.numerics import Optimizer, Precision
from planner.reading import read_document, validated
from planner.units import Mistake, nearest, shown

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_receive")
_MOST_HINTS = 6

Numeric = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "fp4"]
# Above 1 only where a switch adds up: an all-reduce then crosses each link once instead of twice.
Share = Annotated[float, numbered(1.2)]
PerParameter = Annotated[float, numbered(1000.0, positive=False)]
ZeroOrMore = Annotated[int, counted(1024, least=0)]
Item = TypeVar("Item")
File = TypeVar("File", bound="CatalogFile")


class RangeEntry(Record):
    """A low, a typical and a high value of one share."""

    low: Share
    typical: Share
    high: Share


def _ordered(entry: RangeEntry) -> Range:
    if not entry.low <= entry.typical <= entry.high:
        raise Mistake(f"{entry.low}, {entry.typical}, {entry.high} are not in order", "low <= typical <= high")
    return Range(entry.low, entry.typical, entry.high)


OrderedRange = Annotated[RangeEntry, AfterValidator(_ordered)]


def _line(text: str) -> str:
    if not text.isprintable():
        raise Mistake(f"{shown(text)} has characters that do not print", "one line of text")
    return text


Line = Annotated[str, AfterValidator(_line)]


class SourceEntry(Record):
    """A source that should be replaced when a better one turns up."""

    text: str
    weak: bool


class Entry(Record):
    """What every entry of these catalogs may say: where its numbers come from, and what it assumes."""

    sources: dict[str, str]
    assumptions: tuple[Line, ...] = ()


class EfficiencyEntry(Entry):
    """Shares of a GPU's vendor rates that training reaches, measured on the part or by rule."""

    basis: Literal["measured", "rule"]
    matrix: dict[Numeric, OrderedRange]
    memory: OrderedRange


class GpuEntry(Entry):
    """One GPU as the catalog writes it; the fields are those of `planner.hardware.Gpu`."""

    name: Name
    vendor: Literal["nvidia", "amd"]
    architecture: Name
    nominal_memory: Bytes
    usable_memory: Bytes
    memory_bandwidth: Bandwidth
    peak: dict[Numeric, FlopRate]
    efficiency: Name
    host_link: Name
    scale_up_link: Name | None = None
    scale_up_bandwidth: Bandwidth | None = None
    scale_up_gpus: Count | None = None
    peer_to_peer: bool | None = None
    power_watts: Annotated[float, numbered(10_000.0)] | None = None
    least_power_watts: Annotated[float, numbered(10_000.0)] | None = None
    price_per_hour: Price | None = None


class LinkEntry(Entry):
    """One link as the catalog writes it; the efficiency `others` stands for every collective not named."""

    summary: str
    bandwidth: Bandwidth
    latency: Seconds
    efficiency: dict[Name, OrderedRange]


class NvmeEntry(Record):
    """The NVMe drives of one machine together."""

    capacity: Bytes
    read: Bandwidth
    write: Bandwidth


class NodeEntry(Entry):
    """One machine as the catalog writes it; the fields are those of `planner.hardware.Node`."""

    gpu: Name
    gpus: Count
    topology: Literal["switch", "mesh", "pairs", "pcie", "single"]
    host_memory: Bytes
    host_memory_bandwidth: Bandwidth
    host_link: Name
    scale_up_link: Name | None = None
    gpus_per_host_link: Count = 1
    nics: ZeroOrMore = 0
    nic_link: Name | None = None
    nic_bandwidth: Bandwidth | None = None
    nvme: NvmeEntry | None = None
    cpu_cores: Count | None = None
    price_per_hour: Price | None = None


class PrecisionEntry(Entry):
    """One number format as the catalog writes it; the fields are those of `planner.numerics.Precision`."""

    summary: str
    dtype: Literal["fp32", "fp16", "bf16"]
    compute_bytes: ZeroOrMore
    gradient_bytes: ZeroOrMore
    master_bytes: ZeroOrMore
    peak: Numeric


class OptimizerEntry(Entry):
    """One optimizer as the catalog writes it; the fields are those of `planner.numerics.Optimizer`."""

    summary: str
    state_bytes_per_parameter: PerParameter
    step_flops_per_parameter: PerParameter
    step_bytes_per_parameter: PerParameter
    step_bandwidth_share: Annotated[float, numbered(1.0)] = 1.0
    temporary_bytes_per_parameter: PerParameter = 0.0
    temporary_bytes_of_largest: PerParameter = 0.0
    paged: bool = False
    newton_schulz_iterations: ZeroOrMore = 0
    fixed_state_bytes: bool = False


class CatalogFile(Record):
    """What every one of these files holds: the list of sources, by the keys that entries use."""

    sources: dict[str, str | SourceEntry]


class HardwareFile(CatalogFile):
    """`catalogs/gpus.yaml`, `nodes.yaml` and `links.yaml`, and files with any of their parts."""

    efficiencies: dict[Name, EfficiencyEntry] = {}
    gpus: dict[Name, GpuEntry] = {}
    nodes: dict[Name, NodeEntry] = {}
    links: dict[Name, LinkEntry] = {}


@dataclass(frozen=True)
class Hardware:
    """GPUs, nodes and links by key."""

    gpus: Mapping[str, Gpu]
    nodes: Mapping[str, Node]
    links: Mapping[str, Link]

    def gpu(self, key: str) -> Gpu:
        """The GPU `key`. Raises InputError with the nearest spelling for an unknown one."""
        return _found(self.gpus, key, "GPU")

    def node(self, key: str) -> Node:
        """The node `key`. Raises InputError with the nearest spelling for an unknown one."""
        return _found(self.nodes, key, "node")


class PrecisionFile(CatalogFile):
    """`catalogs/precisions.yaml`."""

    precisions: dict[str, PrecisionEntry]


class OptimizerFile(CatalogFile):
    """`catalogs/optimizers.yaml`."""

    optimizers: dict[str, OptimizerEntry]


def _read(model: type[File], name: str) -> File:
    resource = files("catalogs").joinpath(name)
    return validated(model, read_document(str(resource), text=resource.read_text(encoding="utf-8")))


@lru_cache(maxsize=3)
def _hardware_file(name: str) -> HardwareFile:
    return _read(HardwareFile, f"{name}.yaml")


def shipped_files() -> tuple[HardwareFile, ...]:
    """The files of GPUs, nodes and links that ship."""
    return tuple(map(_hardware_file, ("gpus", "nodes", "links")))


@lru_cache(maxsize=1)
def shipped() -> Hardware:
    """Every GPU, node and link that ships."""
    return joined(shipped_files())


def joined(hardware_files: Iterable[HardwareFile]) -> Hardware:
    """The machines of several files, in their order; of entries with one key the last counts.

    Raises InputError where a GPU names an efficiency that none of them has.
    """
    found = tuple(hardware_files)
    shares = {key: entry for file in found for key, entry in file.efficiencies.items()}
    return Hardware(
        {key: _gpu(key, entry, shares) for file in found for key, entry in file.gpus.items()},
        {key: _node(key, entry) for file in found for key, entry in file.nodes.items()},
        {key: _link(key, entry) for file in found for key, entry in file.links.items()},
    )


@lru_cache(maxsize=1)
def _precision_file() -> PrecisionFile:
    return _read(PrecisionFile, "precisions.yaml")


@lru_cache(maxsize=1)
def _optimizer_file() -> OptimizerFile:
    return _read(OptimizerFile, "optimizers.yaml")


def gpus() -> Mapping[str, Gpu]:
    """Every GPU of the catalog by key, in the order of the file."""
    return shipped().gpus


def nodes() -> Mapping[str, Node]:
    """Every node of the catalog by key, in the order of the file."""
    return shipped().nodes


def links() -> Mapping[str, Link]:
    """Every link of the catalog by key, in the order of the file."""
    return shipped().links


@lru_cache(maxsize=1)
def precisions() -> Mapping[str, Precision]:
    """Every precision of the catalog by key, in the order of the file."""
    return {key: Precision(key=key, **_given(entry)) for key, entry in _precision_file().precisions.items()}


@lru_cache(maxsize=1)
def optimizers() -> Mapping[str, Optimizer]:
    """Every optimizer of the catalog by key, in the order of the file."""
    return {key: Optimizer(key=key, **_given(entry)) for key, entry in _optimizer_file().optimizers.items()}


def gpu(key: str) -> Gpu:
    """The GPU `key`. Raises InputError with the nearest spelling for an unknown one."""
    return shipped().gpu(key)


def node(key: str) -> Node:
    """The node `key`. Raises InputError with the nearest spelling for an unknown one."""
    return shipped().node(key)


def link(key: str) -> Link:
    """The link `key`. Raises InputError with the nearest spelling for an unknown one."""
    return _found(links(), key, "link")


def precision(key: str) -> Precision:
    """The precision `key`. Raises InputError with the nearest spelling for an unknown one."""
    return _found(precisions(), key, "precision")


def optimizer(key: str) -> Optimizer:
    """The optimizer `key`. Raises InputError with the nearest spelling for an unknown one."""
    return _found(optimizers(), key, "optimizer")


_ENTRIES: Mapping[str, Callable[[], tuple[CatalogFile, Mapping[str, Entry]]]] = {
    "gpus": lambda: (_hardware_file("gpus"), _hardware_file("gpus").gpus),
    "efficiencies": lambda: (_hardware_file("gpus"), _hardware_file("gpus").efficiencies),
    "nodes": lambda: (_hardware_file("nodes"), _hardware_file("nodes").nodes),
    "links": lambda: (_hardware_file("links"), _hardware_file("links").links),
    "precisions": lambda: (_precision_file(), _precision_file().precisions),
    "optimizers": lambda: (_optimizer_file(), _optimizer_file().optimizers),
}
KINDS = tuple(_ENTRIES)


def entries(kind: str) -> Mapping[str, Entry]:
    """The entries of `kind` (one of KINDS) as the catalog writes them, in base units."""
    return _found(_ENTRIES, kind, "kind of catalog entry")()[1]


def source(kind: str, key: str, field: str) -> str:
    """Full text of the source of one number: `source("gpus", "h100-sxm-80gb", "peak.fp8")`.

    Raises InputError for an unknown kind or key, and where the catalog names no source for the field.
    """
    file, known = _found(_ENTRIES, kind, "kind of catalog entry")()
    named = _found(known, key, kind).sources
    parts = field.split(".")
    prefixes = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    name = next((named[prefix] for prefix in [*prefixes, "default"] if prefix in named), "")
    found = _found(file.sources, name, "source")
    return found if isinstance(found, str) else found.text


def source_names(kind: str) -> tuple[str, ...]:
    """Keys of the sources that the file of `kind` lists."""
    file, _ = _found(_ENTRIES, kind, "kind of catalog entry")()
    return tuple(file.sources)


def is_weak(kind: str, name: str) -> bool:
    """Whether the source `name` of the file that holds `kind` should be replaced when a better one turns up."""
    file, _ = _found(_ENTRIES, kind, "kind of catalog entry")()
    return isinstance(_found(file.sources, name, "source"), SourceEntry)


def _found(known: Mapping[str, Item], key: str, what: str) -> Item:
    if key in known:
        return known[key]
    raise InputError(f"unknown {what} {shown(key)}", hint=_hint(key, tuple(known)))


def _hint(key: str, known: tuple[str, ...]) -> str:
    """The nearest spelling; else the names that hold every part of the key; else all names where they are few."""
    close = nearest(key, known)
    parts = key.lower().replace("_", "-").replace(" ", "-").split("-")
    alike = [name for name in known if all(part in name for part in parts)] if key.strip() else []
    if alike and not (close and len(alike) == 1):
        listed = ", ".join(alike[:_MOST_HINTS])
        return f"did you mean one of {listed}?" if len(alike) > 1 else f"did you mean {listed!r}?"
    few = len(known) <= 2 * _MOST_HINTS
    return close or (f"one of {', '.join(known)}" if few else "`planner catalog list` names them")


def _given(entry: Entry) -> dict[str, Any]:
    """The entry's own fields by name, values already in base units."""
    return {name: getattr(entry, name) for name in type(entry).model_fields if name != "sources"}


def _gpu(key: str, entry: GpuEntry, efficiencies: Mapping[str, EfficiencyEntry]) -> Gpu:
    found = _found(efficiencies, entry.efficiency, "efficiency")
    given = _given(entry)
    given.pop("efficiency")
    by_rule = (f"matrix and memory efficiency follow a rule ({entry.efficiency}), not a measurement",)
    given["assumptions"] = entry.assumptions + found.assumptions + (by_rule if found.basis == "rule" else ())
    matrix = {name: found.matrix[name] for name in entry.peak}
    return Gpu(key=key, matrix_efficiency=matrix, memory_efficiency=found.memory, **given)  # type: ignore[arg-type]


def _node(key: str, entry: NodeEntry) -> Node:
    given = _given(entry)
    given["nic_bandwidth"] = entry.nic_bandwidth or 0.0
    given["nvme"] = entry.nvme and Nvme(entry.nvme.capacity, entry.nvme.read, entry.nvme.write)
    return Node(key=key, **given)


def _link(key: str, entry: LinkEntry) -> Link:
    others = entry.efficiency.get("others")
    spread = dict.fromkeys(COLLECTIVES, others) if others else {}
    stated = {name: value for name, value in entry.efficiency.items() if name != "others"}
    efficiency: Any = {**spread, **stated}
    return Link(key, entry.bandwidth, entry.latency, efficiency, entry.assumptions)
