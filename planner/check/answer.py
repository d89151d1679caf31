"""The answer of `planner check`, for machines and for people."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite

from planner.answer import Answer, device_answer, plan_answer
from planner.check.checking import Checked, trainer_arguments
from planner.check.failure import Failure
from planner.check.findings import Finding
from planner.evaluate import Evaluation
from planner.units import format_bytes, format_seconds

COLOURS = {"error": "\033[31m", "warn": "\033[33m", "info": "\033[2m"}
DEVICES = {"gpu": "GPU", "host": "host memory", "nvme": "NVMe"}


def check_answer(checked: Checked) -> Answer:
    """Severity, findings, books, trainer arguments and the better file, with stable keys."""
    place = checked.mapped
    arguments = trainer_arguments(checked.subject)
    return {
        "severity": checked.severity,
        "findings": [finding_answer(checked, item) for item in checked.findings],
        "ranks": checked.subject.ranks,
        "memory": memory_answer(place.evaluation) if place else None,
        "memory_with_gradient_checkpointing": memory_answer(place.checkpointed) if place else None,
        "failure": failure_answer(checked.failure),
        "plan": plan_answer(place.evaluation.values) if place else None,
        "violations": [vars(item) for item in place.evaluation.violations] if place else [],
        "trainer_arguments": [
            {"argument": name, "value": portable(value), "key": key} for name, value, key in arguments
        ],
        "better": better_answer(checked.better) if checked.better else None,
        "diff": checked.diff,
        "notes": list(checked.notes),
    }


def portable(value: object) -> object:
    """The value, infinity and NaN as text since JSON has neither."""
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def finding_answer(checked: Checked, item: Finding) -> Answer:
    """One finding with its line in the file, 0 where the key does not stand there."""
    return {
        "key": item.key,
        "severity": item.severity,
        "message": item.message,
        "line": checked.subject.source.line_of(item.key),
        "refused_by": item.refused_by or None,
    }


def better_answer(best: Evaluation) -> Answer:
    """The best plan of the job."""
    return {"plan": plan_answer(best.values), "memory": memory_answer(best), "seconds": best.step_time.seconds}


def memory_answer(evaluation: Evaluation) -> Answer:
    """Each device of an evaluation."""
    return {device: device_answer(found) for device, found in evaluation.ledger.items()}


def failure_answer(failure: Failure | None) -> Answer | None:
    """The failing line."""
    return dict(vars(failure)) if failure else None


def check_text(checked: Checked, colour: bool = False) -> str:
    """The same for a terminal."""
    return "\n".join(line.rstrip() for line in _lines(checked, colour)).rstrip() + "\n"


def _lines(checked: Checked, colour: bool) -> Iterator[str]:
    """Line by line: findings, books, trainer arguments, notes, better file."""
    counts = [sum(item.severity == kind for item in checked.findings) for kind in ("error", "warn", "info")]
    told = f"{counts[0]} errors, {counts[1]} warnings, {counts[2]} notes"
    yield f"{checked.subject.source.file}: {checked.severity} ({told})"
    yield ""
    for item in checked.findings:
        line = checked.subject.source.line_of(item.key)
        word = f"{COLOURS[item.severity]}{item.severity:5}\033[0m" if colour else f"{item.severity:5}"
        yield f"{word}  {item.key}{f' (line {line})' if line else ''}: {item.message}"
    yield from _books(checked)
    arguments = list(trainer_arguments(checked.subject))
    if arguments:
        yield '\nHugging Face\'s trainer must say the same, or the file "auto":'
        yield from (f"  {name} = {value}  ({key})" for name, value, key in arguments)
    if checked.notes:
        yield "\nAssumed:"
        yield from (f"  {note}" for note in checked.notes)
    yield from _better(checked)


def _books(checked: Checked) -> Iterator[str]:
    """The verdict of each device, without and with gradient checkpointing, and the failing line."""
    if checked.mapped is None:
        return
    yield "\nMemory of this file under the job:"
    plain, recomputed = checked.mapped.evaluation, checked.mapped.checkpointed
    yield from _verdicts(plain)
    failure = checked.failure
    if failure:
        yield (
            f"  runs out of {DEVICES[failure.device]} in phase {failure.phase} at '{failure.line}' ({failure.book}, "
            f"{format_bytes(failure.bytes)}), {format_bytes(failure.bytes_over)} over"
        )
    if recomputed.plan != plain.plan:
        yield "  with gradient_checkpointing of the trainer:"
        yield from _verdicts(recomputed)


def _verdicts(evaluation: Evaluation) -> Iterator[str]:
    """One line for each device that holds something."""
    for name, found in evaluation.ledger.items():
        if found.peak.total:
            sizes = (
                f"{format_bytes(found.peak.total)} of {format_bytes(found.capacity.usable)} in phase {found.peak.phase}"
            )
            yield f"  {DEVICES.get(name, name):12} {found.verdict:6} {sizes}"


def _better(checked: Checked) -> Iterator[str]:
    """The better file."""
    if checked.better is None:
        return
    best = checked.better
    peak = best.ledger["gpu"]
    held = f"GPU {format_bytes(peak.peak.total)} ({peak.verdict})"
    yield f"\nA better file: {format_seconds(best.step_time.seconds)} a step, {held}"
    yield checked.diff or "  this file already says what the best plan says"
