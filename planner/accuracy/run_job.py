"""From a run to the job and the plan that describe it, or the reason why the planner has no figure for it.

Nothing is guessed: an empty column that a figure needs ends in Skipped. What other columns imply is worked out (degrees
from the data-parallel size, the batch from its parts), and an empty optimizer is Adam with fp32 moments, which is how
the column is defined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from planner import hardware_catalog
from planner.accuracy.run_log import Run
from planner.accuracy.run_model import Skipped, model_config, stated
from planner.accuracy.run_network import network_gigabits, network_link
from planner.accuracy.run_time import beats_the_peak
from planner.accuracy.run_usual import (
    all_small,
    as_usual,
    catalog_runtime,
    usual_attention,
    usual_loss,
    usual_optimizer,
)
from planner.errors import InputError
from planner.hardware_catalog import Hardware
from planner.job import Job
from planner.job_file import JobFile
from planner.layouts import stage_layers, stages
from planner.lookup import Lookup, read_lookup
from planner.plan import Layout, Plan, Value
from planner.reading import Document, validated
from planner.resolve import plain_plan, resolve_in, usual_network
from planner.shipped import names
from planner.space import job_space
from planner.specification import specify
from planner.techniques import read_runtime

CONFIG = "config.json"
# Kernels that never hold the matrix of scores are alike in memory.
ATTENTION: Mapping[str, str] = {
    "flash": "flash", "te-fused": "flash", "flex": "flash", "triton-flash": "flash", "xformers": "flash",
    "sdpa": "sdpa", "eager": "eager",
}  # fmt: skip
KERNELS: Mapping[str, str] = {"liger": "liger", "compile": "compiled"}
LOSSES: Mapping[str, str] = {"fused-loss": "fused", "chunked-loss": "chunked"}
# Names in the kernels column that a job file has no word for, beside the losses and Liger; Transformer Engine is how
# fp8 runs.
NEUTRAL_KERNELS = (
    "expandable-segments", "fsdp-prefetch", "overlap-grad-reduce", "overlap-param-gather",
)  # fmt: skip
IN_BACKWARD = "optimizer-in-backward"
DETERMINISTIC = "deterministic"
TENSOR_OVERLAP = ("async-tp", "tp-comm-overlap")
METHODS = ("full", "lora", "qlora", "dora")
ALL = ("q", "k", "v", "o", "gate", "up", "down")
TARGETS: Mapping[str, tuple[str, ...]] = {
    **{name: (name,) for name in ALL}, "query": ("q",), "key": ("k",), "value": ("v",), "output": ("o",),
    "mlp": ("gate", "up", "down"), "all": ALL,
}  # fmt: skip
POWER_LIMITED = re.compile(r"power[- ]limited", re.IGNORECASE)
USUAL_NODE = 8
LARGEST_MACHINE = 16
ROWWISE = re.compile(r"row-?wise", re.IGNORECASE)
RACK = re.compile(r"NVL[0-9]+|MNNVL")
DEGREES = ("tensor_parallel", "pipeline_parallel", "context_parallel")


@dataclass(frozen=True)
class Case:
    """A run as the planner sees it.

    `time_unknown`: why the row does not say enough for a step time although it does for memory; empty where it does.
    """

    job: Job
    plan: Plan
    time_unknown: str = ""


def run_case(run: Run, lookup: Lookup | None = None) -> Case:
    """The job and plan of a run, by the shipped catalogs or those of `lookup`. Raises Skipped."""
    lookup = lookup or read_lookup()
    for check in (_check_runtime, _check_parallelism, _check_method, _check_precision):
        check(run)
    _check_machine(run, lookup.hardware)
    kernels = _kernels(run)
    batch, micro_batch = _batch(run)
    job = _job(run, batch, kernels, lookup).with_choices({"layout": (_layout(run),)})
    plan = plain_plan(job).changed(**_choices(run, job, micro_batch))
    _check_rules(job, plan)
    if beats_the_peak(run, job):
        raise Skipped("faster than its GPU's peak: not with what it states")
    return Case(job, plan, _time_unknown(run, job, lookup.hardware))


def _time_unknown(run: Run, job: Job, hardware: Hardware) -> str:
    """Nodes talk over a network that is stated or usual for such nodes in the catalog, GPUs run at their own power."""
    if _power_limited(run) and job.cluster.gpu.least_power_watts is None:
        return "power limit of the GPU not stated"
    per_node = _gpus_per_node(run, hardware)
    count = _rack(run, hardware) or per_node
    known = network_gigabits(run, per_node) or usual_network(str(run.gpu), count, hardware.nodes.values())
    return "" if run.gpus == per_node or known else "network between nodes not stated"


def _check_runtime(run: Run) -> None:
    """The runtime is one of the catalog."""
    stated(run, "runtime")
    if catalog_runtime(run) not in names("runtimes")["runtimes"]:
        raise Skipped(f"runtime {run.runtime}")


def _check_parallelism(run: Run) -> None:
    """Degrees that multiply to the GPUs, and that the runtime has."""
    stated(run, "gpus")
    if run.data_parallel != run.gpus and run.gpus != 1:
        stated(run, *DEGREES)
    layout = _layout(run)
    if layout.ranks != run.gpus:
        raise Skipped("ranks do not multiply to gpus")
    if layout.data * layout.sequence % layout.expert:
        raise Skipped("expert parallelism beyond the data-parallel ranks")
    entry = read_runtime(catalog_runtime(run))
    for name in ("tensor", "pipeline", "sequence", "expert"):
        if getattr(layout, name) > 1 and name not in (*entry.degrees, *entry.degrees_on_request):
            raise Skipped(f"{name} parallelism under {entry.runtime}")


def _layout(run: Run) -> Layout:
    """How the run splits its ranks; a degree that is not stated is what the others leave, or 1."""
    tensor, pipeline, sequence = ((getattr(run, column) or 1) for column in DEGREES)
    data = run.data_parallel or max(1, int(run.gpus or 1) // (tensor * pipeline * sequence))
    shard = run.shard_group or 0
    return Layout(
        tensor, pipeline, sequence, run.expert_parallel or 1, data, run.virtual_stages or 1,
        0 if shard == data * sequence else shard, tensor > 1 and not run.sequence_parallel_activations,
    )  # fmt: skip


def _check_machine(run: Run, hardware: Hardware) -> None:
    """A GPU of the catalog in equal nodes."""
    stated(run, "gpu")
    if run.gpu not in hardware.gpus:
        raise Skipped(f"unknown GPU {run.gpu}")
    if int(run.gpus or 1) % _gpus_per_node(run, hardware):
        raise Skipped("nodes of unequal size")


def _check_method(run: Run) -> None:
    """What is trained is the whole model, or adapters."""
    stated(run, "method", "offload_optimizer", "offload_parameters")
    if run.method not in METHODS:
        raise Skipped(f"method {run.method}")
    if run.method != "full":
        stated(run, "lora_rank")


def _targets(run: Run) -> list[str]:
    """The projections that carry adapters, from notes such as `LoRA on q,v,output,mlp`; all where none are named."""
    found = re.search(r"lora on ([a-z ,+]+)", (run.notes or "").lower())
    words = re.findall(r"[a-z]+", found.group(1)) if found else ["all"]
    return list(dict.fromkeys(target for word in words for target in TARGETS.get(word, ()))) or list(ALL)


def _check_precision(run: Run) -> None:
    """A precision, an optimizer and an attention of the catalog."""
    stated(run, "precision")
    if _precision(run) not in hardware_catalog.precisions():
        raise Skipped(f"precision {_precision(run)}")
    if usual_optimizer(run) not in hardware_catalog.optimizers():
        raise Skipped(f"optimizer {run.optimizer}")
    if run.attention is not None and run.attention not in ATTENTION:
        raise Skipped(f"attention {run.attention}")


def _precision(run: Run) -> str:
    """The catalog's name of the precision: 16-bit parameters without fp32 masters are another one."""
    return f"pure-{run.precision}" if all_small(run) else str(run.precision)


