"""Fields of Hugging Face's TrainingArguments, equal to the DeepSpeed file where both say a thing.

Source: transformers 5.24 training_args.py, integrations/deepspeed.py (values in both must be equal).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.emit import deepspeed, run_files
from planner.evaluate import Evaluation
from planner.job import Job
from planner.plan import Plan, whole

TARGET = "trainer"
RUNTIMES = ("deepspeed", "ddp", "fsdp1", "fsdp2")
EXPRESSES = run_files.EXPRESSES
# transformers 5.24 training_args.py, OptimizerNames
OPTIMIZERS: Mapping[str, str] = {
    "adamw": "adamw_torch_fused",
    "adamw-foreach": "adamw_torch",
    "adamw-8bit": "adamw_bnb_8bit",
    "adamw-4bit": "adamw_torch_4bit",
    "paged-adamw": "paged_adamw_32bit",
    "paged-adamw-8bit": "paged_adamw_8bit",
    "adafactor": "adafactor",
    "lion": "lion_32bit",
    "lion-8bit": "lion_8bit",
    "sgd": "sgd",
}


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """training_arguments.json for `TrainingArguments(**fields, output_dir=...)`, and what it refers to."""
    text = json.dumps(arguments(evaluation.job, evaluation.plan), indent=2) + "\n"
    return {"training_arguments.json": text, **run_files.files(evaluation)}


def arguments(job: Job, plan: Plan) -> dict[str, Any]:
    """The fields. Checkpointing of every layer is one of them, that of some layers is not."""
    dtype, mixed = job.training.precision.dtype, bool(job.training.precision.master_bytes)
    optimizer = OPTIMIZERS.get(job.training.optimizer.key)
    return {
        "per_device_train_batch_size": whole(plan, "micro_batch"),
        "gradient_accumulation_steps": job.micro_batches(plan),
        "bf16": dtype == "bf16" and mixed,
        "fp16": dtype == "fp16" and mixed,
        "max_grad_norm": job.training.gradient_clipping,
        **({"optim": optimizer} if optimizer else {}),
        **_checkpointing(job, plan),
        **_runtime(job, plan),
    }


def checkpoints_every_layer(job: Job, plan: Plan) -> bool:
    """Whether each layer is a segment of its own, which is all that Hugging Face's switch can say."""
    every = plan["checkpoint_count"] == len(job.layer_kinds) and plan["checkpoint_interval"] == 1
    return every and plan.get("recompute_policy", "full") == "full"


def _checkpointing(job: Job, plan: Plan) -> dict[str, Any]:
    """The switch, without the reentrant variant, which keeps the inputs' gradients alive."""
    if not checkpoints_every_layer(job, plan):
        return {"gradient_checkpointing": False}
    return {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": False}}


def _runtime(job: Job, plan: Plan) -> dict[str, Any]:
    """The part that differs between runtimes."""
    runtime = job.runtime.runtime
    if runtime == "deepspeed":
        return {"deepspeed": deepspeed.NAME}
    if runtime == "ddp":
        return {"ddp_find_unused_parameters": False}
    version = 2 if runtime == "fsdp2" else 1
    strategy: Any = True if version == 2 else _strategy(plan)
    block = {"version": version, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": strategy}
    return {"fsdp": True, "fsdp_config": block}


def _strategy(plan: Plan) -> str:
    """FSDP1's word for the stage."""
    return "SHARD_GRAD_OP" if plan["zero_stage"] == 2 else "FULL_SHARD"
