"""Fits the allocator's margin and the device's reserve of one machine from measured peaks of memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from planner.accuracy.score import measured_ledger
from planner.calibrate.measured import Measured
from planner.calibrate.overlay_file import MOST_FRAGMENTATION, MOST_RESERVE, Margin
from planner.evaluate import evaluate
from planner.ledger import DeviceLedger


@dataclass(frozen=True)
class MarginFit:
    """The margin, None where no run tells, and reasons for what they cannot tell."""

    margin: Margin | None
    cannot_tell: dict[str, str]


@dataclass(frozen=True)
class _Peak:
    """A run's ledger beside what was measured, in bytes."""

    ledger: DeviceLedger
    usual: float
    metric: str
    bytes: float

    @property
    def fragmentation(self) -> float:
        """Bytes reserved for each byte of tensors."""
        return self.usual * self.bytes / self.ledger.reserved(self.usual)

    def beside(self, fragmentation: float) -> float:
        """Bytes of the device that neither the allocator nor the catalog's reserve explain."""
        return self.bytes - self.ledger.reserved(fragmentation) - self.ledger.reserve


def fit_margin(runs: Sequence[Measured]) -> MarginFit:
    """Medians over the runs; the reserve of a device is never less than the catalog's."""
    peaks = [_peak(run) for run in runs if run.metric in ("reserved", "device")]
    reserved = [peak for peak in peaks if peak.metric == "reserved"]
    device = [peak for peak in peaks if peak.metric == "device"]
    reasons: dict[str, str] = {}
    fragmentation: float | None = None
    reserve: int | None = None
    if reserved:
        fragmentation = round(median(peak.fragmentation for peak in reserved), 4)
        if fragmentation < 1.0:
            reasons["fragmentation"] = "these runs reserve less than the ledger's tensors take"
            fragmentation = None
        elif fragmentation > MOST_FRAGMENTATION:
            reasons["fragmentation"] = f"these runs reserve more than {MOST_FRAGMENTATION} times what tensors take"
            fragmentation = None
    else:
        reasons["fragmentation"] = "no run states what the allocator reserves"
    if device:
        reserve = int(max(0.0, median(peak.beside(fragmentation or peak.usual) for peak in device)))
        if reserve > MOST_RESERVE:
            reasons["reserve_bytes"] = "these runs show more than any device has"
            reserve = None
    else:
        reasons["reserve_bytes"] = "no run states what the device shows"
    known = fragmentation is not None or reserve is not None
    found = Margin(fragmentation=fragmentation, reserve_bytes=reserve) if known else None
    return MarginFit(found, reasons)


def _peak(run: Measured) -> _Peak:
    """The ledger of a run."""
    ledger = measured_ledger(evaluate(run.job, run.plan), run.ranks)
    return _Peak(ledger, run.job.runtime.fragmentation, run.metric, run.bytes)
