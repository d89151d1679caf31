"""Accelerate's configuration file for the runtime of the job: DeepSpeed, DDP, FSDP1 or FSDP2.

Source: accelerate 1.15 commands/config/config_args.py, commands/launch.py, utils/dataclasses.py: with a DeepSpeed file
precision, accumulation, clipping, stage and offload stand in that file only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.emit import deepspeed, fsdp2, run_files
from planner.emit.yaml_file import yaml_text
from planner.evaluate import Evaluation
from planner.plan import whole

TARGET = "accelerate"
RUNTIMES = ("deepspeed", "ddp", "fsdp1", "fsdp2")
EXPRESSES = (*run_files.EXPRESSES, "layout")


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """accelerate.yaml and what it refers to."""
    block = {**fsdp2.machines(evaluation.job), **_runtime(evaluation)}
    return {"accelerate.yaml": yaml_text(block), **run_files.files(evaluation)}


def _runtime(evaluation: Evaluation) -> dict[str, Any]:
    """The part that differs between runtimes."""
    job = evaluation.job
    runtime = job.runtime.runtime
    if runtime == "deepspeed":
        return _deepspeed(evaluation)
    if runtime == "ddp":
        many = "MULTI_GPU" if job.cluster.gpus > 1 else "NO"
        return {"distributed_type": many, "mixed_precision": fsdp2.mixed_precision(job)}
    strategy = "SHARD_GRAD_OP" if evaluation.plan["zero_stage"] == 2 else "FULL_SHARD"
    if runtime == "fsdp1":
        return fsdp2.sharded(job, version=1, strategy=strategy)
    return {**fsdp2.sharded(job, version=2), **fsdp2.parallelism(evaluation)}


def _deepspeed(evaluation: Evaluation) -> dict[str, Any]:
    """DeepSpeed by its own file."""
    block: dict[str, Any] = {
        "deepspeed_config_file": deepspeed.NAME,
        "zero3_init_flag": whole(evaluation.plan, "zero_stage") == 3,
    }
    if evaluation.job.cluster.nodes > 1:
        block["deepspeed_multinode_launcher"] = "standard"
    return {"distributed_type": "DEEPSPEED", "deepspeed_config": block}
