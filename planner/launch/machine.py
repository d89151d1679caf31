"""The machine at hand, and where it is not what the job says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.evaluate import Evaluation
from planner.units import format_bytes

# A job of at most this many parameters is rehearsed on processors where there is no GPU; larger ones would take hours.
SMALL_PARAMETERS = 50_000_000
# A control group's limit of memory, version 2 and version 1.
LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
# A card prints some hundred MiB less than it was sold with, depending on driver and ECC.
GPU_TOLERANCE = 0.02
HOST_TOLERANCE = 0.05
_GPUS = """
import json, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
found = [torch.cuda.get_device_properties(index) for index in range(count)]
print(json.dumps([[one.name, one.total_memory] for one in found]))
"""


@dataclass(frozen=True)
class Machine:
    """One node as torch and the system see it: each GPU's name and bytes, and the bytes of host memory."""

    gpus: tuple[tuple[str, int], ...]
    host_memory: int


def this_machine() -> Machine:
    """The node that this process runs on; GPUs are those that a training process would see."""
    return Machine(_visible_gpus(), _host_memory())


def _visible_gpus() -> tuple[tuple[str, int], ...]:
    """Asked of torch in another process, so that this one holds no context; none where torch is not installed."""
    found = subprocess.run([sys.executable, "-c", _GPUS], capture_output=True, text=True, check=False)
    if found.returncode:
        return ()
    return tuple((str(name), int(size)) for name, size in json.loads(found.stdout.splitlines()[-1]))


def _host_memory() -> int:
    """Physical memory, or the control group's limit where that is less."""
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [path.read_text().strip() for path in LIMITS if path.exists()]
    return min([physical, *(int(limit) for limit in limits if limit.isdecimal())])


def disagreements(evaluation: Evaluation, machine: Machine) -> tuple[str, ...]:
    """Where `machine` has less than the job's node, one sentence each."""
    return tuple(_gpus(evaluation, machine)) + tuple(_host(evaluation, machine))


def _gpus(evaluation: Evaluation, machine: Machine) -> Iterator[str]:
    """Number and memory of the GPUs."""
    cluster = evaluation.job.cluster
    if len(machine.gpus) < cluster.gpus_per_node:
        yield f"{_count(len(machine.gpus), 'GPU')} here, the job's node has {cluster.gpus_per_node}"
    smallest = min((size for _, size in machine.gpus), default=None)
    if smallest is not None and smallest < cluster.gpu.usable_memory * (1 - GPU_TOLERANCE):
        yield (
            f"{format_bytes(smallest)} of memory on a GPU here, "
            f"the job's {cluster.gpu.key} has {format_bytes(cluster.gpu.usable_memory)}"
        )


def _host(evaluation: Evaluation, machine: Machine) -> Iterator[str]:
    """Host memory: what the job says, or at least what the plan needs of it."""
    stated, needed = evaluation.job.cluster.node.host_memory, evaluation.ledger["host"].peak.total
    if machine.host_memory < stated * (1 - HOST_TOLERANCE) and machine.host_memory < needed:
        yield (
            f"{format_bytes(machine.host_memory)} of host memory here, the plan needs {format_bytes(needed)} and the "
            f"job's node has {format_bytes(stated)}"
        )


def processor_disagreements(evaluation: Evaluation, machine: Machine) -> tuple[str, ...]:
    """Why the plan's ranks cannot all run on the processors of `machine`, one sentence each."""
    job, found = evaluation.job, []
    if job.cluster.nodes > 1:
        found.append(f"the job has {job.cluster.nodes} nodes, processors rehearse one")
    if job.architecture.parameters > SMALL_PARAMETERS:
        found.append(
            f"the model has {job.architecture.parameters:,} parameters, processors rehearse up to {SMALL_PARAMETERS:,}"
        )
    needed = processor_bytes(evaluation)
    if needed > machine.host_memory:
        found.append(f"{format_bytes(machine.host_memory)} of host memory here, the ranks need {format_bytes(needed)}")
    return tuple(found)


def processor_bytes(evaluation: Evaluation) -> int:
    """Host memory of all ranks of a node when their GPU's books lie there too, without what a driver takes."""
    gpu, host = evaluation.ledger["gpu"].peak, evaluation.ledger["host"].peak
    return (gpu.total - gpu.books["reserve"]) * evaluation.job.cluster.gpus_per_node + host.total


def _count(number: int, what: str) -> str:
    """`no GPU`, `1 GPU`, `3 GPUs`."""
    return f"no {what}" if not number else f"{number} {what}{'s' if number > 1 else ''}"
