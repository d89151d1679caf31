"""The files that the ranks of a run read, whichever launcher starts them."""

from __future__ import annotations

from collections.abc import Mapping

from planner.emit import deepspeed, plan_file
from planner.evaluate import Evaluation

RUNTIMES = ("deepspeed", "ddp", "fsdp1", "fsdp2", "megatron")
EXPRESSES = deepspeed.EXPRESSES


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """plan.json, and deepspeed.json where DeepSpeed runs the plan."""
    configured = deepspeed.files(evaluation) if evaluation.job.runtime.runtime == "deepspeed" else {}
    return {plan_file.NAME: plan_file.plan_text(evaluation), **configured}
