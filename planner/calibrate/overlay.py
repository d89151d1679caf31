"""Applies calibrations to jobs on the machines that they were measured on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import cast

from planner.calibrate.groups import combined, groups
from planner.calibrate.overlay_file import Entry, Margin, Overlay, read_overlays
from planner.calibration import Calibration
from planner.effects import MOMENT_SETS, Allocate, Moment
from planner.files import printable
from planner.job import Job
from planner.techniques import RuntimeEntry

__all__ = ["Overlay", "calibrated", "calibration_of", "read_overlays"]


def calibrated(job: Job, overlays: Sequence[Overlay]) -> Job:
    """The job with the times and margins of the last overlay that holds its GPU, and an assumption that says so.

    Of an overlay's entries for the GPU the one of the job's runtime counts, else the one of all runtimes, else the
    first. A job on another GPU keeps the catalogs' figures; its assumptions say that too.
    """
    for overlay in overlays:
        entry = _entry(overlay.entries, job)
        job = replace(job, assumptions=(*job.assumptions, _note(overlay, entry, job)))
        if entry is not None:
            job = _applied(job, entry)
    return job


def calibration_of(entry: Entry) -> Calibration:
    """The multiples and constants of an entry."""
    return combined({name: figure.value for name, figure in entry.time.items()})


def _entry(entries: Iterable[Entry], job: Job) -> Entry | None:
    """The entry that counts for a job."""
    fitting = [entry for entry in entries if entry.gpu == job.cluster.gpu.key]
    for runtime in (job.runtime.runtime, ""):
        for entry in fitting:
            if entry.runtime == runtime:
                return entry
    return fitting[0] if fitting else None


def _applied(job: Job, entry: Entry) -> Job:
    """The job with an entry's times; the margins only under the runtime that they were measured under."""
    gpu = replace(job.cluster.gpu, calibration=calibration_of(entry))
    job = replace(job, cluster=replace(job.cluster, gpu=gpu))
    if entry.memory is None or entry.runtime != job.runtime.runtime:
        return job
    return replace(job, runtime=_with_margin(job.runtime, entry.memory))


def _with_margin(runtime: RuntimeEntry, margin: Margin) -> RuntimeEntry:
    """The runtime with the measured margin in place of the catalog's."""
    changes: dict[str, object] = {}
    if margin.fragmentation is not None:
        changes = {"fragmentation": margin.fragmentation, "fragmentation_source": "calibration"}
    if margin.reserve_bytes:
        changes["effects"] = (*runtime.effects, _reserve(margin.reserve_bytes))
    return runtime.model_copy(update=changes)


def _reserve(size: int) -> Allocate:
    """Bytes that the device holds at every moment beside the catalog's reserve."""
    return Allocate(
        kind="allocate", name="reserve, as measured", book="reserve", bytes=Fraction(size), of="one",
        moments=cast("tuple[Moment, ...]", MOMENT_SETS["always"]), source="calibration",
    )  # fmt: skip


def _note(overlay: Overlay, entry: Entry | None, job: Job) -> str:
    """What an overlay means for a job."""
    name = printable(Path(overlay.file).name)
    if entry is None:
        return f"{name} has no calibration of {job.cluster.gpu.key}: its times are the catalogs'"
    under = f" under {entry.runtime}" if entry.runtime else ""
    runs = f"{entry.runs} run{'' if entry.runs == 1 else 's'} of" if entry.runs else "sweeps on"
    return f"calibrated by {name} from {runs} {entry.gpu}{under}: {changes_text(entry)}"


def changes_text(entry: Entry) -> str:
    """An entry's figures in one line."""
    means = {group.name: group.means for group in groups()}
    parts = [
        f"{means[name]} × {figure.times:.2f}" if figure.times is not None else f"{means[name]} {figure.seconds:.3g} s"
        for name, figure in entry.time.items()
    ]
    if entry.memory is not None and entry.memory.fragmentation is not None:
        parts.append(f"fragmentation {entry.memory.fragmentation:.3f}")
    if entry.memory is not None and entry.memory.reserve_bytes:
        parts.append(f"reserve + {entry.memory.reserve_bytes / 2**20:.0f} MiB")
    return ", ".join(parts) or "nothing that changes a figure"
