"""Evaluates a plan: ledger, step time with its range, broken constraints. Every figure a user sees is from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.job import Job
from planner.ledger import Ledger, ledger
from planner.plan import Plan, Value
from planner.space import job_space
from planner.time_lines import StepTime, step_time


@dataclass(frozen=True)
class Violation:
    """A constraint that a plan breaks, and how."""

    constraint: str
    because: str


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Everything there is to say about one plan of one job; `values` holds the choices and what follows from them."""

    job: Job
    plan: Plan
    values: Mapping[str, Value]
    ledger: Ledger
    step_time: StepTime
    low_seconds: float
    high_seconds: float
    violations: tuple[Violation, ...]

    @property
    def peak_bytes(self) -> int:
        """The most that one GPU holds."""
        return self.ledger["gpu"].peak.total

    @property
    def tokens_per_second_per_gpu(self) -> float:
        """Tokens of the global batch over step time and GPUs."""
        training = self.job.training
        return training.global_batch * training.sequence_length / self.step_time.seconds / self.job.cluster.gpus

    @property
    def model_flops_utilization(self) -> float:
        """Model FLOPs (forward and backward, causal attention, no recomputation) over what the GPUs' peak would do."""
        job = self.job
        peak = job.cluster.gpu.peak[job.training.precision.peak]
        return self.tokens_per_second_per_gpu * job.model_flops_per_token / peak


def violations(job: Job, plan: Plan) -> tuple[Violation, ...]:
    """The constraints that the plan breaks, in their order."""
    from constraints import ALL

    found = ((module.NAME, module.because(job, plan)) for module in ALL)
    return tuple(Violation(name, text) for name, text in found if text is not None)


def evaluate(job: Job, plan: Plan) -> Evaluation:
    """All figures of `plan`, also of one that breaks constraints."""
    space = job_space(job)
    values = space.complete(plan)
    return Evaluation(
        job=job,
        plan=plan,
        values=space.described(plan),
        ledger=ledger(job, plan),
        step_time=step_time(job, values),
        low_seconds=step_time(job, values, "low").seconds,
        high_seconds=step_time(job, values, "high").seconds,
        violations=violations(job, plan),
    )
