"""Choices whose values are sizes of buffers in elements: what each is if a job names none, and how one is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from planner.units import Mistake, parse_count, shown

if TYPE_CHECKING:
    from planner.job import Job
    from planner.plan import Value
    from planner.techniques import ChoiceEntry

ELEMENTS = "elements"
LARGEST = 10**12  # elements of a buffer
# The size that a job gives each such choice where it names none.
SIZES: Mapping[str, str] = {
    "reduce_bucket": "reduce_bucket_size", "prefetch_bucket": "prefetch_bucket_size",
    "live_parameters": "live_parameters", "sub_group": "sub_group_size",
}  # fmt: skip


def default_of(job: Job, choice: str) -> Value | None:
    """What a choice of the catalog is unless something else is asked for: a size is what the job makes it."""
    entry = job.techniques.choices.get(choice)
    if entry is None:
        return None
    return own_size(job, choice) if entry.domain == ELEMENTS else entry.default


def own_size(job: Job, choice: str) -> int:
    """Elements that the job itself gives a choice of a size."""
    size: int = getattr(job, SIZES[choice])
    return size


def size_of(entry: ChoiceEntry, value: object) -> int:
    """Elements of a size as a file or a command line writes it: 200000000, `2e8` or `200M`. Raises Mistake."""
    expected = f"a number of elements from {entry.least:,} to {LARGEST:,}, such as 2e8"
    try:
        found = parse_count(value, largest=LARGEST)
    except Mistake:
        found = -1
    if found < entry.least:
        raise Mistake(f"{shown(value)} is no value of {entry.choice}", expected)
    return found


def unmet_fact(job: Job, choice: str, value: Value) -> str | None:
    """The first fact of the job that keeps a value of a choice from doing anything; None where there is none."""
    technique = job.techniques.entry(choice, value)
    if technique is not None:
        return job.unmet(technique.where)
    entry = job.techniques.choices.get(choice)
    if entry is None or entry.domain != ELEMENTS or value == own_size(job, choice):
        return None
    return job.unmet(entry.where)
