"""Values of choices that are planned only where a job names them, as decisions of their own: one option for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.choosing.variant import Allowance, Changes, Variant
from planner.document_builder import Path
from planner.job import Job
from planner.reading import Document, nearest
from planner.sizes import ELEMENTS, size_of, unmet_fact
from planner.techniques import ChoiceEntry, TechniqueEntry, Techniques
from planner.units import Mistake, shown

AT: Path = ("allow", "choices")


def choice_options(
    document: Document, allowed: Mapping[str, tuple[Any, ...]], techniques: Techniques
) -> list[list[Variant]]:
    """For each choice that is named its own values, then each of those allowed alone. Raises InputError."""
    return [[Variant(), *_options(document, name, values, techniques)] for name, values in allowed.items()]


def _options(document: Document, name: str, values: tuple[Any, ...], techniques: Techniques) -> Iterator[Variant]:
    """The allowed values of one choice."""
    entry = techniques.choices.get(name)
    if entry is None or not _has_reserved(entry):
        known = [other for other, one in techniques.choices.items() if _has_reserved(one)]
        message = f"{shown(name)} has no values that must be allowed" if entry else f"unknown choice {shown(name)}"
        raise document.error((*AT, name), message, "one of " + ", ".join(known), nearest(name, known), key=True)
    if name in document.data.get("choices", {}):
        raise document.error((*AT, name), f"choices.{name} names its values already", "one of the two", key=True)
    listed = isinstance(document.data["allow"]["choices"][name], list)
    for index, value in enumerate(values):
        try:
            yield _option(name, _reserved_value(entry, value), entry)
        except Mistake as mistake:
            place = (*AT, name, *([index] if listed else []))
            raise document.error(place, mistake.message, mistake.expected, mistake.hint) from None


def _has_reserved(entry: ChoiceEntry) -> bool:
    """Whether a choice has values that are planned only where the job names them."""
    return entry.domain == ELEMENTS or any(map(_is_reserved, entry.values.values()))


def _is_reserved(technique: TechniqueEntry) -> bool:
    """Whether a technique is planned only where the job names it."""
    return technique.changes_numerics or technique.on_request


def _reserved_value(entry: ChoiceEntry, value: Any) -> Any:
    """A value as its choice has it. Raises Mistake for one that is none, or is planned anyhow."""
    if entry.domain == ELEMENTS:
        return size_of(entry, value)
    known = [str(one) for one, technique in entry.values.items() if _is_reserved(technique)]
    if value not in entry.values or not _is_reserved(entry.values[value]):
        message = f"{shown(str(value))} is no value of {entry.choice} that must be allowed"
        raise Mistake(message, "one of " + ", ".join(known))
    return value


def _option(name: str, value: Any, entry: ChoiceEntry) -> Variant:
    """One value in place of what is planned anyway."""
    technique = entry.values.get(value)
    label, own = f"{name} {value}", f"{name} {entry.default}"
    changes: Changes = "buffer" if technique is None else "installation"
    if technique is not None and technique.changes_numerics:
        changes = "numerics"
    allowance = Allowance(f"choices.{name}", value, label, own, changes)
    return Variant(allowances=(allowance,), label=label, choices={name: value})


def idle_choice(job: Job, variant: Variant) -> str | None:
    """Why a value that a variant takes does nothing for the job; None where all of them do something."""
    for name, value in variant.choices.items():
        fact = unmet_fact(job, name, value)
        if fact is not None:
            return f"{name} {value} does nothing where {fact} is {job.facts[fact]}"
    return None
