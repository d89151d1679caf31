"""The plan as a file that goes with a launch: the machine-readable answer and the training settings around it."""

from __future__ import annotations

import json
from typing import Any

from planner.answer import evaluation_answer
from planner.evaluate import Evaluation
from planner.job import Job

NAME = "plan.json"


def plan_file(evaluation: Evaluation) -> dict[str, Any]:
    """The answer of `evaluation` with `training`: what a script needs beside the choices."""
    return {**evaluation_answer(evaluation), "training": training(evaluation.job)}


def plan_text(evaluation: Evaluation) -> str:
    """`plan_file` as stable JSON text."""
    return json.dumps(plan_file(evaluation), indent=2, ensure_ascii=False) + "\n"


def training(job: Job) -> dict[str, Any]:
    """The training settings by name; lengths in tokens, batch in sequences."""
    found = job.training
    return {
        "runtime": job.runtime.runtime,
        "sequence_length": found.sequence_length,
        "global_batch": found.global_batch,
        "precision": found.precision.key,
        "dtype": found.precision.dtype,
        "optimizer": found.optimizer.key,
        "method": found.method,
        "attention": found.attention,
        "kernels": found.kernels,
        "gradient_clipping": found.gradient_clipping,
    }
