"""The scheduler block: a schedule that exists, with the arguments it takes."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, Finding, error, warn
from planner.check.inventory import Schedule
from planner.check.kinds import quoted
from planner.check.subject import AUTO, Subject
from planner.units import nearest

TYPE, PARAMS = "scheduler.type", "scheduler.params"


def schedule(subject: Subject) -> Schedule | None:
    """The arguments of the schedule, where it is one of DeepSpeed's."""
    name = subject.raw(TYPE)
    return subject.inventory.schedules.get(name) if isinstance(name, str) else None


def schedule_exists(subject: Subject) -> Iterator[Finding]:
    """DeepSpeed's own schedules, then those of torch."""
    name, inventory = subject.raw(TYPE), subject.inventory
    known = (*inventory.schedules, *inventory.torch_schedules)
    if isinstance(name, str) and name not in known:
        hint = nearest(name, known)
        yield error(
            TYPE,
            f"{name!r} is no schedule of DeepSpeed or torch: the engine refuses it{'; ' + hint if hint else ''}",
            ENGINE,
        )


def arguments_are_given(subject: Subject) -> Iterator[Finding]:
    """A schedule is made from its arguments, so the block must be there, with what has no default."""
    name = subject.raw(TYPE)
    if not isinstance(name, str):
        return
    if not isinstance(subject.raw(PARAMS), dict):
        yield error(PARAMS, f"{name} is made from it: the engine fails without", ENGINE)
        return
    found = schedule(subject)
    for argument in found.required if found else ():
        if not subject.has(f"{PARAMS}.{argument}"):
            yield error(f"{PARAMS}.{argument}", f"{name} needs it: the engine fails without", ENGINE)


def arguments_are_taken(subject: Subject) -> Iterator[Finding]:
    """Arguments go to the class as they are."""
    found = schedule(subject)
    for argument in subject.block(PARAMS) if found else ():
        if found and argument not in found.keys:
            others = [name for name, other in subject.inventory.schedules.items() if argument in other.keys]
            hint = f"; it belongs to {' and '.join(others)}" if others else ""
            near = nearest(argument, found.keys)
            yield error(
                f"{PARAMS}.{argument}",
                f"{subject.raw(TYPE)} takes no such argument: the engine fails on "
                f"it{hint or ('; ' + near if near else '')}",
                ENGINE,
            )


def warmup_is_whole_and_short(subject: Subject) -> Iterator[Finding]:
    """A warmup of whole steps, shorter than the run."""
    warmup, total = subject.raw(f"{PARAMS}.warmup_num_steps"), subject.raw(f"{PARAMS}.total_num_steps")
    if schedule(subject) is None:
        return
    if isinstance(warmup, float):
        yield error(f"{PARAMS}.warmup_num_steps", f"{quoted(warmup)} is no whole number: the engine refuses it", ENGINE)
    elif isinstance(warmup, int) and isinstance(total, (int, float)) and total < warmup:
        yield warn(f"{PARAMS}.total_num_steps", f"{total} steps end before the warmup of {warmup} does")


def warmup_shape_is_known(subject: Subject) -> Iterator[Finding]:
    """An unknown shape is replaced by log."""
    shape = subject.raw(f"{PARAMS}.warmup_type")
    if schedule(subject) and shape not in (None, AUTO, "log", "linear"):
        yield warn(f"{PARAMS}.warmup_type", f"{quoted(shape)} is no shape, log is taken; expected log or linear")


RULES = (schedule_exists, arguments_are_given, arguments_are_taken, warmup_is_whole_and_short, warmup_shape_is_known)
