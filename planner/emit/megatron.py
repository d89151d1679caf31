"""Arguments of Megatron-LM's training scripts.

Source: github:NVIDIA/Megatron-LM@d98e8a6:megatron/training/arguments.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.blocks import modules_of
from planner.emit import plan_file
from planner.emit.launchers import shell
from planner.evaluate import Evaluation
from planner.job import Job
from planner.layouts import stage_counts
from planner.plan import Layout, Plan, layout_of, whole

TARGET = "megatron"
RUNTIMES = ("megatron",)
EXPRESSES = (
    "layout", "zero_stage", "micro_batch", "checkpoint_count", "checkpoint_interval", "recompute_modules",
    "gradient_accumulation_dtype",
)  # fmt: skip


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """megatron.args, one argument a line with its value, and plan.json."""
    lines = (shell(words) for words in arguments(evaluation.job, evaluation.plan))
    return {"megatron.args": "\n".join(lines) + "\n", plan_file.NAME: plan_file.plan_text(evaluation)}


def arguments(job: Job, plan: Plan) -> list[list[str]]:
    """Each argument with its values."""
    training = job.training
    flags = {
        **_parallel(job, plan),
        "--micro-batch-size": whole(plan, "micro_batch"),
        "--global-batch-size": training.global_batch,
        "--seq-length": training.sequence_length,
        "--clip-grad": training.gradient_clipping,
        **_shape(job),
        **_recompute(job, plan),
    }
    found = [[name, *map(str, value if isinstance(value, tuple) else (value,))] for name, value in flags.items()]
    return found + [[name] for name in _switches(job, plan)]


def _parallel(job: Job, plan: Plan) -> dict[str, int | str]:
    """The degrees; data parallelism is what remains. Interleaved stages are given by the layers of one part."""
    layout = layout_of(plan)
    parts = layout.pipeline * layout.virtual_stages
    interleaved = {"--num-layers-per-virtual-pipeline-stage": len(job.layer_kinds) // parts}
    return {
        **(interleaved if layout.virtual_stages > 1 else {}),
        **_uneven(job, layout),
        **({"--num-distributed-optimizer-instances": layout.replicas} if layout.replicas > 1 else {}),
        "--tensor-model-parallel-size": layout.tensor,
        "--pipeline-model-parallel-size": layout.pipeline,
        "--context-parallel-size": layout.sequence,
        "--expert-model-parallel-size": layout.expert,
    }


def _uneven(job: Job, layout: Layout) -> dict[str, str]:
    """The layers of each stage where they are not as many: E embedding, t layer, L loss (Megatron Core, custom layout).

    Without it Megatron-LM refuses a number of layers that the stages do not divide.
    """
    counts = stage_counts(len(job.layer_kinds), layout)
    if len(set(counts)) == 1:
        return {}
    return {"--pipeline-model-parallel-layout": "E" + "|".join("t" * count for count in counts) + "L"}


def _shape(job: Job) -> dict[str, int]:
    """The sizes of the model that every decoder has."""
    architecture = job.architecture
    attention = job.layer_kinds[0].attention
    heads = {"--num-attention-heads": attention.heads} if attention is not None else {}
    return {"--num-layers": len(job.layer_kinds), "--hidden-size": architecture.hidden, **heads}


def _recompute(job: Job, plan: Plan) -> dict[str, Any]:
    """Modules of every layer, or whole layers: `block` takes the first so many, `uniform` cuts all into segments."""
    modules = modules_of(plan.get("recompute_modules", "none"))
    if modules:
        return {"--recompute-granularity": "selective", "--recompute-modules": modules}
    count, interval = whole(plan, "checkpoint_count"), whole(plan, "checkpoint_interval")
    if not count or not interval:
        return {}
    whole_model = count * interval >= len(job.layer_kinds)
    method, number = ("uniform", interval) if whole_model else ("block", count * interval)
    return {"--recompute-granularity": "full", "--recompute-method": method, "--recompute-num-layers": number}


def _switches(job: Job, plan: Plan) -> list[str]:
    """Arguments without a value."""
    dtype = job.training.precision.dtype
    found = [f"--{dtype}"] if dtype != "fp32" else []
    if job.training.precision.key == "fp8":
        found.append("--fp8-format=hybrid")
    if whole(plan, "zero_stage"):
        found += ["--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather"]
    if any(kind.feed_forward is not None and kind.feed_forward.experts for kind in job.layer_kinds):
        found.append("--moe-grouped-gemm")  # as the books have it; recomputed activations of experts need it
    if layout_of(plan).tensor > 1 and not layout_of(plan).whole_stream:
        found.append("--sequence-parallel")
    if plan.get("gradient_accumulation_dtype") == "fp32" and dtype == "bf16":
        found.append("--accumulate-allreduce-grads-in-fp32")
    return found
