"""The ledger of a plan: every memory term over the moments of a step, by device and book, and the verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import ceil

from planner.job import Job
from planner.layouts import stages
from planner.memory import memory_terms
from planner.plan import Plan, layout_of
from planner.share import share
from planner.space import job_space
from planner.terms import BOOKS, DEVICES, MOMENTS, PHASES, MemoryTerm


@dataclass(frozen=True)
class Line:
    """One term's bytes in one book."""

    name: str
    book: str
    bytes: int
    source: str = ""
    apart: bool = False


def _pooled(line: Line) -> bool:
    """Whether a line's tensors share the allocator's free blocks."""
    return line.book != "reserve" and not line.apart


@dataclass(frozen=True)
class Moment:
    """All lines that stand at one moment."""

    name: str
    lines: tuple[Line, ...]

    @property
    def phase(self) -> str:
        """The phase that the moment belongs to."""
        return MOMENTS[self.name]

    @cached_property
    def total(self) -> int:
        """Bytes of all lines."""
        return sum(line.bytes for line in self.lines)

    @cached_property
    def books(self) -> Mapping[str, int]:
        """Bytes by book; the books add up to `total`."""
        return {book: sum(line.bytes for line in self.lines if line.book == book) for book in BOOKS}


@dataclass(frozen=True)
class Capacity:
    """`usable` bytes of a device, and the `planned` bytes that leave the allocator its margin."""

    usable: int
    planned: int


@dataclass(frozen=True)
class Shown:
    """What tools show of one GPU, in bytes: torch's most memory allocated and reserved, and the driver's (nvidia-smi).

    `short`: what the allocator would reserve further if there were room; it gives unused blocks back instead.
    """

    allocated: int
    reserved: int
    device: int
    short: int


@dataclass(frozen=True)
class DeviceLedger:
    """The moments of one device; the peak is the first moment that holds the most.

    `idle`: blocks that stand at no moment, since their tensors never do while much else is there, and that the
    allocator keeps nevertheless.
    """

    device: str
    moments: tuple[Moment, ...]
    capacity: Capacity
    idle: tuple[Line, ...] = ()

    @cached_property
    def peak(self) -> Moment:
        """The moment that holds the most."""
        return max(self.moments, key=lambda moment: moment.total)

    def phase(self, name: str) -> Moment:
        """The worst moment of a phase."""
        return max((moment for moment in self.moments if moment.phase == name), key=lambda moment: moment.total)

    @property
    def phases(self) -> Mapping[str, Moment]:
        """The worst moment of each phase, in order of time."""
        return {name: self.phase(name) for name in PHASES}

    def tensors(self) -> int:
        """The most bytes that tensors take at once: all books but `reserve`."""
        return max(moment.total - moment.books["reserve"] for moment in self.moments)

    @property
    def reserve(self) -> int:
        """The most bytes that driver and libraries take beside the allocator."""
        return max(moment.books["reserve"] for moment in self.moments)

    def reserved(self, fragmentation: float) -> float:
        """Bytes that the allocator takes from the driver.

        An allocator that runs short gives free blocks back, so that more than the GPU has is never reserved.
        """
        return max(self.tensors(), min(self.wanted(fragmentation), self.capacity.usable - self.reserve))

    def wanted(self, fragmentation: float) -> float:
        """Bytes that the allocator takes from the driver where it never runs short.

        What tensors take with the usual waste; what stands apart from the common pool (buffers larger than any free
        block, tensors of other streams, idle blocks) adds to the most that everything else takes at any moment.
        """
        own: dict[str, int] = {}
        for line in (*self.idle, *(line for moment in self.moments for line in moment.lines if line.apart)):
            own[line.name] = max(own.get(line.name, 0), line.bytes)
        rest = max(sum(line.bytes for line in m.lines if _pooled(line)) for m in self.moments)
        return max(self.tensors() * fragmentation, rest * fragmentation + sum(own.values()))

    def shown(self, fragmentation: float) -> Shown:
        """What tools show of the device's peak."""
        reserved = self.reserved(fragmentation)
        short = max(0, ceil(self.wanted(fragmentation) - reserved))
        return Shown(self.tensors(), ceil(reserved), ceil(reserved + self.reserve), short)

    @property
    def verdict(self) -> str:
        """`fits`, `risky` (inside the allocator's margin) or `no`."""
        if self.peak.total > self.capacity.usable:
            return "no"
        return "risky" if self.peak.total > self.capacity.planned else "fits"


Ledger = Mapping[str, DeviceLedger]


def capacities(job: Job) -> Mapping[str, Capacity]:
    """What each device holds: one GPU, one node's host memory, one node's NVMe."""
    gpu, host = job.cluster.gpu.usable_memory, job.cluster.node.host_memory
    nvme = job.cluster.node.nvme.capacity if job.cluster.node.nvme else 0
    return {
        "gpu": Capacity(gpu, int(gpu / job.runtime.fragmentation)),
        "host": Capacity(host, int(host / job.runtime.host_margin)),
        "nvme": Capacity(nvme, nvme),
    }


def with_headroom(job: Job) -> int:
    """Bytes of one GPU that can be planned with where the job's headroom stays free; none where it takes all."""
    return max(0, int((job.cluster.gpu.usable_memory - job.limits.memory_headroom) / job.runtime.fragmentation))


@lru_cache(maxsize=16)
def stage_ledgers(job: Job, plan: Plan) -> Mapping[str, Ledger]:
    """The books of `plan` on every device, by pipeline stage; total for any plan, also one that breaks rules."""
    values = job_space(job).complete(plan)
    amounts = [(term, term.value(values)) for term in memory_terms(job)]
    held = [(term, size) for term, size in amounts if size]
    present = [stage for stage in stages(job) if share(job, layout_of(plan), stage).exists]
    return {stage: _ledger(job, [(term, size) for term, size in held if term.stage == stage]) for stage in present}


def ledger(job: Job, plan: Plan) -> Ledger:
    """The books of `plan` on every device, of the pipeline stage that holds the most there."""
    found = stage_ledgers(job, plan).values()
    return {device: max((books[device] for books in found), key=lambda one: one.peak.total) for device in DEVICES}


def _ledger(job: Job, amounts: Sequence[tuple[MemoryTerm, int]]) -> Ledger:
    """The moments of every device from the terms of one stage."""
    found = capacities(job)
    return {device: _device(device, amounts, found[device]) for device in DEVICES}


def _device(device: str, amounts: Sequence[tuple[MemoryTerm, int]], capacity: Capacity) -> DeviceLedger:
    """The lines of one device; those of no moment are idle."""
    lines = [
        (term.moments, Line(term.name, term.book, size, term.source, term.apart))
        for term, size in amounts
        if term.device == device
    ]
    standing = (Moment(name, tuple(line for moments, line in lines if name in moments)) for name in MOMENTS)
    return DeviceLedger(device, tuple(standing), capacity, tuple(line for moments, line in lines if not moments))
