"""Where memory runs out: the first phase that exceeds a device, and the line that does it."""

from __future__ import annotations

from dataclasses import dataclass

from planner.ledger import DeviceLedger, Ledger, Line, Moment


@dataclass(frozen=True)
class Failure:
    """The first moment in time that exceeds a device, the line that crosses its limit, and by how much it does."""

    device: str
    phase: str
    line: str
    book: str
    bytes: int
    bytes_over: int


def first_failure(ledger: Ledger) -> Failure | None:
    """The failure that comes first in time; None where everything fits."""
    found = [item for item in (_of_device(name, device) for name, device in ledger.items()) if item]
    return min(found, key=lambda item: item[0])[1] if found else None


def _of_device(name: str, found: DeviceLedger) -> tuple[int, Failure] | None:
    """The first moment of a device that holds too much, with its place in time."""
    before: Moment | None = None
    for index, moment in enumerate(found.moments):
        over = moment.total - found.capacity.usable
        if over > 0:
            line = _crossing(moment, before, found.capacity.usable)
            return index, Failure(name, moment.phase, line.name, line.book, line.bytes, over)
        before = moment
    return None


def _crossing(moment: Moment, before: Moment | None, usable: int) -> Line:
    """The line that crosses the limit: those that stood before come first, the others from the largest on."""
    stood = {(line.name, line.book) for line in before.lines} if before else set()
    lines = sorted(moment.lines, key=lambda line: ((line.name, line.book) not in stood, -line.bytes))
    total = 0
    for line in lines:
        total += line.bytes
        if total > usable:
            return line
    return lines[-1]
