"""Quantized weights are whole on every rank.

A 4-bit base cannot be divided by ZeRO-3: bitsandbytes packs it in one-byte storage that zero.Init does not partition
(bitsandbytes 0.50.2 nn/modules.py, Params4bit without a float quant_storage).
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement, Rule, Values

NAME = "quantized_weights_are_whole"


def require(job: Job) -> tuple[Requirement, ...]:
    """No stage 3 where the base is quantized."""
    if job.training.method != "qlora":
        return ()

    def holds(values: Values) -> bool:
        return values["zero_stage"] != 3

    return (Rule(NAME, ("zero_stage",), holds),)


def because(job: Job, plan: Plan) -> str | None:
    """The stage that would divide a quantized base."""
    if job.training.method != "qlora" or plan["zero_stage"] != 3:
        return None
    return "zero_stage 3 divides parameters, which a 4-bit base (qlora) cannot be"
