"""The sentence that all memory limits share."""

from __future__ import annotations

from planner.job import Job
from planner.ledger import ledger
from planner.plan import Plan
from planner.terms import Limit
from planner.units import format_bytes

PLACES = {"gpu": "one GPU", "host": "the host memory of one node", "nvme": "the NVMe of one node"}


def limit(job: Job, constraint: str, device: str) -> tuple[Limit, ...]:
    """The limit of a device: its planned capacity, at every moment."""
    from planner.ledger import capacities

    return (Limit(constraint, device, capacities(job)[device].planned),)


def overflow(
    job: Job, plan: Plan, device: str, most: int | None = None, what: str = "that can be planned with"
) -> str | None:
    """How far the plan's worst moment on `device` is over `most` bytes, the planned capacity, and its largest lines."""
    found = ledger(job, plan)[device]
    peak, planned = found.peak, found.capacity.planned if most is None else most
    if peak.total <= planned:
        return None
    largest = sorted(peak.lines, key=lambda line: -line.bytes)[:3]
    lines = ", ".join(f"{line.name} {format_bytes(line.bytes)}" for line in largest)
    return (
        f"{peak.phase} needs {format_bytes(peak.total)} of {PLACES[device]}, {format_bytes(peak.total - planned)} over "
        f"the {format_bytes(planned)} {what}; most of it is {lines}"
    )
