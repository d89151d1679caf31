"""Files of GPUs, nodes and links that a user names: their entries stand beside the shipped ones or in their place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from planner.catalog_files import documents
from planner.errors import InputError
from planner.hardware_catalog import Hardware, HardwareFile, joined, shipped, shipped_files
from planner.reading import Document, validated


def read_hardware(catalogs: Iterable[Path] = ()) -> Hardware:
    """The shipped machines with those of catalog files; of several entries with one key the last counts.

    Raises InputError for a malformed file, a name of a GPU, link or efficiency that is in none of the files, and a
    machine that cannot be put together.
    """
    given = tuple(documents(catalogs, "hardware"))
    if not given:
        return shipped()
    files = [validated(HardwareFile, document) for document in given]
    _check(given)
    return joined((*shipped_files(), *files))


def _check(given: Sequence[Document]) -> None:
    """What the catalog check finds wrong with the machines, apart from how plausible their figures are."""
    from planner.catalog_check.catalog import shipped_with
    from planner.catalog_check.machines import machine_findings

    for finding in machine_findings(shipped_with(given)):
        place = (finding.file, finding.line, finding.column, finding.path)
        raise InputError(finding.message, *place, hint=finding.hint)
