"""What must hold of a technique file beside its shape: its domain and default, and every name in its effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

from planner.document_builder import Path
from planner.effect_terms import DERIVED_SCOPES
from planner.effects import AnyEffect, Update, When
from planner.job import Job
from planner.quantities import BY_NAME
from planner.reading import Document, nearest
from planner.sizes import ELEMENTS, SIZES
from planner.techniques import ChoiceEntry
from planner.units import shown


def check_techniques(job: Job) -> None:
    """Raises InputError at the place of the first mistake among all choices of a job."""
    for name, entry in job.techniques.choices.items():
        document = job.techniques.documents[name]
        check_default(entry, document)
        for path, effect in _effects(entry):
            check_effect(effect, document, path, job)
        _check_names(entry.where, tuple(job.facts), document, ("where",))
        for value, technique in entry.values.items():
            _check_names(technique.where, tuple(job.facts), document, ("values", str(value), "where"))


def check_default(entry: ChoiceEntry, document: Document) -> None:
    """InputError where a listed choice has no value planned by itself, or another default; for a size of no buffer."""
    if entry.domain == ELEMENTS and entry.choice not in SIZES:
        message = f"{shown(entry.choice)} is no buffer whose size is known"
        raise document.error(("choice",), message, "one of " + ", ".join(SIZES), nearest(entry.choice, SIZES))
    if entry.domain != "listed":
        return
    planned = [value for value, one in entry.values.items() if not (one.changes_numerics or one.on_request)]
    if not planned:
        raise document.error(("values",), "no value is planned by itself", "a value that is not on request")
    if isinstance(entry.default, bool) or entry.default not in planned:
        known = ", ".join(shown(value) for value in planned)
        raise document.error(("default",), f"{shown(entry.default)} is no value of its own", f"one of {known}")


def check_effect(effect: AnyEffect, document: Document, path: Path, job: Job) -> None:
    """InputError for a quantity or the name of a condition that there is none of."""
    for field in ("of", "message", "ahead", "calls"):
        quantity = getattr(effect, field, "")
        if quantity and quantity not in BY_NAME:
            raise document.error(
                (*path, field), f"unknown quantity {shown(quantity)}", "one of " + ", ".join(BY_NAME),
                nearest(quantity, BY_NAME),
            )  # fmt: skip
    if isinstance(effect, Update) and effect.unit == "cpu":
        _check_host_update(effect, document, path)
    part = getattr(effect, "part", None)
    if part is not None and part.choice not in job.techniques.choices:
        hint = nearest(part.choice, job.techniques.choices)
        raise document.error(
            (*path, "part", "choice"), f"unknown choice {shown(part.choice)}",
            "one of " + ", ".join(job.techniques.choices), hint,
        )  # fmt: skip
    _check_names(effect.when, (*job.facts, *DERIVED_SCOPES, *job.techniques.choices), document, (*path, "when"))


def _check_names(condition: When, known: Sequence[str], document: Document, path: Path) -> None:
    """InputError for a condition on a name that there is none of."""
    for name in condition:
        if name not in known:
            message = f"unknown name {shown(name)} in a condition"
            raise document.error((*path, name), message, "one of " + ", ".join(known), nearest(name, known), key=True)


def _check_host_update(effect: Update, document: Document, path: Path) -> None:
    """InputError for an update on the host's cores whose bytes do not tell how many elements there are."""
    if not isinstance(effect.bytes, Fraction) or effect.bytes == 0:
        message = f"{shown(str(effect.bytes))} is no number of bytes per element"
        raise document.error((*path, "bytes"), message, "a number above 0, which an update on the host needs")


def _effects(entry: ChoiceEntry) -> Iterator[tuple[Path, AnyEffect]]:
    """Every effect of a file with its path."""
    for index, effect in enumerate(entry.effects):
        yield ("effects", index), effect
    for value, technique in entry.values.items():
        for index, effect in enumerate(technique.effects):
            yield ("values", str(value), "effects", index), effect
