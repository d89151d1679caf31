"""The parts of the page that stand still, as HTML: every text from a job or a catalog is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from planner.evaluate import Evaluation
from planner.explain.choices import Outcome, Reason
from planner.explain.explanation import Explanation, NoPlanExplained
from planner.explain.sentences import (
    limit_sentence,
    memory_change,
    miss_lines,
    outcome_sentence,
    purchase_sentence,
    repair_sentence,
    time_change,
    traffic_sentence,
)
from planner.frontier import Frontier
from planner.frontier_answer import axis_text, changes_text, proof_text
from planner.page.data import Report
from planner.page.frontier_svg import frontier_svg
from planner.page.grid import FREE, rows
from planner.page.plans import Plans
from planner.plot.picture import Picture, Series, picture

Cells = Iterable[str]


def main_html(found: Report, plans: Plans) -> str:
    """All still parts below the plan that is shown."""
    explanation = found.explanation
    if isinstance(explanation, NoPlanExplained):
        return _no_plan(explanation, plans)
    parts = [_frontier(found, found.frontier, plans)] if found.frontier is not None else []
    return "\n".join([*parts, _alternatives(explanation, plans), *_sentences(explanation)])


def section(name: str, title: str, body: str) -> str:
    """A titled part that can be linked to."""
    heading = f'<h2 id="{name}-title">{escape(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}{body}</section>'


def table(caption: str, head: Cells, body: Iterable[Cells]) -> str:
    """A table of cells that are HTML already; the caption and the head are plain text."""
    columns = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    lines = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>" for cells in body)
    name = escape(caption, quote=True)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{name}"><table><caption>{name}</caption>'
        f"<thead><tr>{columns}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def show_button(found: Evaluation | None, plans: Plans, label: str) -> str:
    """A button that shows a plan in place of the one that stands there; nothing without a plan."""
    if found is None:
        return ""
    name = escape(label, quote=True)
    about = f'data-plan="{plans.number(found)}" data-label="{name}" aria-label="Show {name}"'
    return f'<button type="button" class="show" {about}>show</button>'


def items(lines: Iterable[str]) -> str:
    """Sentences as a list; nothing where there is none."""
    shown = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<ul>{shown}</ul>" if shown else ""


def details(summary: str, body: str) -> str:
    """A part that is folded away."""
    return f"<details><summary>{escape(summary)}</summary>{body}</details>"


# ── where a plan exists ──────────────────────────────────────────────────────────────────────────────────────────────


def _frontier(found: Report, frontier: Frontier, plans: Plans) -> str:
    """The picture, what is pointed at, and the points as a table."""
    numbers = [plans.number(point) for _, point in found.points]
    shown = plans.number(found.shown) if found.shown is not None else None
    drawn = _thinned(picture({found.job.name: frontier}, "Memory against step time"), found.points)
    hint = "Point at a plan to read it, choose it to show it above. By keyboard: Tab, the arrow keys, Enter."
    body = (
        f'<p class="hint">{hint}</p><div class="plot">{frontier_svg(drawn, numbers, shown)}</div>'
        f'<p id="pointed" aria-live="polite"></p><p>{escape(proof_text(frontier))}.</p>'
    )
    before: Evaluation | None = None
    lines = []
    for number, point in found.points:
        name = f"point {number} of the frontier"
        places = [escape(axis_text(axis, point)) for axis in frontier.axes]
        lines.append([str(number), *places, escape(changes_text(before, point)), show_button(point, plans, name)])
        before = point
    head = ["point", *(axis.label for axis in frontier.axes), "what changes from the point before", "plan"]
    listed = details(f"The {len(lines)} points as a table", table("The frontier, from lean to fast", head, lines))
    return section("frontier-part", "Every plan that is worth having", body + listed)


def _thinned(drawn: Picture, points: Sequence[tuple[int, Evaluation]]) -> Picture:
    """The picture with those points alone that the page has plans of."""
    series = drawn.series[0]
    kept = tuple(series.spots[number - 1] for number, _ in points)
    return Picture(drawn.title, drawn.x_label, drawn.y_label, (Series(series.name, kept, series.limit),))


def _alternatives(found: Explanation, plans: Plans) -> str:
    """For each choice its value and what every other value that was asked for would do."""
    lines = [cells for reason in found.reasons for cells in _reason(found.best, reason, plans)]
    head = ("choice", "here", "instead", "a step takes", "and holds", "why", "plan")
    return section("alternatives", "What else was possible", table("The best plan with another value", head, lines))


def _reason(best: Evaluation, reason: Reason, plans: Plans) -> Iterator[list[str]]:
    """The rows of one choice."""
    for outcome in reason.outcomes:
        other = next(iter(outcome.pins.values()))
        pins, _, why = outcome_sentence(best, outcome).partition(": ")
        if outcome.best is not None:
            why = why.partition("; ")[2]  # time and memory have columns of their own
        name = f"the plan with {pins}"
        shown = show_button(outcome.best or outcome.miss, plans, name)
        head = [escape(reason.choice), escape(str(reason.value)), escape(str(other))]
        yield [*head, *_differences(best, outcome), escape(why), shown]


def _differences(best: Evaluation, outcome: Outcome) -> tuple[str, str]:
    """Time and memory beside the best plan's, of an outcome that fits."""
    if outcome.best is None:
        return ("does not fit", "") if outcome.miss is not None else ("cannot be", "")
    return escape(time_change(best, outcome.best)), escape(memory_change(best, outcome.best))


