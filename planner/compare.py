"""Several jobs side by side: frontiers on the same axes, best plans, and where one is ahead of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf
from pathlib import Path

from planner.answer import plan_answer
from planner.errors import InputError, NoPlan
from planner.evaluate import Evaluation
from planner.frontier import Axis, Frontier, FrontierProof, frontier, read_axes
from planner.job import Job
from planner.objective import gpu_hours
from planner.sweep import Progress
from planner.terms import BOOKS
from planner.units import format_bytes, format_seconds, shown
from planner.variants import Changes, Source, machine, method

NEAR = 0.05  # share of time within which plans count as equally fast


@dataclass(frozen=True, eq=False)
class Subject:
    """One job with its frontier; `failure` stands where nothing fits.

    A DeepSpeed file is a frontier of its one plan; where that breaks something it is a `broken` plan with no frontier.
    """

    name: str
    job: Job
    frontier: Frontier | None
    failure: NoPlan | None = None
    broken: Evaluation | None = None

    @property
    def best(self) -> Evaluation | None:
        """The fastest plan, or the only one that there is."""
        return self.frontier.points[-1] if self.frontier is not None else self.broken


@dataclass(frozen=True)
class Stretch:
    """Memory from `start` to `end` bytes in which `name` has the fastest plan, None where others are within NEAR of it.

    `lead` is the share of time it is ahead by, at most; None where no other fits.
    """

    name: str | None
    start: float
    end: float
    lead: float | None


@dataclass(frozen=True, eq=False)
class Comparison:
    """Subjects in the order they were named, who is ahead where, and pairs of which the first dominates the second."""

    subjects: tuple[Subject, ...]
    stretches: tuple[Stretch, ...]
    dominance: tuple[tuple[str, str], ...]


def sources(
    paths: Sequence[Path], catalogs: tuple[Path, ...], gpus: str | None, methods: str | None, lengths: str | None,
    files: Sequence[Path] = (),
) -> Mapping[str, tuple[Source, Changes]]:  # fmt: skip
    """The jobs to compare, by name: several job files, or one with other GPUs, methods or lengths, or one alone beside
    DeepSpeed files. Raises InputError.
    """
    asked = [text for text in (gpus, methods, lengths) if text]
    if not asked and (len(paths) > 1 or files):
        return {name: (Source(path, catalogs), {}) for name, path in _named(paths).items()}
    if len(paths) != 1 or len(asked) != 1:
        raise InputError(
            "there is nothing to compare", path="compare",
            expected="several jobs, or one job with one of --gpu A,B, --method full,lora16, --sequence-length A,B",
        )  # fmt: skip
    source = Source(paths[0], catalogs)
    return {name: (source, _changes(source, name, gpus, methods)) for name in _split(asked[0])}


def _named(paths: Sequence[Path]) -> Mapping[str, Path]:
    """Files by their stems, by their whole paths where stems repeat."""
    stems = [path.stem for path in paths]
    return {(path.stem if stems.count(path.stem) == 1 else str(path)): path for path in paths}


def _split(text: str) -> Iterable[str]:
    """Distinct parts between commas."""
    return dict.fromkeys(part.strip() for part in text.split(",") if part.strip())


def _changes(source: Source, name: str, gpus: str | None, methods: str | None) -> Changes:
    """What a name changes in the job."""
    if gpus:
        return machine(source, name)
    if methods:
        return {"training.method": method(name)}
    if not name.isdecimal():
        message = f"{shown(name)} is no number of tokens"
        raise InputError(message, path="--sequence-length", expected="such as 4096,8192")
    return {"training.sequence_length": int(name)}


def compare(
    asked: Mapping[str, tuple[Source, Changes]], files: Sequence[Path] = (), progress: Progress | None = None
) -> Comparison:
    """Solves every subject, and evaluates DeepSpeed files under the first; those without a plan say why.

    Raises InputError of a subject's job or file.
    """
    jobs = {name: source.varied(changes, name) for name, (source, changes) in asked.items()}
    plans = {name: file_plan(path, next(iter(jobs.values()))) for name, path in _named(files).items()}
    every = (*jobs.values(), *(plan.job for plan in plans.values()))
    tokens = {job.training.global_batch * job.training.sequence_length for job in every}
    axes = read_axes("memory,step_time" if len(tokens) == 1 else "memory,token_time")
    found = [_file_subject(name, plan, axes) for name, plan in plans.items()]
    for number, (name, job) in enumerate(jobs.items(), 1):
        try:
            found.append(Subject(name, job, frontier(job, axes)))
        except NoPlan as failure:
            found.append(Subject(name, job, None, failure))
        if progress is not None:
            progress(number, len(jobs))
    return Comparison(tuple(found), tuple(_stretches(found)), tuple(_dominance(found)))


def file_plan(path: Path, job: Job) -> Evaluation:
    """The plan that a DeepSpeed file is under a job. Raises InputError where it is none."""
    from planner.check.mapping import mapped
    from planner.check.subject import Subject as File
    from planner.check.text import read_source

    return mapped(File(read_source(path), job.cluster.gpus), job).evaluation


def _file_subject(name: str, plan: Evaluation, axes: tuple[Axis, Axis]) -> Subject:
    """A file's plan as a subject."""
    if plan.violations:
        return Subject(name, plan.job, None, broken=plan)
    return Subject(name, plan.job, Frontier(plan.job, axes, (plan,), FrontierProof(0.0, 1, 0.0, True)))


