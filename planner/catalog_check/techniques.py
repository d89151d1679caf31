"""Choices and techniques: names that exist, needs that can be met, no value that needs and excludes the same."""

from __future__ import annotations

from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.names import known
from planner.effects import Scalar
from planner.plan import LAYOUT_FACTS
from planner.reading import nearest
from planner.sizes import ELEMENTS, SIZES
from planner.techniques import ChoiceEntry, Relation, TechniqueEntry

_RELATIONS: tuple[Relation, ...] = ("needs", "conflicts")
Techniques = dict[tuple[str, Scalar], TechniqueEntry]


def technique_findings(catalog: Catalog) -> Iterator[Finding]:
    """Everything about choices but their effects."""
    every: Techniques = {
        (name, value): technique
        for name, entry in catalog.entries("choice").items()
        for value, technique in entry.values.items()
    }
    for part in catalog.of("choice"):
        entry: ChoiceEntry = part.content
        yield from _choice(part.place, entry)
        for value, technique in entry.values.items():
            place = part.place / "values" / str(value)
            yield from _references(catalog, place, entry, technique)
            yield from _contradictions(catalog, place, entry, value, technique)
    yield from _cycles(catalog, every)
    yield from _defaults(catalog)


def _choice(place: Place, entry: ChoiceEntry) -> Iterator[Finding]:
    """Values are listed where the domain says so, and the default is one of them."""
    if entry.domain == "listed":
        if not entry.values:
            yield place.error("no values", "list them under values, or name a domain")
        elif entry.default not in entry.values:
            hint = nearest(str(entry.default), map(str, entry.values)) or "one of " + ", ".join(map(str, entry.values))
            yield (place / "default").error(f"the default '{entry.default}' is no value of {entry.choice}", hint)
    elif entry.domain == ELEMENTS and entry.choice not in SIZES:
        yield from known(place / "choice", entry.choice, SIZES, "buffer with a size:")
    elif entry.values:
        yield (place / "values").error(f"values are listed, but the domain is {entry.domain}")


def _references(catalog: Catalog, place: Place, entry: ChoiceEntry, technique: TechniqueEntry) -> Iterator[Finding]:
    """Needs and conflicts name other choices and values of them."""
    choices = catalog.entries("choice")
    for what in _RELATIONS:
        for other, values in getattr(technique, what).items():
            at = place / what / other
            yield from known(at, other, (*choices, *LAYOUT_FACTS), "choice")
            if other == entry.choice:
                yield at.error(f"{what} another value of its own choice")
            listed = choices[other].values if other in choices else {}
            for value in values if listed else ():
                yield from known(at, value, listed, f"value of {other}:")


def _contradictions(
    catalog: Catalog, place: Place, entry: ChoiceEntry, value: Scalar, technique: TechniqueEntry
) -> Iterator[Finding]:
    """Of what it needs something remains that neither it excludes nor excludes it."""
    choices = catalog.entries("choice")
    for other, needed in technique.needs.items():
        left = [item for item in needed if item not in technique.conflicts.get(other, ())]
        if not left:
            yield (place / "needs" / other).error(f"needs and conflicts name the same values of {other}")
            continue
        known_values = choices[other].values if other in choices else {}
        partners = [known_values[item] for item in left if item in known_values]
        if partners and not any(_agrees(partner, entry.choice, value) for partner in partners):
            told = " or ".join(f"{other}={item}" for item in left)
            yield (place / "needs" / other).error(f"needs {told}, which excludes {entry.choice}={value}")


def _agrees(technique: TechniqueEntry, choice: str, value: Scalar) -> bool:
    """Whether a technique allows `value` of another choice."""
    needed = technique.needs.get(choice)
    return (needed is None or value in needed) and value not in technique.conflicts.get(choice, ())


def _cycles(catalog: Catalog, every: Techniques) -> Iterator[Finding]:
    """No technique needs itself by way of others; only needs that leave one value open can force that."""
    graph = {
        name: {(other, values[0]) for other, values in technique.needs.items() if len(values) == 1}
        for name, technique in every.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        cycle: list[tuple[str, Scalar]] = error.args[1]
        told = " → ".join(f"{choice}={value}" for choice, value in reversed(cycle))
        choice, value = cycle[-1]
        place = next(part.place for part in catalog.of("choice") if part.name == choice)
        yield (place / "values" / str(value) / "needs").error(f"a cycle of needs: {told}")


def _defaults(catalog: Catalog) -> Iterator[Finding]:
    """Defaults get along with each other, as far as defaults are listed values."""
    choices = catalog.entries("choice")
    for part in catalog.of("choice"):
        technique = part.content.values.get(part.content.default)
        for other in {*technique.needs, *technique.conflicts} if technique else ():
            if other in choices and not _agrees(technique, other, choices[other].default):
                at = part.place / "default"
                yield at.warn(f"the default '{part.content.default}' excludes {other}={choices[other].default}")
