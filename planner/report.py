"""Answers as text for a terminal: books over the phases with bars, step time, plan and proof, or the conflict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from io import StringIO
from typing import TYPE_CHECKING

from planner.answer import changes
from planner.emit.deepspeed import configuration
from planner.errors import NoPlan
from planner.evaluate import Evaluation
from planner.job import Limits
from planner.ledger import DeviceLedger
from planner.objective import OBJECTIVES
from planner.plan import Layout
from planner.search import Proof, Solution
from planner.terms import BOOKS
from planner.units import format_bytes, format_count, format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WIDTH = 110
DERIVED = ("gradient_accumulation", "data_parallel")  # follow from what else a plan changes
BAR = 44
# The ledger column turned on its side: the static books first, activations hatched after them.
FILLS: Mapping[str, str] = {
    "parameters": "█",
    "gradients": "▓",
    "optimizer_states": "▒",
    "activations": "╱",
    "buffers": "░",
    "reserve": "·",
}
COLOURS: Mapping[str, str] = {
    "parameters": "blue",
    "gradients": "cyan",
    "optimizer_states": "magenta",
    "activations": "yellow",
    "buffers": "green",
    "reserve": "white",
}


def solution_text(solution: Solution, colour: bool = False, top: int = 1) -> str:
    """The whole answer of `planner solve`; with `top` above 1 a table of the best plans."""
    console, out = _console(colour)
    best = solution.best
    console.print(_heading(best))
    _plan(console, best)
    _evaluation(console, best)
    _objective(console, best)
    console.print(_proof(solution.proof))
    if solution.proof.then is not None:
        console.print(_then(best, solution.proof.then))
    if top > 1:
        _ranking(console, solution)
    elif solution.runner_up is not None:
        console.print(_runner_up(best, solution.runner_up))
    _assumptions(console, best)
    _configuration(console, best)
    return _plain(out)


def evaluation_text(evaluation: Evaluation, colour: bool = False) -> str:
    """The books and the step time of one plan, with the constraints it breaks."""
    console, out = _console(colour)
    console.print(_heading(evaluation))
    _plan(console, evaluation)
    _evaluation(console, evaluation)
    for item in evaluation.violations:
        console.print(f"breaks {item.constraint}: {item.because}")
    _assumptions(console, evaluation)
    return _plain(out)


def no_plan_text(failure: NoPlan, colour: bool = False) -> str:
    """What cannot hold together, and the plan that comes nearest."""
    miss: Evaluation | None = failure.nearest_miss
    console, out = _console(colour)
    console.print("No plan exists. These cannot hold together:")
    for name in failure.conflict:
        console.print(f"  {name}")
    if not failure.minimal:
        console.print("There was no time to see whether all of them are needed.")
    if miss is not None:
        console.print("\nThe nearest miss:")
        for item in miss.violations:
            console.print(f"  {item.because}")
        _plan(console, miss)
        _evaluation(console, miss)
        _assumptions(console, miss)
    return _plain(out)


def _console(colour: bool) -> tuple[Console, StringIO]:
    """A console of fixed width that writes to memory."""
    from rich.console import Console

    out = StringIO()
    terminal = {"force_terminal": True} if colour else {"color_system": None}
    return Console(file=out, width=WIDTH, highlight=False, markup=False, emoji=False, **terminal), out


def _plain(out: StringIO) -> str:
    """The text without blanks at line ends."""
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _heading(evaluation: Evaluation) -> str:
    """Model, cluster and batch in one line."""
    job = evaluation.job
    cluster, training = job.cluster, job.training
    return (
        f"{job.architecture.name} ({format_count(job.architecture.parameters)} parameters) on "
        f"{cluster.nodes} × {cluster.node.key}: {cluster.gpus} × {cluster.gpu.name}, "
        f"{training.global_batch} sequences of {training.sequence_length} tokens, {training.precision.key}\n"
    )


def _table(*columns: str, right: Iterable[int] = ()) -> Table:
    """A table without frames."""
    from rich.box import SIMPLE
    from rich.table import Table

    table = Table(box=SIMPLE, padding=(0, 1), show_edge=False)
    for index, column in enumerate(columns):
        table.add_column(column, justify="right" if index in set(right) else "left", no_wrap=True)
    return table


def _plan(console: Console, evaluation: Evaluation) -> None:
    """The plan's values, choices first."""
    shown = [(name, str(value)) for name, value in evaluation.values.items() if not isinstance(value, Layout)]
    degrees = [(name, value) for name, value in shown if name.endswith("_parallel")]
    choices = [(name, value) for name, value in shown if not name.endswith("_parallel")]
    console.print("Plan")
    for name, value in choices:
        if name in evaluation.job.settled:
            continue
        console.print(f"  {name:28} {value}{_meaning(evaluation, name, value)}")
    used = ", ".join(f"{name.removesuffix('_parallel')} {value}" for name, value in degrees if value != "1")
    console.print(f"  {'parallel':28} {used or 'one rank'}\n")


