"""The gradient accumulation dtype suits the stage.

Without ZeRO, DeepSpeed accumulates 16-bit gradients in the precision of the model and raises NotImplementedError for
anything else (deepspeed 0.19.8 runtime/engine.py, optimizer sanity check).
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement, Rule, Values

NAME = "accumulation_dtype_suits_the_stage"


def require(job: Job) -> tuple[Requirement, ...]:
    """Stage 0 of DeepSpeed accumulates in the model's own precision."""
    own = job.training.precision.dtype

    def holds(values: Values) -> bool:
        return values["zero_stage"] != 0 or values["gradient_accumulation_dtype"] == own

    rule = Rule(NAME, ("zero_stage", "gradient_accumulation_dtype"), holds)
    return (rule,) if job.runtime.runtime == "deepspeed" else ()


def because(job: Job, plan: Plan) -> str | None:
    """The dtype that stage 0 cannot accumulate in."""
    if all(rule.satisfied(plan) for rule in require(job) if isinstance(rule, Rule)):
        return None
    return (
        f"zero_stage 0 accumulates gradients in {job.training.precision.dtype}, "
        f"the plan asks for {plan['gradient_accumulation_dtype']}"
    )
