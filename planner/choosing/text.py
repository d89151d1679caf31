"""A choice as text: a table of every cluster or combination of settings, what is proven, and the chosen plan."""

from __future__ import annotations

from collections.abc import Iterator

from planner.choosing.answer import because, cost, not_needed, seconds_per_million, used
from planner.choosing.choosing import Chosen, Outcome, outcome_value
from planner.choosing.preference import TOLERANCE, value_of
from planner.choosing.variant import Allowance
from planner.errors import NoPlan
from planner.evaluate import Evaluation
from planner.plan_summary import plan_summary
from planner.report import no_plan_text, solution_text
from planner.units import format_seconds

TITLES = {"step_time": "the shortest step", "cost": "the least cost per token", "smallest": "the fewest GPUs"}
COLUMNS = ("cluster", "GPUs", "USD/hour", "step", "s/10^6 tokens", "USD/10^6 tokens", "plan, or why not")
PER_TOKEN = 4  # the column that is told where steps are of different numbers of tokens
MOST_LISTED = 16
LEFT = (COLUMNS[0], COLUMNS[-1])  # columns of text


def chosen_text(found: Chosen, colour: bool = False) -> str:
    """The whole answer of `planner solve` where the cluster is open."""
    table = clusters_text(found)
    if found.solution is not None:
        return table + "\n" + solution_text(found.solution, colour)
    failure = found.failure
    assert isinstance(failure, NoPlan)  # a search that ended early without a plan has no answer
    told = {"cluster": "On the cluster with the most memory", "variant": f"With {found.largest.name}"}
    where = told.get(found.choice.what, f"On {found.largest.name}")
    return f"{table}\n{where}:\n" + no_plan_text(failure, colour)


def clusters_text(found: Chosen) -> str:
    """The table of clusters and the sentence about the choice; of many clusters the best ones, the others in groups."""
    plans, others = _told(found), [outcome for outcome in found.outcomes if outcome.best is None]
    grouped = len(others) > MOST_LISTED
    rows = [(found.choice.what, *COLUMNS[1:]), *(_row(outcome) for outcome in plans)]
    rows += [] if grouped else [_reason(found, outcome) for outcome in others]
    marks = [" ", *(">" if outcome is found.best else " " for outcome in plans), *" " * len(rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(COLUMNS))]
    if not found.choice.batches_differ:
        widths[PER_TOKEN] = -1
    title = TITLES[found.choice.objective]
    if found.choice.batches_differ and found.choice.objective == "step_time":
        title = "the least time per token"
    count = len(found.outcomes)
    lines = [f"{count} {found.choice.what}{'s' if count != 1 else ''}, {title} is wanted", ""]
    lines += [f"{mark} {_line(row, widths)}".rstrip() for mark, row in zip(marks, rows, strict=False)]
    return "\n".join([*lines, "", *(_groups(found, others) if grouped else ()), *_sentences(found)]) + "\n"


def _told(found: Chosen) -> list[Outcome]:
    """The clusters that hold a plan, in the order of the choice; of many the best."""
    plans = [outcome for outcome in found.outcomes if outcome.best is not None]
    ranked = sorted(plans, key=lambda outcome: outcome_value(found.choice, outcome))[:MOST_LISTED]
    return [outcome for outcome in plans if outcome in ranked or outcome is found.best]


def _groups(found: Chosen, others: list[Outcome]) -> Iterator[str]:
    """Clusters without a plan in the answer by their reason, the closest one of those that are not better."""
    groups: dict[str, list[Outcome]] = {}
    for outcome in others:
        reason = "" if outcome.status == "not_better" else because(found, outcome)
        groups.setdefault(f"{_word(outcome)}{reason and ': '}{reason}", []).append(outcome)
    for reason, outcomes in groups.items():
        if len(outcomes) == 1:
            yield f"{outcomes[0].candidate.name}: {_word(outcomes[0])}: {because(found, outcomes[0])}"
        else:
            closest = f"; {_closest(found, outcomes)}" if outcomes[0].status == "not_better" else ""
            yield f"{len(outcomes)} {found.choice.what}s: {reason}{closest}"
    more = sum(outcome.best is not None for outcome in found.outcomes) - MOST_LISTED
    more_told = f"{more} more {found.choice.what}s hold a plan; " if more > 0 else ""
    yield f"{more_told}--format json tells of every {found.choice.what}\n"


def _closest(found: Chosen, outcomes: list[Outcome]) -> str:
    """The one of several clusters that are not better whose bound is least."""
    closest = min(outcomes, key=lambda outcome: value_of(found.choice, outcome.candidate, outcome.bound))
    return f"the closest, {closest.candidate.name}, {because(found, closest)}"


