"""GPUs, links and nodes as facts in base units: bytes, bytes per second, FLOP per second, seconds, US dollars per hour.

Pure data, filled from `catalogs/gpus.yaml`, `links.yaml` and `nodes.yaml`. A value nobody published is None where
the planner can do without it, and a stated assumption (see `assumptions`) where it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from planner.calibration import Calibration


@dataclass(frozen=True)
class Range:
    """Low, typical and high value of one quantity, in the quantity's own unit; low <= typical <= high."""

    low: float
    typical: float
    high: float

    def at(self, outlook: str) -> float:
        """The value for `outlook`, one of `low`, `typical`, `high`."""
        return {"low": self.low, "typical": self.typical, "high": self.high}[outlook]

    def for_time(self, outlook: str) -> float:
        """The value of a rate that gives the `outlook` of time: low seconds come from high rates."""
        return {"low": self.high, "typical": self.typical, "high": self.low}[outlook]


@dataclass(frozen=True)
class Gpu:
    """One GPU device as a process sees it.

    `usable_memory`: bytes that the driver leaves, as torch prints the device total. `peak`: dense FLOP/s by precision
    (fp32, tf32, fp16, bf16, fp8, fp4; absent = not supported). `scale_up_bandwidth`: bytes/s one way to the other
    GPUs of the node over `scale_up_link` (None: the PCIe host link is all there is), which joins `scale_up_gpus` of
    them (2: a bridge between two cards, there only in nodes of topology `pairs`). `peer_to_peer`: whether GPUs
    copy to each other over PCIe without the host (None: nobody states it). `matrix_efficiency`: share of peak that
    large matrix products reach in training, by precision. `memory_efficiency`: share of `memory_bandwidth` that
    memory-bound kernels reach. `least_power_watts`: the lowest limit that the part is run at where it is held below its
    own. `price_per_hour`: lowest public on-demand list price of one GPU, US dollars.
    `calibration`: what measured runs say about the times of this machine.
    """

    key: str
    name: str
    vendor: str
    architecture: str
    nominal_memory: int
    usable_memory: int
    memory_bandwidth: float
    peak: Mapping[str, float]
    matrix_efficiency: Mapping[str, Range]
    memory_efficiency: Range
    host_link: str
    scale_up_link: str | None = None
    scale_up_bandwidth: float | None = None
    scale_up_gpus: int | None = None
    peer_to_peer: bool | None = None
    power_watts: float | None = None
    least_power_watts: float | None = None
    price_per_hour: float | None = None
    assumptions: tuple[str, ...] = ()
    calibration: Calibration = Calibration()


@dataclass(frozen=True)
class Link:
    """One kind of link: one-way `bandwidth` in bytes/s, `latency` in seconds per message.

    `efficiency`: share of `bandwidth` that large messages reach, by collective (all_reduce, all_gather,
    reduce_scatter, all_to_all, send_receive), as bus bandwidth over link bandwidth; `host_copy`: pinned copies
    between host and GPU.
    """

    key: str
    bandwidth: float
    latency: float
    efficiency: Mapping[str, Range]
    assumptions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Nvme:
    """Local NVMe of a node: `capacity` in bytes, `read` and `write` in bytes/s for the whole node."""

    capacity: int
    read: float
    write: float


@dataclass(frozen=True)
class Node:
    """One machine.

    `topology` of its GPUs: `switch` (all-to-all NVSwitch or xGMI), `mesh` (NVLink cube mesh), `pairs` (NVLink bridges
    between pairs), `pcie` (PCIe switches or host bridge only), `single`. `scale_up_link` names the link between GPUs,
    `host_link` that of a GPU to its host; `gpus_per_host_link` GPUs share one host link's uplink. `nics` network
    ports of `nic_link` with `nic_bandwidth` bytes/s one way each (0 NICs: no other node can be reached).
    `host_memory` in bytes, `host_memory_bandwidth` in bytes/s for the whole node. `price_per_hour` for the node.
    """

    key: str
    gpu: str
    gpus: int
    topology: str
    host_memory: int
    host_memory_bandwidth: float
    host_link: str
    scale_up_link: str | None = None
    gpus_per_host_link: int = 1
    nics: int = 0
    nic_link: str | None = None
    nic_bandwidth: float = 0.0
    nvme: Nvme | None = None
    cpu_cores: int | None = None
    price_per_hour: float | None = None
    assumptions: tuple[str, ...] = field(default=())

    def overridden(self, **changes: object) -> Node:
        """The same node with the user's own values in place of the catalog's."""
        return replace(self, **changes)  # type: ignore[arg-type]