def _meaning(evaluation: Evaluation, name: str, value: str) -> str:
    """What a technique does, in the catalog's words."""
    job = evaluation.job
    if name in job.techniques.choices:
        entry = job.techniques.entry(name, evaluation.values[name])
        return f"  ({entry.summary})" if entry is not None else ""
    return ""


def _evaluation(console: Console, evaluation: Evaluation) -> None:
    """Books and step time."""
    for device in ("gpu", "host", "nvme"):
        found = evaluation.ledger[device]
        if found.peak.total:
            _books(console, found, _shown(evaluation) if device == "gpu" else "")
    _time(console, evaluation)


def _shown(evaluation: Evaluation) -> str:
    """What tools show of a GPU, and whether its allocator runs short."""
    shown = evaluation.ledger["gpu"].shown(evaluation.job.runtime.fragmentation)
    sizes = f"{format_bytes(shown.allocated)} allocated, {format_bytes(shown.reserved)} reserved by torch"
    short = f"  The allocator is {format_bytes(shown.short)} short: it gives unused blocks back, which takes time\n"
    return f"  Tools show {sizes}, {format_bytes(shown.device)} in nvidia-smi\n" + (short if shown.short else "")


def _books(console: Console, found: DeviceLedger, last: str) -> None:
    """One device: a row for each phase with a bar, a column for each book, and what tools show of it."""
    place = {"gpu": "One GPU", "host": "Host memory of one node", "nvme": "NVMe of one node"}[found.device]
    usable, planned = format_bytes(found.capacity.usable), format_bytes(found.capacity.planned)
    console.print(
        f"{place}: {found.verdict}. Peak {format_bytes(found.peak.total)} in {found.peak.phase}, "
        f"{planned} can be planned with of {usable} usable"
    )
    books = [book for book in BOOKS if any(moment.books[book] for moment in found.phases.values())]
    table = _table("phase", *(book.replace("_", " ") for book in books), "total", right=range(1, len(books) + 2))
    for name, moment in found.phases.items():
        table.add_row(name, *(_gib(moment.books[book]) for book in books), _gib(moment.total))
    console.print(table)
    shown = found.phases if found.device == "gpu" else {found.peak.phase: found.peak}
    for name, moment in shown.items():
        console.print(_bar(name, moment.books, found))
    console.print(f"  {_legend(books)}\n{last}")


def _legend(books: Iterable[str]) -> str:
    """What each filling stands for."""
    return "  ".join(f"{FILLS[book]} {book.replace('_', ' ')}" for book in books)


def _gib(size: int) -> str:
    """Bytes for a table cell, blank where nothing stands."""
    return format_bytes(size) if size else ""


def _bar(name: str, sizes: Mapping[str, int], found: DeviceLedger) -> Text:
    """One phase as a bar of its books against the device: the static books first, activations hatched after them."""
    from rich.text import Text

    text = Text(f"  {name:15}")
    scale, filled, total = max(found.capacity.usable, found.peak.total), 0, 0
    for book in BOOKS:
        total += sizes[book]
        width = round(BAR * total / scale) - filled
        text.append(FILLS[book] * width, style=COLOURS[book])
        filled += width
    over = " over" if total > found.capacity.usable else ""
    text.append(f"{' ' * (BAR - filled)}│ {format_bytes(total)} of {format_bytes(found.capacity.usable)}{over}")
    return text


def _time(console: Console, evaluation: Evaluation) -> None:
    """The step time's terms, longest first, what overlap hides last."""
    step = evaluation.step_time
    low, high = format_seconds(evaluation.low_seconds), format_seconds(evaluation.high_seconds)
    console.print(
        f"One optimizer step: {format_seconds(step.seconds)} ({low} to {high}), "
        f"{evaluation.tokens_per_second_per_gpu:,.0f} tokens/s per GPU, "
        f"{evaluation.model_flops_utilization:.0%} of peak in model FLOPs"
    )
    table = _table("term", "seconds", "share", right=(1, 2))
    for name, seconds in sorted(step.terms.items(), key=lambda item: -item[1]):
        table.add_row(name, f"{seconds:.3f}", f"{seconds / step.seconds:.0%}")
    console.print(table)


