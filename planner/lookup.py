"""What the names of a job file are looked up in: the shipped catalogs with the files that a user names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from planner.calibrate.overlay_file import Overlay, read_overlays
from planner.hardware_catalog import Hardware
from planner.hardware_files import read_hardware
from planner.techniques import Techniques, read_techniques


@dataclass(frozen=True, eq=False)
class Lookup:
    """Machines, techniques and calibrations; `extended`: some of them come from files of the user."""

    hardware: Hardware
    techniques: Techniques
    overlays: tuple[Overlay, ...]
    extended: bool


def read_lookup(catalogs: Iterable[Path] = ()) -> Lookup:
    """The shipped catalogs with files and folders of the user. Raises InputError for a mistake in any of them."""
    given = tuple(catalogs)
    return Lookup(read_hardware(given), read_techniques(given), read_overlays(given), bool(given))