def _sentences(found: Explanation) -> Iterator[str]:
    """What limits the plan, what more would buy, what goes between GPUs."""
    limits = items(limit_sentence(found.best, reason) for reason in found.limits)
    yield section("limits", "What limits it", limits)
    bought = items(purchase_sentence(found.best, item) for item in found.purchases)
    if bought:
        yield section("more", "What more would buy", bought)
    if found.traffic:
        sent = items(traffic_sentence(one) for one in found.traffic)
        yield section("traffic", f"What goes between GPUs: {found.traffic[0].where}", sent)


# ── where nothing fits ───────────────────────────────────────────────────────────────────────────────────────────────


def _no_plan(found: NoPlanExplained, plans: Plans) -> str:
    """The conflict, the nearest miss line by line, and the repairs."""
    parts = [section("conflict", "These cannot hold together", items(found.failure.conflict))]
    miss: Evaluation | None = found.failure.nearest_miss
    if miss is not None:
        lines = escape("\n".join(miss_lines(miss)))
        again = show_button(miss, plans, "the nearest miss")
        parts.append(section("miss", "The nearest miss, line by line", f'<pre class="scroll">{lines}</pre>{again}'))
    parts.append(section("repairs", "What makes it fit", _repairs(found, plans)))
    return "\n".join(parts)


def _repairs(found: NoPlanExplained, plans: Plans) -> str:
    """Each change alone, by what a token then costs."""
    lines = []
    for repair in found.repairs:
        change, _, rest = repair_sentence(repair).partition(": ")
        shown = show_button(repair.best, plans, f"the plan with {change}")
        lines.append([escape(change), escape(rest), shown])
    failed = ", ".join(item.change for item in found.failed)
    vain = f"<p>Not enough alone: {escape(failed)}.</p>" if failed else ""
    if not lines:
        return f"<p>No single change that was tried makes it fit.</p>{vain}"
    caption = "Each change alone, by what a token then costs"
    return table(caption, ("change", "then", "plan"), lines) + vain


# ── what if ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def what_if(found: Report, plans: Plans) -> str:
    """Three groups of buttons, the answer, and all answers as a table."""
    axes, (length, size, gpu) = found.grid.axes, found.grid.here
    groups = (
        _radios("length", "Sequence length", {str(value): f"{value:,}" for value in axes.lengths}, str(length)),
        _radios("size", "Micro-batch", {str(value): _size_text(value) for value in axes.micro_batches}, str(size)),
        _radios("gpu", "GPU", {value: value for value in axes.gpus}, gpu),
    )
    answer = '<p id="what-if-answer" role="status" aria-live="polite"></p>'
    hint = "Each answer was solved when this page was made; all other choices are the planner's again."
    lines = [
        [escape(gpu), f"{length:,}", _size_text(size), escape(cell.text),
         show_button(cell.plan, plans, f"{gpu}, length {length:,}, micro-batch {_size_text(size)}")]
        for gpu, length, size, cell in rows(found.grid)
    ]  # fmt: skip
    head = ("GPU", "sequence length", "micro-batch", "answer", "plan")
    listed = details(f"All {len(lines)} answers as a table", table("What if", head, lines))
    form = f'<form id="what-if-form">{"".join(groups)}</form>'
    return section("what-if", "What if", f'<p class="hint">{hint}</p>{form}{answer}{listed}')


def _size_text(size: int) -> str:
    return "free" if size == FREE else str(size)


def _radios(name: str, legend: str, options: dict[str, str], chosen: str) -> str:
    """One group of choices of which one is taken."""
    shown = "".join(
        f'<label><input type="radio" name="{name}" value="{escape(value, quote=True)}"'
        f"{' checked' if value == chosen else ''}><span>{escape(text)}</span></label>"
        for value, text in options.items()
    )
    return f"<fieldset><legend>{escape(legend)}</legend>{shown}</fieldset>"
