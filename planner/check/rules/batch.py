"""The batch equation: train_batch_size = micro-batch × accumulation × ranks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite, isqrt
from typing import Any

from planner.check.findings import ENGINE, PARSER, Finding, error, info, warn
from planner.check.kinds import quoted
from planner.check.subject import AUTO, Subject

# No batch has more sequences; a larger number is a slip, and NaN compares with nothing.
LARGEST = 10**12
MANY = 10**8
BATCH, MICRO, STEPS = "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"


@dataclass(frozen=True)
class Batch:
    """The three sizes as DeepSpeed completes them, and which of them were given."""

    batch: float
    micro: float
    steps: float
    given: tuple[str, ...]


def is_number(value: Any) -> bool:
    """Whether the value is a number that a batch can have."""
    return isinstance(value, (int, float)) and abs(value) <= LARGEST


def completed(subject: Subject) -> Batch | None:
    """The sizes, completed by floor division as DeepSpeed does it; None where they are open or no numbers."""
    batch, micro, steps = (subject.raw(name) for name in (BATCH, MICRO, STEPS))
    given = tuple(name for name in (BATCH, MICRO, STEPS) if subject.raw(name) is not None)
    if not all(is_number(value) for value in (batch, micro, steps) if value is not None) or given in ((), (STEPS,)):
        return None
    ranks = subject.data_parallel
    try:
        if batch is None:
            steps = 1 if steps is None else steps
            batch = micro * steps * ranks
        elif micro is None:
            steps = 1 if steps is None else steps
            micro = batch // ranks // steps
        elif steps is None:
            steps = batch // micro // ranks
    except ZeroDivisionError:
        return Batch(batch or 0, micro or 0, steps or 0, given)
    return Batch(batch, micro, steps, given)


def a_batch_size_is_given(subject: Subject) -> Iterator[Finding]:
    """The parser asks for one of two sizes."""
    if subject.readable and subject.raw(BATCH) is None and subject.raw(MICRO) is None:
        yield error(BATCH, f"neither {BATCH} nor {MICRO} is given: DeepSpeed refuses the file", PARSER)


def sizes_are_positive(subject: Subject) -> Iterator[Finding]:
    """What is given or follows is at least 1."""
    found = completed(subject)
    if found is None:
        return
    sizes = ((BATCH, found.batch), (MICRO, found.micro), (STEPS, found.steps))
    for name, size in sorted(sizes, key=lambda item: item[0] not in found.given):
        if size > 0:
            continue
        if name in found.given:
            yield error(name, f"{size} is not above 0: DeepSpeed refuses the file", PARSER)
            return
        told = " and ".join(f"{given} {subject.raw(given)}" for given in found.given)
        yield error(BATCH, f"{told} on {subject.ranks} ranks leave {name} {size:g}: DeepSpeed refuses the file", PARSER)
        return


def batch_equation_holds(subject: Subject) -> Iterator[Finding]:
    """The product of micro-batch, steps and ranks is the batch."""
    found = completed(subject)
    if found is None or min(found.batch, found.micro, found.steps) <= 0:
        return
    product = found.micro * found.steps * subject.data_parallel
    if found.batch != product:
        yield error(
            BATCH,
            f"{found.batch:g} is not {found.micro:g} × {found.steps:g} × {subject.data_parallel:g} ranks = "
            f"{product:g}: "
            f"DeepSpeed refuses the file; these sizes fit {_fitting(found)}",
            PARSER,
        )
    elif BATCH in found.given and len(found.given) < 3:
        missing = [name for name in (MICRO, STEPS) if name not in found.given]
        sizes = {MICRO: found.micro, STEPS: found.steps}
        for name in missing:
            yield info(
                name, f"not given: {sizes[name]:g} follows for {subject.ranks} ranks; these sizes fit {_fitting(found)}"
            )


def _fitting(found: Batch) -> str:
    """The numbers of ranks that the given sizes fit."""
    one = 1.0
    for name, size in ((MICRO, found.micro), (STEPS, found.steps)):
        one *= size if name in found.given else 1
    share = found.batch / one
    if not isfinite(share) or share != int(share) or share < 1:
        return "no number of ranks"
    if len(found.given) == 3:
        return f"{share:g} ranks only"
    if share > MANY:
        return f"every number of ranks that divides {share:.0f}"
    divisors = [size for size in range(1, isqrt(int(share)) + 1) if share % size == 0]
    ranks = sorted({*divisors, *(int(share) // size for size in divisors)})
    return (
        f"{', '.join(map(str, ranks))} ranks" if len(ranks) <= 8 else f"every number of ranks that divides {share:.0f}"
    )


def sizes_are_possible(subject: Subject) -> Iterator[Finding]:
    """Infinity, NaN and numbers beyond any batch."""
    for name in (BATCH, MICRO, STEPS):
        value = subject.raw(name)
        if isinstance(value, (int, float)) and not is_number(value):
            yield error(name, f"{quoted(value)} is no number of sequences or steps: DeepSpeed refuses the file", PARSER)


def sizes_are_whole(subject: Subject) -> Iterator[Finding]:
    """Fractions pass the parser and break loops that count."""
    for name in (BATCH, MICRO, STEPS):
        value = subject.raw(name)
        if isinstance(value, (bool, float)) and is_number(value) and value > 0:
            yield warn(name, f"{value!r} passes the parser but counts are whole: write {int(value)}")


def all_or_none_is_auto(subject: Subject) -> Iterator[Finding]:
    """A fixed batch beside open factors holds on one setting of the trainer only."""
    opened = [name for name in (MICRO, STEPS) if subject.raw(name) == AUTO]
    if is_number(subject.raw(BATCH)) and opened:
        yield warn(
            BATCH,
            f"is fixed while {' and '.join(opened)} is left to the trainer: Hugging Face refuses a product that "
            "differs",
        )


def unmanaged_accumulation_has_no_overlap(subject: Subject) -> Iterator[Finding]:
    """The engine asserts what goes with managed_gradient_accumulation false."""
    if subject.value("managed_gradient_accumulation"):
        return
    overlap = subject.value("zero_optimization.overlap_comm")
    if subject.stage < 2 and overlap:
        yield error(
            "managed_gradient_accumulation",
            "false goes with overlap_comm only from ZeRO stage 2 on: the engine refuses it",
            ENGINE,
        )
    if subject.value("compile.deepcompile"):
        yield error(
            "managed_gradient_accumulation", "false does not go with compile.deepcompile: the engine refuses it", ENGINE
        )


RULES = (
    a_batch_size_is_given,
    sizes_are_positive,
    batch_equation_holds,
    sizes_are_possible,
    sizes_are_whole,
    all_or_none_is_auto,
    unmanaged_accumulation_has_no_overlap,
)