def _proof(proof: Proof) -> str:
    """What is proven, in one sentence."""
    bound = format_seconds(proof.bound) if proof.unit == "seconds" else format_bytes(int(proof.bound))
    claim = "Proven optimal" if proof.optimal else f"Not proven optimal: the search was ended by {proof.stopped}"
    gap = f", {proof.gap:.2%} below this one" if proof.gap else ""
    return (
        f"{claim}: no plan of {proof.configurations:,} configurations is below {bound}{gap} "
        f"(solver {format_seconds(proof.solver_seconds)})"
    )


def _then(best: Evaluation, proof: Proof) -> str:
    """What is proven of the second objective."""
    bound = format_seconds(proof.bound) if proof.unit == "seconds" else format_bytes(int(proof.bound))
    job = best.job
    among = f"within {float(job.within):.2%} of that" if job.within else "as good in that"
    gap = "" if proof.optimal else f", {proof.gap:.2%} below this one; the search was stopped"
    return f"Of the plans {among} none is below {bound} of {OBJECTIVES[job.then].label}{gap}"


def _objective(console: Console, evaluation: Evaluation) -> None:
    """The value of an objective that is neither step time nor memory, and what the job allows at most."""
    job, found = evaluation.job, OBJECTIVES[evaluation.job.objective]
    if found.name not in ("step_time", "memory"):
        console.print(f"Objective: {_amount(found.value(evaluation))} {found.unit(job)}")
    if limits := ", ".join(_limits(job.limits)):
        console.print(f"Limits of the job: {limits}")


def _limits(limits: Limits) -> Iterable[str]:
    """What the job allows at most, in words."""
    if limits.step_time_at_most is not None:
        yield f"a step takes at most {format_seconds(limits.step_time_at_most / 1e6)}"
    if limits.memory_headroom:
        yield f"{format_bytes(limits.memory_headroom)} of every GPU stay free"
    if limits.host_memory_at_most is not None:
        yield f"at most {format_bytes(limits.host_memory_at_most)} of a node's memory"


def _amount(value: float) -> str:
    """A large number with separators, a small one with its leading digits."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _ranking(console: Console, solution: Solution) -> None:
    """The best plans in order, with what each changes from the best one."""
    best, previous = solution.best, "the best plan"
    table = _table("plan", "step time", "GPU memory", "differs from plan 1 in", right=(1, 2))
    table.columns[3].no_wrap = False
    for number, other in enumerate(solution.plans, 1):
        found = {name: value for name, value in changes(best.values, other.values).items() if name not in DERIVED}
        text = ", ".join(f"{name} {value}" for name, value in found.items()) or previous
        table.add_row(str(number), format_seconds(other.step_time.seconds), format_bytes(other.peak_bytes), text)
    proven = "proven: none is missing between them" if solution.ordered else "not proven to be the best: time ran out"
    console.print(f"The {len(solution.plans)} best plans that differ in more than recomputation, {proven}")
    console.print(table)


def _runner_up(best: Evaluation, other: Evaluation) -> str:
    """What the runner-up changes and costs."""
    found = changes(best.values, other.values)
    changed = ", ".join(f"{name} {value}" for name, value in found.items())
    seconds = other.step_time.seconds - best.step_time.seconds
    size = other.peak_bytes - best.peak_bytes
    time = "the same time" if not seconds else f"{format_seconds(abs(seconds))} {'more' if seconds > 0 else 'less'}"
    memory = "the same memory" if not size else f"{format_bytes(abs(size))} {'more' if size > 0 else 'less'} per GPU"
    return f"Runner-up: {changed}: {time}, {memory}"


def _assumptions(console: Console, evaluation: Evaluation) -> None:
    """What was assumed."""
    if evaluation.job.assumptions:
        console.print("\nAssumed")
        for text in evaluation.job.assumptions:
            console.print(f"  {text}")


def _configuration(console: Console, evaluation: Evaluation) -> None:
    """The DeepSpeed JSON, where that is the runtime."""
    if evaluation.job.runtime.runtime != "deepspeed":
        return
    console.print("\nDeepSpeed configuration")
    console.print(configuration_text(evaluation), soft_wrap=True)


def configuration_text(evaluation: Evaluation) -> str:
    """The DeepSpeed JSON of a plan."""
    import json

    return json.dumps(configuration(evaluation.job, evaluation.plan), indent=2)
