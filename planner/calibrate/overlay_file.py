"""Overlay files: a YAML file with `calibration:`, one entry for each machine and runtime that was calibrated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from planner.calibrate.groups import groups
from planner.catalog_files import CALIBRATION, documents
from planner.hardware_files import read_hardware
from planner.reading import Document, nearest, validated
from planner.units import shown

KEY = CALIBRATION
# Bytes reserved for each byte of tensors, and bytes beside them, beyond which a figure is a slip.
MOST_FRAGMENTATION, MOST_RESERVE = 10, 2**40


class _Record(BaseModel):
    """A frozen part of the file that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Figure(_Record):
    """A multiple of the catalogs' time, or seconds, with its standard error (of a multiple: relative)."""

    times: float | None = Field(default=None, ge=0.01, le=100)
    seconds: float | None = Field(default=None, ge=0, le=1e5)
    error: float = Field(default=0.0, ge=0)

    @property
    def value(self) -> float:
        """The multiple or the seconds."""
        return self.times if self.times is not None else self.seconds or 0.0


class Errors(_Record):
    """Mean absolute relative error of the runs' step times."""

    before: float
    after: float


class Margin(_Record):
    """Bytes that the allocator takes for each byte of tensors, and bytes of the device beside the ledger's reserve."""

    fragmentation: float | None = Field(default=None, ge=1, le=MOST_FRAGMENTATION)
    reserve_bytes: int | None = Field(default=None, ge=0, le=MOST_RESERVE)


class Entry(_Record):
    """One machine: a GPU of the catalog, under one runtime or (where none is named) under several."""

    gpu: str
    runtime: str = ""
    runs: int = Field(default=0, ge=0)
    error: Errors | None = None
    time: dict[str, Figure] = Field(default_factory=dict)
    memory: Margin | None = None
    cannot_tell: dict[str, str] = Field(default_factory=dict)
    measured: tuple[dict[str, Any], ...] = ()


class OverlayFile(_Record):
    """The whole file."""

    calibration: tuple[Entry, ...]


@dataclass(frozen=True)
class Overlay:
    """An overlay and the name of its file."""

    file: str
    entries: tuple[Entry, ...]


def read_overlays(catalogs: Iterable[Path]) -> tuple[Overlay, ...]:
    """The calibrations among catalog files and in folders of them. Raises InputError for a malformed one."""
    given = tuple(catalogs)
    found = tuple(documents(given, "calibration"))
    known = tuple(read_hardware(given).gpus) if found else ()
    return tuple(overlay_of(document, known) for document in found)


def _hint(name: str, known: Iterable[str]) -> str:
    """The nearest spelling, or all of them."""
    return nearest(name, known) or "one of " + ", ".join(known)


def overlay_of(document: Document, gpus: Sequence[str]) -> Overlay:
    """One file, with every name looked up; `gpus` are the names of all GPUs. Raises InputError."""
    found = validated(OverlayFile, document)
    known = {group.name: group for group in groups()}
    for index, entry in enumerate(found.calibration):
        place = (KEY, index)
        if entry.gpu not in gpus:
            hint = nearest(entry.gpu, gpus) or "`planner catalog list gpus` names them"
            raise document.error((*place, "gpu"), f"unknown GPU {shown(entry.gpu)}", hint=hint)
        for name, figure in entry.time.items():
            if name not in known:
                raise document.error(
                    (*place, "time", name), f"unknown group {shown(name)}", hint=_hint(name, known), key=True
                )
            unit, other = ("seconds", "times") if known[name].constant else ("times", "seconds")
            if getattr(figure, unit) is None or getattr(figure, other) is not None:
                raise document.error((*place, "time", name), f"{name} is a number of {unit}", f"{{{unit}: NUMBER}}")
    return Overlay(document.file, found.calibration)
