"""Names that entries use: whether there is what they name, and the nearest spelling where there is not."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping
from typing import Any

from planner.catalog_check.catalog import Catalog, Part
from planner.catalog_check.findings import Finding, Place
from planner.hardware_catalog import Entry
from planner.reading import nearest
from planner.units import shown

FEW = 16
HARDWARE = ("gpus", "nodes", "links", "precisions", "optimizers")


def known(place: Place, name: object, names: Collection[Any], what: str, many: str = "") -> Iterator[Finding]:
    """A finding where `name` is not one of `names`; `many`: what to say of them where they are too many to list."""
    if not isinstance(name, Hashable) or name not in names:
        spelled = tuple(map(str, names))
        hint = nearest(str(name), spelled) or (f"one of {', '.join(spelled)}" if len(spelled) <= FEW else many)
        yield place.error(f"unknown {what} {shown(str(name))}", hint)


def hardware_entries(catalog: Catalog, kind: str) -> Iterator[tuple[Place, str, Any]]:
    """(place, key, entry) of every entry of a kind."""
    for part in catalog.of(kind):
        for key, entry in getattr(part.content, kind).items():
            yield part.place / kind / key, key, entry


def source_findings(catalog: Catalog) -> Iterator[Finding]:
    """Every figure of the hardware catalogs names a source, and every source that is named is listed."""
    for kind in HARDWARE:
        for part in catalog.of(kind):
            for group in (kind, "efficiencies") if kind == "gpus" else (kind,):
                for key, entry in getattr(part.content, group).items():
                    yield from _sources(part, part.place / group / key, entry)


def _sources(part: Part, place: Place, entry: Entry) -> Iterator[Finding]:
    """The sources of one entry."""
    listed: Mapping[str, Any] = part.content.sources
    figures = list(_figures(entry))
    for field, name in entry.sources.items():
        at = place / "sources" / field
        yield from known(at, name, listed, "source")
        if field != "default" and not any(figure == field or figure.startswith(f"{field}.") for figure in figures):
            yield at.error(f"the entry has no figure '{field}'", nearest(field, figures))
    for figure in figures if "default" not in entry.sources else ():
        parts = figure.split(".")
        if not any(".".join(parts[:length]) in entry.sources for length in range(1, len(parts) + 1)):
            yield (place / parts[0]).error(f"no source for {figure}", "name one under sources, or a default")


def _figures(entry: Entry) -> Iterator[str]:
    """Dotted names of what an entry states, beside its words."""
    for field in entry.model_fields_set - {"sources", "assumptions", "summary", "name"}:
        yield field
        value = getattr(entry, field)
        yield from (f"{field}.{inner}" for inner in _inner(value))


def _inner(value: Any) -> Iterable[str]:
    """Names inside a figure that has parts."""
    if isinstance(value, Mapping):
        return map(str, value)
    return getattr(type(value), "model_fields", ()) if hasattr(value, "model_fields_set") else ()
