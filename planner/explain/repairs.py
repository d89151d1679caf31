"""What makes a job fit that does not: each repair the smallest of its kind, solved, with what a token then costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.explain.choices import Asker
from planner.objective import gpu_hours
from planner.search import best_plan
from planner.sweep import Progress
from planner.units import GIB
from planner.variants import Changes, Source

LENGTH_STEPS = 16  # lengths are tried in as many equal steps
GROWTH = (2, 4, 8, 16)
OPTIMIZERS = ("adamw-8bit", "lion", "adafactor", "sgd")
RANK = 16
HOST = "host_memory_holds_every_phase"
BATCH = "batch_divides_over_ranks"


@dataclass(frozen=True, eq=False)
class Repair:
    """One change that makes the job fit: what changes (`sequence_length 2048`), and the best plan then."""

    kind: str
    change: str
    best: Evaluation

    @property
    def cost(self) -> float:
        """GPU-hours for 10^9 tokens: what repairs are sorted by."""
        return gpu_hours(self.best, 1e9)


@dataclass(frozen=True, eq=False)
class Failed:
    """A change that alone is not enough."""

    kind: str
    change: str


Tried = Repair | Failed


def repairs(
    source: Source, conflict: Sequence[str], progress: Progress | None = None
) -> tuple[tuple[Repair, ...], tuple[Failed, ...]]:
    """The repairs by what a token costs, and what was tried in vain."""
    tried: list[Tried] = []
    for number, kind in enumerate(KINDS):
        if progress is not None:
            progress(number, len(KINDS))
        tried += kind(source, conflict)
    found = sorted((item for item in tried if isinstance(item, Repair)), key=lambda item: item.cost)
    return tuple(found), tuple(item for item in tried if isinstance(item, Failed))


def _try(source: Source, kind: str, change: str, changes: Changes) -> Iterator[Tried]:
    """One change; nothing where the job cannot have it."""
    try:
        best = best_plan(source.varied(changes))
    except InputError:
        return
    yield Repair(kind, change, best) if best is not None else Failed(kind, change)


def _pins(source: Source, _: Sequence[str]) -> Iterator[Tried]:
    """A pinned or narrowed choice left to the planner."""
    for choice in source.job().choices:
        best = best_plan(source.without(choice))
        yield Repair("choice", f"{choice} free", best) if best is not None else Failed("choice", f"{choice} free")


def _smallest(steps: Sequence[int], fits: Callable[[int], Evaluation | None]) -> tuple[int, Evaluation] | None:
    """The first of the steps that fits, by bisection; steps are in order of what is changed, least first."""
    best = fits(steps[-1])
    if best is None:
        return None
    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        found = fits(steps[middle])
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    return steps[high], best


def _sequence_length(source: Source, _: Sequence[str]) -> Iterator[Tried]:
    """The longest sequence that fits, in sixteenths of the job's."""
    length = source.job().training.sequence_length
    steps = sorted({length * part // LENGTH_STEPS for part in range(1, LENGTH_STEPS)} - {0, length}, reverse=True)
    if not steps:
        return
    found = _smallest(steps, lambda tokens: best_plan(source.varied({"training.sequence_length": tokens})))
    if found is None:
        yield Failed("sequence_length", f"sequence_length {steps[-1]}")
    else:
        yield Repair("sequence_length", f"sequence_length {found[0]}", found[1])


def _global_batch(source: Source, conflict: Sequence[str]) -> Iterator[Tried]:
    """The next global batch that divides over the ranks, where that is what is wrong."""
    if BATCH not in conflict:
        return
    job = source.job()
    batch = -(-job.training.global_batch // job.cluster.gpus) * job.cluster.gpus
    if batch != job.training.global_batch:
        yield from _try(source, "global_batch", f"global_batch {batch}", {"training.global_batch": batch})


def _machines(source: Source, _: Sequence[str]) -> Iterator[Tried]:
    """The fewest nodes that fit, or GPUs of one node where no network joins nodes."""
    cluster = source.job().cluster
    networked = bool(cluster.node.nics and cluster.node.nic_link)
    if not networked and "node" in source.data()["cluster"]:
        return  # a machine of the catalog has the GPUs it has
    key, now = ("nodes", cluster.nodes) if networked else ("gpus_per_node", cluster.node.gpus)
    most = None
    for factor in GROWTH:
        try:
            most = best_plan(source.varied({f"cluster.{key}": now * factor}))
        except InputError:
            return
        if most is not None:
            yield Repair("gpus", f"{key} {now * factor}", most)
            return
    yield Failed("gpus", f"{key} {now * GROWTH[-1]}")


def _host_memory(source: Source, conflict: Sequence[str]) -> Iterator[Tried]:
    """The least host memory that fits, in whole GiB."""
    job = source.job()
    if HOST not in conflict:
        return
    asker = Asker(job)
    others = {device: size for device, size in asker.capacities.items() if device != "host"}
    leanest = asker.least("host", others)
    if leanest is None:
        yield Failed("host_memory", "any host memory")
        return
    needed = leanest.ledger["host"].peak.total * job.runtime.host_margin
    size = int(-(-needed // GIB))
    yield from _try(source, "host_memory", f"host_memory {size} GiB", {"cluster.host_memory": f"{size} GiB"})


def _optimizers(source: Source, _: Sequence[str]) -> Iterator[Tried]:
    """Optimizers that keep less per parameter."""
    now = source.job().training.optimizer
    for name in OPTIMIZERS:
        if name != now.key:
            yield from _try(source, "optimizer", f"optimizer {name}", {"training.optimizer": name})


def _methods(source: Source, _: Sequence[str]) -> Iterator[Tried]:
    """Adapters on 16-bit and on 4-bit weights."""
    order = ("full", "lora", "qlora")
    for name in order[order.index(source.job().training.method) + 1 :]:
        yield from _try(source, "method", f"method {name} rank {RANK}", {"training.method": {name: {"rank": RANK}}})


def _gpus(source: Source, _: Sequence[str]) -> Iterator[Tried]:
    """The smallest GPU of the catalog with more memory that fits, as many of them in a node."""
    from planner.hardware_files import read_hardware

    cluster = source.job().cluster
    if "node" in source.data()["cluster"]:
        return
    known = read_hardware(source.catalogs).gpus.values()
    larger = (gpu for gpu in known if gpu.usable_memory > cluster.gpu.usable_memory)
    tried: Iterable[str] = [gpu.key for gpu in sorted(larger, key=lambda gpu: (gpu.usable_memory, gpu.key))]
    for key in tried:
        found = next(_try(source, "gpu", f"gpu {key}", {"cluster.gpu": key}), None)
        if isinstance(found, Repair):
            yield found
            return


KINDS = (_pins, _sequence_length, _global_batch, _machines, _host_memory, _optimizers, _methods, _gpus)
