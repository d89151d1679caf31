"""Values of choices as a job file or a command line names them: each is one that the choice can take."""

from __future__ import annotations

from collections.abc import Iterable

from planner.layouts import DEGREE_NAMES
from planner.reading import Document, nearest
from planner.sizes import ELEMENTS, size_of
from planner.techniques import Techniques
from planner.units import Mistake, shown


def read_values(document: Document, name: str, values: Iterable[object], techniques: Techniques) -> tuple[object, ...]:
    """The values as the choice has them: sizes in elements, others as they stand. InputError for one it cannot take."""
    entry = techniques.choices.get(name)
    if entry is None or entry.domain != ELEMENTS:
        found = tuple(values)
        _check_values(document, name, found, techniques)
        return found
    sizes: list[int] = []
    for value in values:
        try:
            size = size_of(entry, value)
        except Mistake as mistake:
            raise document.error(("choices", name), mistake.message, mistake.expected, mistake.hint) from None
        if size in sizes:
            raise document.error(("choices", name), f"{size} stands twice", "each value once")
        sizes.append(size)
    return tuple(sizes)


def _check_values(document: Document, name: str, values: Iterable[object], techniques: Techniques) -> None:
    """InputError for a value that the choice cannot take."""
    if name in DEGREE_NAMES:
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                message = f"{shown(str(value))} is no value of {name}"
                raise document.error(("choices", name), message, "a whole number, 1 or more")
        return
    entry = techniques.choices[name]
    for value in values:
        known: list[object] = list(entry.values)
        if known and value not in known:
            raise document.error(
                ("choices", name), f"unknown value {shown(str(value))} of {name}",
                "one of " + ", ".join(map(str, known)),
                nearest(str(value), map(str, known)),
            )  # fmt: skip
        if entry.domain in ("divisors_of_batch", "layers", "intervals") and (
            isinstance(value, bool) or not isinstance(value, int) or value < (entry.domain == "divisors_of_batch")
        ):
            raise document.error(("choices", name), f"{shown(str(value))} is no value of {name}", "a whole number")
        if entry.domain == "accumulation_dtypes" and value not in ("fp32", "fp16", "bf16"):
            message = f"unknown value {shown(str(value))} of {name}"
            raise document.error(("choices", name), message, "one of fp32, fp16, bf16")
        if entry.domain == "layouts":
            raise document.error(
                ("choices", name), "the layout is fixed by its degrees", "one of " + ", ".join(DEGREE_NAMES)
            )
