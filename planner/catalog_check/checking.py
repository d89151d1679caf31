"""The check of a catalog: what ships, and files beside or in place of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.calibrate.overlay_file import overlay_of
from planner.catalog_check.catalog import Catalog, read_catalog
from planner.catalog_check.coefficients import coefficient_findings
from planner.catalog_check.effects import effect_findings
from planner.catalog_check.envelope import Envelope, envelope
from planner.catalog_check.findings import Finding, refused, severity
from planner.catalog_check.gpus import gpu_findings
from planner.catalog_check.links import link_findings
from planner.catalog_check.machines import machine_findings
from planner.catalog_check.models import model_findings
from planner.catalog_check.names import source_findings
from planner.catalog_check.nodes import node_findings
from planner.catalog_check.numerics import optimizer_findings, precision_findings
from planner.catalog_check.runtimes import runtime_findings
from planner.catalog_check.techniques import technique_findings
from planner.errors import InputError

RULES: tuple[Callable[[Catalog], Iterator[Finding]], ...] = (
    source_findings,
    machine_findings,
    precision_findings,
    technique_findings,
    model_findings,
)
RULES_OF_SIZE: tuple[Callable[[Catalog, Envelope], Iterator[Finding]], ...] = (
    gpu_findings,
    link_findings,
    node_findings,
    optimizer_findings,
    effect_findings,
    runtime_findings,
    coefficient_findings,
)


@dataclass(frozen=True)
class CheckedCatalog:
    """What a check found, in the order of files and lines, and how many files it read."""

    findings: tuple[Finding, ...]
    files: int

    @property
    def severity(self) -> str:
        """The gravest of the findings."""
        return severity(self.findings)


def check_catalog(paths: Iterable[Path] = ()) -> CheckedCatalog:
    """The shipped catalog with the files at `paths`. Raises InputError where a path cannot be read at all."""
    catalog = read_catalog(paths)
    found = [*catalog.findings, *_calibrations(catalog)]
    for rule in RULES:
        found += rule(catalog)
    for rule_of_size in RULES_OF_SIZE:
        found += rule_of_size(catalog, envelope())
    unique = dict.fromkeys(found)
    ordered = sorted(unique, key=lambda finding: (finding.file, finding.line, finding.path))
    return CheckedCatalog(tuple(ordered), len({part.document.file for part in catalog.parts}))


def _calibrations(catalog: Catalog) -> Iterator[Finding]:
    """What the reader of calibrations refuses."""
    for part in catalog.of("calibration"):
        try:
            overlay_of(part.document, catalog.names("gpus"))
        except InputError as error:
            yield refused(error)
