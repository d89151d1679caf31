"""Models: the configuration gives the number of parameters that was published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.architecture.importer import architecture_from_config
from planner.catalog_check.catalog import Catalog, Part, mapping
from planner.catalog_check.findings import Finding, Place, refused
from planner.errors import InputError
from planner.units import format_count

# Share by which a count from the configuration may differ from the published one.
_TOLERANCE = 0.02


def model_findings(catalog: Catalog) -> Iterator[Finding]:
    """Every model of every file."""
    for part in catalog.parts:
        if part.kind == "models":
            yield from _models(part)


def _models(part: Part) -> Iterator[Finding]:
    """The models of one file."""
    for key, given in mapping(part.content["models"]).items():
        place, entry = part.place / "models" / key, mapping(given)
        if not entry.get("source"):
            yield place.error("a model without source", "source: the repository whose config.json it follows")
        yield from _size(place, key, entry)


def _size(place: Place, key: str, entry: Mapping[str, Any]) -> Iterator[Finding]:
    """The size that follows from the configuration is the published one."""
    try:
        found = architecture_from_config(mapping(entry.get("config")), name=key, file=place.document.file).parameters
    except InputError as error:
        at = (place / "config").finding("error", "", "")
        yield refused(InputError(error.message, at.file, at.line, 0, at.path, error.expected, error.hint))
        return
    published = entry.get("published_parameters")
    if isinstance(published, int) and published and abs(found / published - 1) > _TOLERANCE:
        told = f"{format_count(found)} parameters by its configuration, {format_count(published)} published"
        yield (place / "published_parameters").error(told)
