"""The precision runs on the GPU.

The GPU has matrix units for the job's precision: bf16 needs Ampere or newer, fp8 needs Ada, Hopper or newer.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement, Rule

NAME = "precision_runs_on_the_gpu"


def require(job: Job) -> tuple[Requirement, ...]:
    """A rule without choices: no plan helps where the GPU lacks the precision."""
    supported = job.training.precision.peak in job.cluster.gpu.peak
    return (Rule(NAME, (), lambda _: supported),)


def because(job: Job, plan: Plan) -> str | None:
    """The precision that is missing and those that there are."""
    gpu, precision = job.cluster.gpu, job.training.precision
    if precision.peak in gpu.peak:
        return None
    return f"{gpu.key} has no {precision.key}; it has {', '.join(gpu.peak)}"
