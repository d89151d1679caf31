"""The DeepSpeed configuration of a plan, as the dictionary that goes into its JSON file.

Every key whose default changed between DeepSpeed versions is written out, sizes are elements, nothing is "auto".
Source of names and defaults: deepspeed 0.19.8 runtime/config.py, runtime/zero/{config,offload_config}.py.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from planner.evaluate import Evaluation
from planner.job import Job
from planner.plan import Plan, layout_of, whole
from planner.share import node_shards
from planner.sizes import SIZES

Configuration = dict[str, Any]
TARGET = "deepspeed"
RUNTIMES = ("deepspeed",)
EXPRESSES = (
    "zero_stage", "secondary_partition", "gather_precision", "reduction_precision", "micro_batch",
    "gradient_accumulation_dtype", "optimizer_offload", "optimizer_on_gpu", "offloaded_update", "parameter_offload",
    *SIZES,
)  # fmt: skip
NAME = "deepspeed.json"
OPTIMIZERS = {"adam": "Adam", "adamw": "AdamW", "adagrad": "Adagrad", "lion": "Lion", "muon": "Muon"}


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """deepspeed.json."""
    return {NAME: json.dumps(configuration(evaluation.job, evaluation.plan), indent=2) + "\n"}


def configuration(job: Job, plan: Plan) -> Configuration:
    """The configuration that makes DeepSpeed 0.19.8 run `plan`.

    The optimizer block is left out where the training script brings its own, so that its parameter groups stay as they
    are. Checkpointing is not in it: Hugging Face models take it from the script, not from this file.
    """
    return {
        **batch(job, plan),
        **parallelism(plan),
        "gradient_clipping": job.training.gradient_clipping,
        **precision(job),
        "data_types": {"grad_accum_dtype": plan["gradient_accumulation_dtype"]},
        "communication_data_type": _communication_dtype(job, plan),
        "zero_optimization": zero_optimization(job, plan),
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": True,
        "steps_per_print": 100,
        "wall_clock_breakdown": False,
    }


def batch(job: Job, plan: Plan) -> Configuration:
    """The batch equation: train_batch_size = micro-batch × accumulation × ranks.

    Where ranks share a model or a sequence it is left out: DeepSpeed 0.19.8 counts tensor-parallel ranks as if each had
    a batch of its own (runtime/config.py), and works the total out of the other two.
    """
    micro_batch, accumulation, layout = whole(plan, "micro_batch"), job.micro_batches(plan), layout_of(plan)
    alone = layout.tensor == layout.sequence == 1
    return {
        **({"train_batch_size": micro_batch * accumulation * layout.data} if alone else {}),
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulation,
    }


def parallelism(plan: Plan) -> Configuration:
    """Ranks that share a model (AutoTP) or a sequence (Ulysses, whose attention the script sets)."""
    layout = layout_of(plan)
    tensor = {"tensor_parallel": {"autotp_size": layout.tensor}} if layout.tensor > 1 else {}
    pair = {"sequence_parallel_size": layout.sequence, "data_parallel_size": layout.data}
    return {**tensor, **(pair if layout.sequence > 1 else {})}


def precision(job: Job) -> Configuration:
    """Exactly one 16-bit block enabled, or none for fp32."""
    dtype = job.training.precision.dtype
    bf16 = {
        "enabled": dtype == "bf16",
        "immediate_grad_update": False,
        "check_grad_overflow": dtype == "bf16",
        "bf16_master_weights_and_grads": False,
        "bf16_optimizer_states": False,
    }
    fp16 = {"enabled": dtype == "fp16", "loss_scale": 0, "initial_scale_power": 16, "loss_scale_window": 1000,
            "hysteresis": 2, "min_loss_scale": 1}  # fmt: skip
    return {"bf16": bf16, "fp16": fp16}


def _communication_dtype(job: Job, plan: Plan) -> str:
    """What gradients travel in; those to be quantized as fp16, which the kernels take whatever they are given."""
    return "fp16" if plan["reduction_precision"] == "int4" else job.training.precision.dtype


def zero_optimization(job: Job, plan: Plan) -> Configuration:
    """The ZeRO block of the plan's stage with its buckets; what gathers after the update has to be even."""
    stage, bucket = whole(plan, "zero_stage"), whole(plan, "reduce_bucket")
    block: Configuration = {"stage": stage, "contiguous_gradients": True}
    if stage:
        block |= {
            "overlap_comm": True,
            "reduce_scatter": True,
            "reduce_bucket_size": bucket,
            "round_robin_gradients": False,
        }
    if stage in (1, 2):
        block |= {"allgather_partitions": True, "allgather_bucket_size": bucket // 2 * 2}
    if stage == 3:
        block |= _stage_3(job, plan)
    if plan["optimizer_offload"] != "none":
        block["offload_optimizer"] = _offload(job, str(plan["optimizer_offload"]), "optimizer")
        if whole(plan, "optimizer_on_gpu"):
            block["offload_optimizer"]["ratio"] = (100 - whole(plan, "optimizer_on_gpu")) / 100
        if plan["offloaded_update"] == "beside_backward":
            block["offload_optimizer"]["super_offload"] = True
    if plan["parameter_offload"] != "none":
        block["offload_param"] = _offload(job, str(plan["parameter_offload"]), "parameter")
    return block


def _stage_3(job: Job, plan: Plan) -> Configuration:
    """What stage 3 gathers ahead, keeps whole and updates at once."""
    inside = plan["secondary_partition"] == "node"
    return {
        "stage3_prefetch_bucket_size": plan["prefetch_bucket"],
        "stage3_param_persistence_threshold": job.persistence_threshold,
        "stage3_max_live_parameters": plan["live_parameters"],
        "stage3_max_reuse_distance": job.reuse_distance,
        "sub_group_size": plan["sub_group"],
        "stage3_gather_16bit_weights_on_model_save": True,
        **({"zero_hpz_partition_size": node_shards(job, layout_of(plan))} if inside else {}),
        **({"zero_quantized_weights": True} if plan["gather_precision"] == "int8" else {}),
        **({"zero_quantized_gradients": True} if plan["reduction_precision"] == "int4" else {}),
    }


def _offload(job: Job, device: str, what: str) -> Configuration:
    """One offload block; pinning is written out since its default changed."""
    block: Configuration = {"device": device, "pin_memory": True}
    if device == "nvme":
        block |= {"nvme_path": "/local_nvme", "buffer_count": 4 if what == "optimizer" else 5}
        if what == "parameter":
            block |= {"buffer_size": job.swap_buffer_size, "max_in_cpu": 0}
    return block
