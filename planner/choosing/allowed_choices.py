"""Values of choices that are planned only where a job names them, as decisions of their own: one option for each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.choosing.variant import Allowance, Changes, Variant
from planner.document_builder import Path
from planner.job import Job
from planner.reading import Document, nearest
from planner.techniques import ChoiceEntry, TechniqueEntry, Techniques
from planner.units import shown

AT: Path = ("allow", "choices")


def choice_options(
    document: Document, allowed: Mapping[str, tuple[Any, ...]], techniques: Techniques
) -> list[list[Variant]]:
    """For each choice that is named its own values, then each of those allowed alone. Raises InputError."""
    return [[Variant(), *_options(document, name, values, techniques)] for name, values in allowed.items()]


def _options(document: Document, name: str, values: tuple[Any, ...], techniques: Techniques) -> Iterator[Variant]:
    """The allowed values of one choice."""
    entry = techniques.choices.get(name)
    reserved = {} if entry is None else {value: one for value, one in entry.values.items() if _is_reserved(one)}
    if entry is None or not reserved:
        known = [other for other, one in techniques.choices.items() if any(map(_is_reserved, one.values.values()))]
        message = f"{shown(name)} has no values that must be allowed" if entry else f"unknown choice {shown(name)}"
        raise document.error((*AT, name), message, "one of " + ", ".join(known), nearest(name, known), key=True)
    if name in document.data.get("choices", {}):
        raise document.error((*AT, name), f"choices.{name} names its values already", "one of the two", key=True)
    listed = isinstance(document.data["allow"]["choices"][name], list)
    for index, value in enumerate(values):
        if value not in reserved:
            place = (*AT, name, *([index] if listed else []))
            known = [str(one) for one in reserved]
            raise document.error(
                place, f"{shown(str(value))} is no value of {name} that must be allowed", "one of " + ", ".join(known)
            )
        yield _option(name, value, entry, reserved[value])


def _is_reserved(technique: TechniqueEntry) -> bool:
    """Whether a technique is planned only where the job names it."""
    return technique.changes_numerics or technique.on_request


def _option(name: str, value: Any, entry: ChoiceEntry, technique: TechniqueEntry) -> Variant:
    """One value in place of what is planned anyway."""
    label, own = f"{name} {value}", f"{name} {entry.default}"
    changes: Changes = "numerics" if technique.changes_numerics else "installation"
    allowance = Allowance(f"choices.{name}", value, label, own, changes)
    return Variant(allowances=(allowance,), label=label, choices={name: value})


def idle_choice(job: Job, variant: Variant) -> str | None:
    """Why a value that a variant takes does nothing for the job; None where all of them do something."""
    for name, value in variant.choices.items():
        technique = job.techniques.entry(name, value)
        fact = job.unmet_fact(technique) if technique is not None else None
        if fact is not None:
            return f"{name} {value} does nothing where {fact} is {job.facts[fact]}"
    return None
