"""Accelerate's configuration of PyTorch FSDP2.

Source: accelerate 1.15 utils/dataclasses.py FullyShardedDataParallelPlugin, commands/launch.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.emit import plan_file
from planner.emit.yaml_file import yaml_text
from planner.evaluate import Evaluation
from planner.job import Job
from planner.plan import layout_of

TARGET = "fsdp2"
RUNTIMES = ("fsdp2",)
EXPRESSES = ("zero_stage", "layout")


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """accelerate.yaml and plan.json."""
    job = evaluation.job
    text = yaml_text({**machines(job), **sharded(job, version=2), **parallelism(evaluation)})
    return {"accelerate.yaml": text, plan_file.NAME: plan_file.plan_text(evaluation)}


def machines(job: Job) -> dict[str, Any]:
    """Processes and nodes; the rank and the address of the first node are per node when there are several."""
    several = {"main_process_ip": "node-1", "main_process_port": 29500} if job.cluster.nodes > 1 else {}
    return {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "num_machines": job.cluster.nodes,
        "num_processes": job.cluster.gpus,
        "machine_rank": 0,
        **several,
        "rdzv_backend": "static" if job.cluster.nodes == 1 else "c10d",
        "same_network": True,
        "main_training_function": "main",
        "use_cpu": False,
    }


def sharded(job: Job, version: int, strategy: str = "FULL_SHARD") -> dict[str, Any]:
    """The FSDP block: units of one layer, parameters resharded after forward."""
    sharding = {"fsdp_reshard_after_forward": True if version == 2 else strategy}
    first = {} if version == 2 else {"fsdp_sharding_strategy": strategy, "fsdp_use_orig_params": True}
    block = {
        "fsdp_version": version,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        **sharding,
        **first,
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": False,
        "fsdp_activation_checkpointing": False,
    }
    return {"distributed_type": "FSDP", "mixed_precision": mixed_precision(job), "fsdp_config": block}


def parallelism(evaluation: Evaluation) -> dict[str, Any]:
    """The degrees, left out where every rank is a data-parallel one and holds its part of a single copy.

    Source: accelerate 1.15 parallelism_config.py: parameters are sharded over dp_shard × cp ranks.
    """
    layout = layout_of(evaluation.plan)
    if layout.tensor == layout.sequence == 1 and layout.shards == layout.data:
        return {}
    degrees = {
        "dp_replicate_size": layout.data * layout.sequence // layout.shards,
        "dp_shard_size": layout.shards // layout.sequence,
        "tp_size": layout.tensor,
        "cp_size": layout.sequence,
    }
    return {"parallelism_config": {f"parallelism_config_{name}": degree for name, degree in degrees.items()}}


def mixed_precision(job: Job) -> str:
    """Accelerate's word for the job's precision; weights that are 16-bit throughout need no mixing."""
    precision = job.training.precision
    if precision.key == "fp8":
        return "fp8"
    return precision.dtype if precision.master_bytes else "no"
