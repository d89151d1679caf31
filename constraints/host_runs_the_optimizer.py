"""The host can run the optimizer whose states it holds.

DeepSpeed updates states in host memory or on NVMe with its own CPU kernels, which exist for Adam, AdamW, Adagrad and
Lion only (deepspeed 0.19.8 runtime/engine.py, zero_force_ds_cpu_optimizer).
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement, Rule, Values

NAME = "host_runs_the_optimizer"


def require(job: Job) -> tuple[Requirement, ...]:
    """States stay on the GPU where no CPU kernel exists."""
    if job.training.optimizer.key in job.runtime.cpu_optimizers:
        return ()

    def holds(values: Values) -> bool:
        return values["optimizer_offload"] == "none"

    return (Rule(NAME, ("optimizer_offload",), holds),)


def because(job: Job, plan: Plan) -> str | None:
    """The optimizer that the host cannot run."""
    if job.training.optimizer.key in job.runtime.cpu_optimizers or plan["optimizer_offload"] == "none":
        return None
    return (
        f"{job.training.optimizer.key} has no CPU kernel, so optimizer_offload {plan['optimizer_offload']} cannot run"
    )
