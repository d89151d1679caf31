"""Which limits bind, and what more memory, GPUs or bandwidth would buy: each by solving the job that has it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

from planner.evaluate import Evaluation
from planner.explain.choices import Asker, measured
from planner.job import Job
from planner.search import best_plan
from planner.sweep import TIME
from planner.terms import Limit
from planner.units import GIB

GIGABIT = 1e9 / 8


@dataclass(frozen=True, eq=False)
class LimitReason:
    """One device's limit: the `free` bytes below it, and what more would do.

    `unlimited` is the best plan without the limit, None where it is no better, and then the limit does not bind.
    `next_bytes` more are the fewest that allow a better plan, `next` is the best plan with them; `one_more` that with
    one GiB more.
    """

    constraint: str
    device: str
    capacity: int
    free: int
    unlimited: Evaluation | None = None
    next_bytes: int = 0
    next: Evaluation | None = None
    one_more: Evaluation | None = None


@dataclass(frozen=True, eq=False)
class Purchase:
    """The job with more of something: `what` it is, and the best plan then; None where none fits."""

    what: str
    job: Job
    best: Evaluation | None


def limit_reasons(asker: Asker, best: Evaluation) -> tuple[LimitReason, ...]:
    """Every limit on a device that is there or that the plan uses."""
    limits = asker.specification.limits.values()
    return tuple(
        _limit_reason(asker, best, limit)
        for limit in limits
        if limit.capacity or best.ledger[limit.device].peak.total
    )  # fmt: skip


def _limit_reason(asker: Asker, best: Evaluation, limit: Limit) -> LimitReason:
    """One limit, by solving without it and with more of it."""
    device, capacity = limit.device, limit.capacity
    plain = LimitReason(limit.constraint, device, capacity, capacity - best.ledger[device].peak.total)
    others = {name: size for name, size in asker.capacities.items() if name != device}
    unlimited = asker.best(capacities=others)
    if unlimited is None or measured(unlimited)[0] >= measured(best)[0]:
        return plain
    faster = {**others, TIME: measured(best)[0] - 1}
    next_plan = asker.least(device, faster)
    one_more = asker.best(capacities={**others, device: capacity + GIB})
    if next_plan is None:
        return replace(plain, unlimited=unlimited, one_more=one_more)
    needed = next_plan.ledger[device].peak.total
    return replace(
        plain,
        unlimited=unlimited,
        next_bytes=needed - capacity,
        next=asker.best(capacities={**others, device: needed}),
        one_more=one_more,
    )


def purchases(job: Job) -> tuple[Purchase, ...]:
    """One more GPU or node, twice as many, and one Gbit/s more between nodes."""
    return tuple(Purchase(what, bigger, best_plan(bigger)) for what, bigger in chain(_larger(job), _wider(job)))


def _larger(job: Job) -> Iterator[tuple[str, Job]]:
    """The job on more machines, or on more GPUs of its one machine where no network joins machines."""
    cluster, node = job.cluster, job.cluster.node
    if node.nics and node.nic_link:
        for count in (cluster.nodes + 1, 2 * cluster.nodes) if cluster.nodes > 1 else (2,):
            what = f"{_more(count - cluster.nodes, 'node')} ({count * node.gpus} GPUs)"
            yield what, replace(job, cluster=replace(cluster, nodes=count))
        return
    for count in dict.fromkeys((node.gpus + 1, 2 * node.gpus)):
        topology = "pcie" if node.topology == "single" else node.topology
        bigger = node.overridden(gpus=count, topology=topology)
        yield _more(count - node.gpus, "GPU"), replace(job, cluster=replace(cluster, node=bigger))


def _more(count: int, what: str) -> str:
    """`one more node`, `3 more nodes`."""
    return f"one more {what}" if count == 1 else f"{count} more {what}s"


def _wider(job: Job) -> Iterator[tuple[str, Job]]:
    """The job with more bandwidth between nodes, where it has more than one."""
    cluster, node = job.cluster, job.cluster.node
    if cluster.nodes == 1 or not node.nics:
        return
    whole = node.nics * node.nic_bandwidth
    for what, bandwidth in (("one more Gbit/s between nodes", whole + GIGABIT), ("twice the network", 2 * whole)):
        faster = node.overridden(nic_bandwidth=bandwidth / node.nics)
        yield what, replace(job, cluster=replace(cluster, node=faster))
