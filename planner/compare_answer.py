"""A comparison as an answer: a plain dictionary, text for a terminal, and one picture."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf

from planner.answer import Answer, conflict_answer, evaluation_answer, plan_answer
from planner.compare import NEAR, Comparison, Stretch, Subject, book_changes, rows
from planner.errors import NoPlan
from planner.frontier_answer import frontier_proof_answer, place
from planner.plot.picture import Picture, picture
from planner.plot.text import plot_text
from planner.units import format_bytes

NAME = 28  # letters of the table's first column


def comparison_answer(found: Comparison) -> Answer:
    """The answer of `planner compare`."""
    return {
        "subjects": {subject.name: _subject(subject) for subject in found.subjects},
        "differences": [
            {"what": name.strip(), **dict(zip((s.name for s in found.subjects), texts, strict=True))}
            for name, texts in rows(found).items()
        ],
        "book_changes": book_changes(found),
        "ahead": [
            {"name": item.name, "from_bytes": item.start, "to_bytes": None if isinf(item.end) else item.end,
             "lead": item.lead} for item in found.stretches
        ],
        "dominates": [{"name": one, "over": other} for one, other in found.dominance],
    }  # fmt: skip


def _subject(subject: Subject) -> Answer:
    """One subject: its best plan with all figures, its frontier by place and plan; or why it has none."""
    if subject.broken is not None:
        return {**evaluation_answer(subject.broken), "frontier": None}
    if subject.frontier is None:
        failure = subject.failure or NoPlan(())
        return {**conflict_answer(failure), "frontier": None}
    found = subject.frontier
    points = [{"at": place(found, point), "plan": plan_answer(point.values)} for point in found.points]
    answer = evaluation_answer(found.points[-1], "optimal")
    answer["frontier"] = {
        "axes": [axis.name for axis in found.axes],
        "points": points,
        "proof": frontier_proof_answer(found),
    }
    return answer


def comparison_picture(found: Comparison) -> Picture | None:
    """The frontiers overlaid; None where no subject has one."""
    frontiers = {subject.name: subject.frontier for subject in found.subjects if subject.frontier is not None}
    if not frontiers:
        return None
    models = dict.fromkeys(subject.job.architecture.name for subject in found.subjects)
    return picture(frontiers, f"{', '.join(models)}: {', '.join(frontiers)}")


def comparison_text(found: Comparison, _: bool = False) -> str:
    """The picture, the table of what differs, the books, and who is ahead where."""
    shown = comparison_picture(found)
    lines = [plot_text(shown)] if shown is not None else []
    lines += [*_table(found), ""]
    for name, books in book_changes(found).items():
        lines.append(_books(found.subjects, name, books))
    lines += [f"{one} is at least as good as {other} everywhere" for one, other in found.dominance]
    lines += [_ahead(item) for item in found.stretches]
    lines += [_no_plan(subject) for subject in found.subjects if subject.failure is not None]
    for subject in found.subjects:
        broken = subject.broken.violations if subject.broken is not None else ()
        lines += [f"{subject.name} breaks {item.constraint}: {item.because}" for item in broken]
    return "\n".join(lines).rstrip() + "\n"


def _table(found: Comparison) -> Iterator[str]:
    """What differs between the fastest plans, a column for each subject."""
    names = [subject.name for subject in found.subjects]
    table = rows(found)
    widths = [max(len(name), *(len(texts[index]) for texts in table.values())) for index, name in enumerate(names)]
    for label, texts in {"the fastest plan of each": names, **table}.items():
        cells = (f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
        yield f"{label:<{NAME}}{'  '.join(cells)}"


def _books(subjects: tuple[Subject, ...], name: str, books: dict[str, int]) -> str:
    """What each book gains or loses from the first subject with a plan."""
    first = next(subject.name for subject in subjects if subject.best is not None)
    changed = [f"{book.replace('_', ' ')} {_signed(size)}" for book, size in books.items() if size]
    return f"From {first} to {name} the books at the peak change: {', '.join(changed) or 'nothing'}"


def _signed(size: int) -> str:
    return f"{'+' if size > 0 else '-'}{format_bytes(abs(size))}"


def _ahead(item: Stretch) -> str:
    """Who is ahead between two amounts of memory."""
    end = "on" if isinf(item.end) else f"to {format_bytes(item.end)}"
    where = f"From {format_bytes(item.start)} per GPU {end}"
    if item.lead is None:
        return f"{where} only {item.name} fits"
    if item.name is None:
        return f"{where} the fastest are within {NEAR:.0%} of each other"
    return f"{where} {item.name} is ahead, by up to {item.lead:.1%}"


def _no_plan(subject: Subject) -> str:
    """Why a subject has no plan."""
    conflict = subject.failure.conflict if subject.failure is not None else ()
    return f"{subject.name} has no plan: {', '.join(conflict)} cannot hold together"