def _word(outcome: Outcome) -> str:
    """The status in words."""
    return outcome.status.replace("_", " ")


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    """One line of the table."""
    cells = (
        f"{text:<{width}}" if column in LEFT else f"{text:>{width}}"
        for column, text, width in zip(COLUMNS, row, widths, strict=True)
        if width >= 0
    )
    return "  ".join(cells)


def _row(outcome: Outcome) -> tuple[str, ...]:
    """A cluster that holds a plan."""
    best = outcome.best
    assert isinstance(best, Evaluation)  # rows are of clusters that fit
    seconds = best.step_time.seconds
    unproven = "" if outcome.proven else " (not proven best)"
    return (*_machine(outcome, seconds), plan_summary(best) + unproven)


def _reason(found: Chosen, outcome: Outcome) -> tuple[str, ...]:
    """A cluster without a plan in the answer."""
    return (*_machine(outcome, None), f"{_word(outcome)}: {because(found, outcome)}")


def _machine(outcome: Outcome, seconds: float | None) -> tuple[str, ...]:
    """Name, size, price, step and cost of a cluster."""
    candidate = outcome.candidate
    price = candidate.price_per_hour
    dollars = cost(candidate, seconds) if seconds is not None else None
    return (
        candidate.name,
        str(candidate.gpus or ""),
        "" if price is None else f"{price:,.2f}" + ("*" if candidate.price_source == "gpu" else " "),
        "" if seconds is None else format_seconds(seconds),
        "" if seconds is None else f"{seconds_per_million(candidate, seconds):.3f}",
        "" if dollars is None else f"{dollars:.4f}",
    )


def _sentences(found: Chosen) -> Iterator[str]:
    """What is chosen and proven, and what the marks mean."""
    if any(outcome.candidate.price_source == "gpu" for outcome in found.outcomes):
        yield "* the lowest public price of this GPU: the catalog has none for this node"
    if found.best is None:
        yield f"No plan {found.choice.where} any of the {len(found.outcomes)} {found.choice.what}s, proven."
        return
    told = f"Chosen: {found.best.candidate.name}."
    if not found.proven:
        yield f"{told} Not proven best: {found.stopped or 'the search was stopped'}."
    elif found.choice.offered:
        better = f"better by more than {TOLERANCE * 100:g} %"
        yield f"{told} Proven: none is {better}, or as good with fewer changes of numerics."
    else:
        yield f"{told} Proven: no plan {found.choice.where} any of the {found.choice.what}s is better."
    yield from _allowed(found)


def _allowed(found: Chosen) -> Iterator[str]:
    """What is used of what the job allows, what would be without, and what was not needed."""
    if not found.choice.offered:
        return
    taken = used(found)
    yield f"Uses: {_listed(taken)}." if taken else "Uses nothing beside the job's own values."
    if any(one.changes_training for one in taken):
        yield without(found)
    if rest := not_needed(found):
        yield f"Not needed: {_listed(rest)}."


def _listed(allowances: tuple[Allowance, ...]) -> str:
    """Such as `adamw-8bit (changes numerics), liger kernels (must be installed)`."""
    return ", ".join(one.text for one in allowances)


def without(found: Chosen) -> str:
    """What can be had without any change of numerics, where the chosen plan makes some."""
    plain = [outcome for outcome in found.outcomes if outcome.candidate.changes[0] == 0]
    fitting = [outcome for outcome in plain if outcome.best is not None]
    if fitting:
        best = min(fitting, key=lambda outcome: outcome_value(found.choice, outcome))
        more = _more(found, outcome_value(found.choice, best), ",")
        return f"Without a change of numerics the best is {best.candidate.name}{more}."
    if all(outcome.status in ("no_plan", "left_out") for outcome in plain):
        return "Without a change of numerics there is no plan, proven."
    bounds = [value_of(found.choice, one.candidate, one.bound) for one in plain if one.status == "not_better"]
    least = _more(found, min(bounds), ": at least") if bounds and len(bounds) == len(plain) else ""
    return f"Without a change of numerics no plan is as good{least}."


def _more(found: Chosen, value: tuple[float, ...], before: str) -> str:
    """How much worse a value is than that of the chosen plan; nothing where numbers of GPUs are compared."""
    assert found.best is not None  # asked of a choice that was made
    best = outcome_value(found.choice, found.best)[0]
    if found.choice.objective == "smallest" or best <= 0:
        return ""
    return f"{before} {(value[0] / best - 1) * 100:.1f} % more"
