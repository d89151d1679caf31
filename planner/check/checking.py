"""Checks a file: what the rules find, and under a job the books of the file and a better one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from planner.check.better import better_content, unified
from planner.check.failure import Failure, first_failure
from planner.check.findings import Finding, severity
from planner.check.mapping import Mapped, mapped
from planner.check.registry import findings
from planner.check.rules import batch
from planner.check.subject import Subject
from planner.check.text import read_source
from planner.errors import InputError, NoPlan, PlannerError
from planner.evaluate import Evaluation
from planner.job import Job

ASSUMED_RANKS = 8


@dataclass(frozen=True)
class Checked:
    """Everything there is to say about a file; `better` is the best plan of the job, `notes` what was assumed."""

    subject: Subject
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    mapped: Mapped | None = None
    better: Evaluation | None = None
    diff: str = ""

    @property
    def severity(self) -> str:
        """ok, warn or error: of the file itself; whether it fits is the verdict of its books."""
        return severity(self.findings)

    @property
    def failure(self) -> Failure | None:
        """Where memory runs out."""
        return first_failure(self.mapped.evaluation.ledger) if self.mapped else None


def check(path: Path, job: Job | None = None, ranks: int | None = None) -> Checked:
    """The file at `path` held against DeepSpeed, and against `job` where there is one.

    Raises InputError where the file cannot be read at all; everything else is part of the answer.
    """
    source = read_source(path)
    subject = Subject(source, ranks or (job.cluster.gpus if job else ASSUMED_RANKS))
    found = findings(subject)
    if job is None:
        return Checked(
            subject, found, () if ranks else (f"{ASSUMED_RANKS} ranks are assumed; --gpus or --job say how many",)
        )
    if not isinstance(source.data, dict):
        return Checked(subject, found, ("nothing in the file can be mapped to a plan",))
    if job.cluster.gpus != subject.ranks:
        raise InputError(
            f"{subject.ranks} GPUs are not the job's {job.cluster.gpus}", path="--gpus", hint="leave it out"
        )
    return _under(subject, found, job)


def _under(subject: Subject, found: tuple[Finding, ...], job: Job) -> Checked:
    """The rest of the answer: books and better file."""
    notes: list[str] = []
    place: Mapped | None = None
    try:
        place = mapped(subject, job)
        notes += place.notes
        _ = place.evaluation
    except PlannerError as problem:
        place = None
        notes.append(f"the file cannot be mapped to a plan of the job: {problem}")
    best = _best(job, notes)
    if best is None:
        return Checked(subject, found, tuple(notes), place)
    from planner.emit.deepspeed import OPTIMIZERS, configuration

    optimizer = OPTIMIZERS.get(best.job.training.optimizer.key)
    content = better_content(subject, configuration(best.job, best.plan), optimizer)
    return Checked(subject, found, tuple(notes), place, best, unified(subject, content))


def _best(job: Job, notes: list[str]) -> Evaluation | None:
    """The best plan of the job, None where there is none."""
    from planner.search import solve

    if job.runtime.runtime != "deepspeed":
        notes.append(f"the job runs {job.runtime.runtime}: there is no better DeepSpeed file for it")
        return None
    try:
        return solve(job).best
    except NoPlan as problem:
        notes.append(f"there is no better file: {problem}")
    except PlannerError as problem:
        notes.append(f"no better file was found: {problem}")
    return None


def trainer_arguments(subject: Subject) -> Iterator[tuple[str, object, str]]:
    """(argument of Hugging Face's TrainingArguments, value it must have, key that says so) of all fixed values."""
    written = (
        ("per_device_train_batch_size", batch.MICRO),
        ("gradient_accumulation_steps", batch.STEPS),
        ("max_grad_norm", "gradient_clipping"),
        ("learning_rate", "optimizer.params.lr"),
        ("adam_beta1, adam_beta2", "optimizer.params.betas"),
        ("adam_epsilon", "optimizer.params.eps"),
        ("weight_decay", "optimizer.params.weight_decay"),
        ("learning_rate", "scheduler.params.warmup_max_lr"),
        ("warmup_steps", "scheduler.params.warmup_num_steps"),
        ("fp16", "fp16.enabled"),
        ("bf16", "bf16.enabled"),
    )
    for argument, dotted in written:
        if subject.raw(dotted) is not None and not subject.is_auto(dotted):
            yield argument, subject.raw(dotted), dotted
    if batch.is_number(subject.raw(batch.BATCH)) and subject.raw(batch.MICRO) is None:
        yield "per_device_train_batch_size × gradient_accumulation_steps × ranks", subject.raw(batch.BATCH), batch.BATCH