def _dominance(subjects: Sequence[Subject]) -> Iterable[tuple[str, str]]:
    """Pairs in which the first has, for every point of the second, one that is at least as good in both axes."""
    stairs = {subject.name: _stairs(subject.frontier) for subject in subjects if subject.frontier is not None}
    for one, other in permutations(stairs, 2):
        if stairs[one] != stairs[other] and all(_reached(stairs[one], m) <= value for m, value in stairs[other]):
            yield one, other


def _stretches(subjects: Sequence[Subject]) -> list[Stretch]:
    """Who is ahead, from the leanest plan of all to the memory of the largest."""
    stairs = {subject.name: _stairs(subject.frontier) for subject in subjects if subject.frontier is not None}
    starts = sorted({memory for steps in stairs.values() for memory, _ in steps})
    found: list[Stretch] = []
    for start, end in zip(starts, [*starts[1:], inf], strict=True):
        times = {name: _reached(steps, start) for name, steps in stairs.items()}
        name = min(times, key=lambda item: times[item])
        behind = min((time for other, time in times.items() if other != name), default=inf)
        lead = None if behind == inf else 1 - times[name] / behind
        found.append(Stretch(name if lead is None or lead >= NEAR else None, start, end, lead))
    return joined(found)


def _stairs(found: Frontier) -> list[tuple[float, float]]:
    """The places of a frontier's points."""
    return [found.values(point) for point in found.points]


def _reached(steps: Sequence[tuple[float, float]], memory: float) -> float:
    """The best value within an amount of memory, infinite where nothing fits it."""
    return min((value for needed, value in steps if needed <= memory), default=inf)


def joined(stretches: Iterable[Stretch]) -> list[Stretch]:
    """Neighbours with the same name as one, with the largest lead; alone and ahead stay apart."""
    joined: list[Stretch] = []
    for item in stretches:
        last = joined[-1] if joined else None
        if last is not None and last.name == item.name and (last.lead is None) == (item.lead is None):
            leads = (last.lead, item.lead)
            lead = None if item.lead is None else max(value for value in leads if value is not None)
            joined[-1] = Stretch(item.name, last.start, item.end, lead)
        else:
            joined.append(item)
    return joined


def rows(comparison: Comparison) -> dict[str, list[str]]:
    """What differs between the subjects: a row of texts for each; `no plan` where a subject has none."""
    facts = [_facts(subject) for subject in comparison.subjects]
    names = dict.fromkeys(name for found in facts for name in found)
    table = {name: [found.get(name, "no plan") for found in facts] for name in names}
    return {name: texts for name, texts in table.items() if len(set(texts)) > 1}


def _facts(subject: Subject) -> dict[str, str]:
    """Everything about a subject that a table can hold."""
    job, best = subject.job, subject.best
    found = {
        "model": job.architecture.name,
        "GPUs": f"{job.cluster.gpus} × {job.cluster.gpu.key}",
        "node": f"{job.cluster.nodes} × {job.cluster.node.key}",
        "sequence length": str(job.training.sequence_length),
        "global batch": str(job.training.global_batch),
        "precision": job.training.precision.key,
        "optimizer": job.training.optimizer.key,
        "method": job.training.method,
        "runtime": job.runtime.runtime,
    }
    return found if best is None else found | _choices(best) | _figures(best)


def _choices(best: Evaluation) -> dict[str, str]:
    """The plan's values."""
    return {name: str(value) for name, value in plan_answer(best.values).items()}


def _figures(best: Evaluation) -> dict[str, str]:
    """Step time, speed, cost and memory with its books."""
    peak = best.ledger["gpu"].peak
    return {
        "verdict": "breaks " + ", ".join(v.constraint for v in best.violations) if best.violations else "fits",
        "step time": format_seconds(best.step_time.seconds),
        "tokens/s per GPU": f"{best.tokens_per_second_per_gpu:,.0f}",
        "GPU-hours per 10^9 tokens": f"{gpu_hours(best, 1e9):,.1f}",
        "memory of one GPU": f"{format_bytes(peak.total)} in {peak.phase}",
        **{f"  {_book(book)}": format_bytes(peak.books[book]) for book in BOOKS},
        "host memory": format_bytes(best.ledger["host"].peak.total),
    }


def _book(book: str) -> str:
    return book.replace("_", " ")


def book_changes(comparison: Comparison) -> dict[str, dict[str, int]]:
    """Bytes that each book of the GPU's peak gains (or loses) from the first subject to every other with a plan."""
    bests = [(subject.name, subject.best) for subject in comparison.subjects if subject.best is not None]
    if not bests:
        return {}
    first = bests[0][1].ledger["gpu"].peak.books
    return {
        name: {book: best.ledger["gpu"].peak.books[book] - first[book] for book in BOOKS} for name, best in bests[1:]
    }
