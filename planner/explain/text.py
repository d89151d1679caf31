"""An explanation as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from planner.explain.explanation import Explanation, NoPlanExplained
from planner.explain.sentences import (
    changed_sentence,
    limit_sentence,
    miss_lines,
    outcome_sentence,
    pins_text,
    purchase_sentence,
    repair_sentence,
    traffic_sentence,
)
from planner.plot.picture import plan_line, point_lines
from planner.units import format_count


def explanation_text(found: Explanation | NoPlanExplained, _: bool = False) -> str:
    """The whole text."""
    lines = _no_plan(found) if isinstance(found, NoPlanExplained) else _plan(found)
    return "\n".join(lines).rstrip() + "\n"


def _plan(found: Explanation) -> Iterator[str]:
    """Why this plan."""
    best, cluster = found.best, found.best.job.cluster
    model = f"{best.job.architecture.name} ({format_count(best.job.architecture.parameters)} parameters)"
    yield f"The best plan of {model} on {cluster.nodes} × {cluster.node.key}"
    yield from _indented(point_lines(best))
    if found.asked is not None:
        yield from _section(f"Why not {pins_text(found.asked.pins)}", [outcome_sentence(best, found.asked)])
        if found.asked.best is not None:
            yield f"  the plan then changes: {changed_sentence(best, found.asked.best)}"
        elif found.asked.miss is not None:
            yield from _section("The nearest miss", miss_lines(found.asked.miss))
    if found.reasons:
        yield ""
        yield "Each choice, and the best plan with another value"
    for reason in found.reasons:
        yield f"  {reason.choice} {reason.value}"
        yield from _indented(_indented(outcome_sentence(best, outcome) for outcome in reason.outcomes))
    yield from _section("What limits it", (limit_sentence(best, reason) for reason in found.limits))
    yield from _section("What more would buy", (purchase_sentence(best, item) for item in found.purchases))
    title = f"What goes between GPUs: {found.traffic[0].where}" if found.traffic else ""
    yield from _section(title, (traffic_sentence(sent) for sent in found.traffic))


def _no_plan(found: NoPlanExplained) -> Iterator[str]:
    """Why nothing fits."""
    yield "No plan exists. These cannot hold together:"
    yield from _indented(found.failure.conflict)
    miss = found.failure.nearest_miss
    if miss is not None:
        yield from _section("The nearest miss", [plan_line(miss), *miss_lines(miss)])
    yield from _section(
        "What makes it fit, each change alone, by what a token then costs",
        (repair_sentence(repair) for repair in found.repairs),
    )
    if not found.repairs:
        yield "No single change that was tried makes it fit"
    yield from _section("Not enough alone", [", ".join(item.change for item in found.failed)] if found.failed else [])


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    """A titled block; nothing where it would be empty."""
    shown = list(lines)
    if shown:
        yield ""
        yield title
        yield from _indented(shown)


def _indented(lines: Iterable[str]) -> Iterator[str]:
    return (f"  {line}" for line in lines)