def _kernels(run: Run) -> dict[str, str]:
    """The job file's loss and kernels. Raises Skipped for kernels that the planner has no figures for."""
    engine = ("te",) if run.precision == "fp8" or run.runtime == "megatron" else ()
    known = (*NEUTRAL_KERNELS, *TENSOR_OVERLAP, DETERMINISTIC, IN_BACKWARD, *LOSSES, *KERNELS, *engine)
    for name in run.kernels:
        if name not in known:
            raise Skipped(f"kernels {name}")
    fused = next((KERNELS[name] for name in run.kernels if name in KERNELS), None)
    loss = next((LOSSES[name] for name in run.kernels if name in LOSSES), usual_loss(run, fused))
    return {"loss": loss, **({"kernels": fused} if fused else {})}


def _batch(run: Run) -> tuple[int, int]:
    """Sequences of an optimizer step and of a micro-batch; one of the three columns may be empty."""
    ranks = _layout(run).data
    batch, micro_batch, times = run.global_batch, run.micro_batch, run.gradient_accumulation
    if batch is None:
        stated(run, "micro_batch", "gradient_accumulation")
        batch = int(micro_batch or 1) * int(times or 1) * ranks
    if micro_batch is None:
        stated(run, "gradient_accumulation")
        micro_batch = -(-batch // (int(times or 1) * ranks))
    if times not in (None, -(-batch // (micro_batch * ranks))):
        raise Skipped("batch contradicts its parts")
    return batch, micro_batch


def _gpus_per_node(run: Run, hardware: Hardware) -> int:
    """GPUs of one node that the run uses; up to eight are taken to share one where nothing is said.

    Of a rack that one link joins, the most that divide the run's GPUs evenly.
    """
    gpus, rack = int(run.gpus or 1), _rack(run, hardware)
    if rack:
        return max(count for count in range(1, rack + 1) if gpus % count == 0)
    return min(gpus, run.gpus_per_node or USUAL_NODE)


def _rack(run: Run, hardware: Hardware) -> int:
    """GPUs that one link joins across machines, as NVLink does in a rack of GB200; 0 where it ends in the machine, or
    where the row counts the GPUs of a machine and names no rack."""
    joined = hardware.gpus[str(run.gpu)].scale_up_gpus or 0
    trays = run.gpus_per_node is not None and not RACK.search(run.interconnect or "")
    return 0 if trays or joined <= LARGEST_MACHINE else joined


def _job(run: Run, batch: int, kernels: Mapping[str, str], lookup: Lookup) -> Job:
    """The run's job, read as a user's would be: a job file with a config.json beside it."""
    with TemporaryDirectory() as folder:
        Path(folder, CONFIG).write_text(json.dumps(model_config(run)), encoding="utf-8")
        data = _job_data(run, batch, kernels, lookup.hardware)
        document = Document(file=str(Path(folder, "job.yaml")), data=data, marks={}, key_marks={})
        try:
            job = resolve_in(lookup, validated(JobFile, document), document, run.id)
        except InputError as error:
            raise Skipped(error.message) from None
    return as_usual(run, _limited(run, _linked(run, job)))


def _linked(run: Run, job: Job) -> Job:
    """The job with the kind of network that the run names; a job file states its bandwidth alone."""
    link = network_link(run)
    if link is None or job.cluster.nodes == 1:
        return job
    return replace(job, cluster=replace(job.cluster, node=job.cluster.node.overridden(nic_link=link)))


def _power_limited(run: Run) -> bool:
    """Whether the notes say that the GPUs were held below their power, without saying where."""
    return POWER_LIMITED.search(run.notes or "") is not None


def _limited(run: Run, job: Job) -> Job:
    """The job on GPUs at the lowest power that the part is run at, where the run's were held below their own."""
    gpu = job.cluster.gpu
    if not _power_limited(run) or gpu.least_power_watts is None:
        return job
    return replace(job, cluster=replace(job.cluster, gpu=replace(gpu, power_watts=gpu.least_power_watts)))


def _job_data(run: Run, batch: int, kernels: Mapping[str, str], hardware: Hardware) -> dict[str, Any]:
    """What the run's job file would hold."""
    return {
        "model": CONFIG,
        "cluster": _cluster_data(run, hardware),
        "training": {
            "runtime": catalog_runtime(run),
            "sequence_length": run.sequence_length,
            "global_batch": batch,
            "precision": _precision(run),
            "optimizer": usual_optimizer(run),
            "attention": ATTENTION[run.attention] if run.attention else usual_attention(run),
            **({"deterministic": True} if DETERMINISTIC in run.kernels else {}),
            **({"fp8_scaling": "row"} if run.precision == "fp8" and ROWWISE.search(run.notes or "") else {}),
            **({"tensor_overlap": True} if set(TENSOR_OVERLAP) & set(run.kernels) else {}),
            **kernels,
            **_method(run),
        },
    }


def _method(run: Run) -> dict[str, Any]:
    """What is trained, as a job file says it; a run that applies gradients in backward does not clip them."""
    clipping = {"gradient_clipping": 0} if IN_BACKWARD in run.kernels else {}
    if run.method == "full":
        return clipping
    return {**clipping, "method": {str(run.method): {"rank": run.lora_rank, "targets": _targets(run)}}}


def _cluster_data(run: Run, hardware: Hardware) -> dict[str, Any]:
    """The machines, with the network of a node where the run has several and states it."""
    per_node = _gpus_per_node(run, hardware)
    nodes = int(run.gpus or 1) // per_node
    gigabits = network_gigabits(run, per_node) if nodes > 1 else None
    network = {} if gigabits is None else {"interconnect": f"{gigabits} Gbit/s"}
    return {"gpu": run.gpu, "gpus_per_node": per_node, "nodes": nodes, **network}


def _choices(run: Run, job: Job, micro_batch: int) -> dict[str, Value]:
    """The values that the run gives to choices of the catalog."""
    stated(run, "zero_stage", "recompute")
    layout = _layout(run)
    longest = max(stage_layers(len(job.layer_kinds), layout, stage)[1] for stage in stages(job))
    recompute = "none" if run.recompute == "selective" and not _selective(run) else str(run.recompute)
    interval, count = _checkpoints(recompute, len(job.layer_kinds), longest)
    return {
        "layout": layout,
        "zero_stage": int(run.zero_stage or 0),
        "micro_batch": micro_batch,
        "optimizer_offload": str(run.offload_optimizer),
        "parameter_offload": str(run.offload_parameters),
        "optimizer_update": "in_backward" if IN_BACKWARD in run.kernels else "after_backward",
        "activation_offload": run.offload_activations or "none",
        "recompute_policy": "selective" if _selective(run) else "full",
        "checkpoint_interval": interval,
        "checkpoint_count": count,
        **_gradient_dtype(run, job),
    }


def _selective(run: Run) -> bool:
    """Whether parts of the layers are made again by operation; Megatron's `selective` makes the core attention again,
    of which flash attention keeps nothing."""
    return run.recompute == "selective" and catalog_runtime(run) not in ("megatron", "megatron-deepspeed")


def _gradient_dtype(run: Run, job: Job) -> dict[str, Value]:
    """What gradients are added up in; six bytes are 16-bit gradients beside an fp32 sum.

    DeepSpeed and Megatron have the choice, the other runtimes keep gradients as they keep trained parameters.
    """
    precision, runtime, stated_bytes = job.training.precision, job.runtime, run.gradient_bytes
    chooses = runtime.runtime in ("deepspeed", "megatron-deepspeed", "megatron")
    kept = precision.compute_bytes if runtime.kernels == "megatron" else job.trained_bytes
    if stated_bytes is None or (not chooses and stated_bytes == kept):
        return {}
    summed = {precision.compute_bytes: precision.dtype, 4: "fp32", 6: "fp32"}.get(int(stated_bytes))
    if chooses and summed is not None:
        return {"gradient_accumulation_dtype": summed}
    raise Skipped(f"gradients of {stated_bytes:g} bytes")


def _checkpoints(recompute: str, layers: int, longest: int) -> tuple[int, int]:
    """Interval and count of checkpoints: nothing, every layer of the longest stage, or the first K of L layers."""
    partial = re.fullmatch(r"partial:([0-9]+) of ([0-9]+)", recompute)
    if recompute == "none":
        return 0, 0
    if recompute in ("full", "selective"):
        return 1, longest
    if partial is None or longest < layers or int(partial.group(2)) != layers or int(partial.group(1)) > layers:
        raise Skipped(f"recompute {recompute}")
    count = int(partial.group(1))
    return (1, count) if count else (0, 0)


def _check_rules(job: Job, plan: Plan) -> None:
    """The plan keeps every rule; how much memory it takes is what the run is to tell."""
    values = job_space(job).complete(plan)
    for rule in specify(job).rules:
        if not rule.satisfied(values):
            raise Skipped(f"breaks {rule.constraint}")
