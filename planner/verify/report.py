"""A comparison as an answer and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from planner.answer import changes, plan_answer
from planner.units import format_bytes, format_seconds
from planner.verify.comparison import TOLERANCE, Comparison, Row, advice, step_seconds
from planner.verify.time_rows import Times


def comparisons_answer(found: Sequence[Comparison]) -> dict[str, Any]:
    """The plan's comparison; with neighbours, theirs beside it and whether the plan was the fastest."""
    answer = comparison_answer(found[0])
    if len(found) > 1:
        answer["neighbours"] = [comparison_answer(one) for one in found[1:]]
        answer["fastest"] = fastest(found) is found[0]
    return answer


def comparisons_text(found: Sequence[Comparison]) -> str:
    """The plan's tables; with neighbours, one line for each by measured time."""
    text = comparison_text(found[0])
    if len(found) == 1:
        return text
    lines = ["", f"{'plan and neighbours, fastest first':<52}{'predicted':>12}{'measured':>12}"]
    for one in sorted(found, key=lambda one: step_seconds(one.measured)):
        what = "the plan" if one is found[0] else _changes(found[0], one)
        predicted, measured = one.evaluation.step_time.seconds, step_seconds(one.measured)
        lines.append(f"  {what:<50}{format_seconds(predicted):>12}{format_seconds(measured):>12}")
    won = fastest(found) is found[0]
    verdict = "the plan was the fastest that fits" if won else "a neighbour was faster than the plan"
    if not found[0].on_gpus:
        verdict += ", on processors, which says little about GPUs"
    return text + "\n".join([*lines, verdict]) + "\n"


def fastest(found: Sequence[Comparison]) -> Comparison:
    """The comparison with the least measured time."""
    return min(found, key=lambda one: step_seconds(one.measured))


def _changes(best: Comparison, other: Comparison) -> str:
    """What a neighbour does differently."""
    changed = changes(best.evaluation.plan, other.evaluation.plan)
    return ", ".join(f"{name} {value}" for name, value in changed.items())


def comparison_answer(found: Comparison) -> dict[str, Any]:
    """Books and phases in bytes, times in seconds, the advice, and whether every book agrees."""
    return {
        "status": "agrees" if found.agrees else "differs",
        "device": found.measured["device"],
        "plan": plan_answer(found.evaluation.values),
        "books": {row.name: _row(row) for row in found.books},
        "phases": {row.name: _row(row) for row in found.phases},
        "others": {row.name: _row(row) for row in found.others},
        "measured_step_seconds": step_seconds(found.measured),
        "times": times_answer(found.times),
        "losses": found.measured["losses"],
        "advice": list(advice(found)),
    }


def times_answer(times: Times) -> dict[str, Any]:
    """Seconds of a profiled step by term, predicted ones beside them; the measured ones add up to the step."""
    return {
        "step_seconds": times.seconds,
        "terms": {
            row.name: {
                "predicted": row.predicted, "low": row.low, "high": row.high, "measured": row.measured,
                "error": None if row.error is None else round(row.error, 6), "count": row.count,
                "counted": list(row.counted),
            }
            for row in times.rows
        },
        "notes": list(times.notes),
    }  # fmt: skip


def _row(row: Row) -> dict[str, float]:
    """One figure."""
    return {"predicted": row.predicted, "measured": row.measured, "error": round(row.error, 6)}


def comparison_text(found: Comparison) -> str:
    """Tables with a verdict below them."""
    ranks = found.measured["gpu"] if found.on_gpus else "processors, where times mean nothing"
    lines = [f"{found.evaluation.job.name}: measured on {found.evaluation.job.cluster.gpus} ranks on {ranks}", ""]
    lines += _table("most of each book in a step", found.books)
    lines += _table("peak of each phase, without reserve", found.phases)
    lines += _table("other figures", found.others)
    lines += _times(found.times, found.on_gpus)
    lines += [f"step {format_seconds(step_seconds(found.measured))}"]
    verdict = "every book agrees" if found.agrees else "not every book agrees"
    lines += [f"{verdict} within {TOLERANCE:.0%}", *(f"  {line}" for line in advice(found))]
    return "\n".join(lines) + "\n"


def _table(title: str, rows: tuple[Row, ...]) -> list[str]:
    """One table, nothing where there are no rows."""
    if not rows:
        return []
    head = f"{title:<40}{'predicted':>14}{'measured':>14}{'error':>10}"
    return [head, *(_line(row) for row in rows), ""]


def _times(times: Times, on_gpus: bool) -> list[str]:
    """The table of a profiled step, what it does not tell below it; errors only of GPUs."""
    lines = []
    if times.rows:
        step = f"a profiled step of {format_seconds(times.seconds)} by term"
        lines += [f"{step:<40}{'predicted':>14}{'measured':>14}{'error':>10}{'pieces':>9}"]
    for row in times.rows:
        error = "" if row.error is None or not on_gpus else f"{row.error:+.1%}"
        figures = (_signed(row.predicted), _signed(row.measured))
        lines.append(f"  {row.name:<38}{figures[0]:>14}{figures[1]:>14}{error:>10}{row.count or '':>9}")
    return [*lines, *(f"  note: {note}" for note in times.notes), ""] if lines or times.notes else []


def _signed(seconds: float) -> str:
    """A time that may be taken off."""
    return f"-{format_seconds(-seconds)}" if seconds < 0 else format_seconds(seconds)


def _line(row: Row) -> str:
    """One row of a table."""
    return f"  {row.name:<38}{_figure(row, row.predicted):>14}{_figure(row, row.measured):>14}{row.error:>+10.1%}"


def _figure(row: Row, value: float) -> str:
    """Bytes or seconds."""
    return format_seconds(value) if row.name == "step time" else format_bytes(value)
