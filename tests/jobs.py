"""Builders of jobs for tests: one small job with overrides, and jobs drawn from a seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import yaml

from planner.job import Job
from planner.job_file import read_job_file
from planner.layouts import layouts
from planner.ledger import ledger
from planner.plan import Layout, Plan
from planner.resolve import plain_plan, resolve
from planner.space import job_space
from planner.techniques import read_techniques

DATA = Path(__file__).parent / "data"

# Two GPUs with a four-layer model of 30 million parameters: everything fits, 5 400 candidate plans.
SMALL: Mapping[str, Mapping[str, Any]] = {
    "model": {"parameters": 30_000_000, "layers": 4, "vocabulary": 8000},
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 2},
    "training": {"sequence_length": 512, "global_batch": 8},
}
# Techniques that few tests are about, each choice at its plainest.
PLAIN: Mapping[str, Any] = {
    name: entry.default for name, entry in read_techniques().choices.items()
    if entry.domain == "listed" and name not in ("zero_stage", "optimizer_offload", "parameter_offload")
}  # fmt: skip


def job(catalogs: Iterable[Path] = (), **overrides: Any) -> Job:
    """The small job with sections replaced (`model`) or updated (`cluster`, `training`), read as a file would be.

    A model that is a path is looked for in tests/data.
    """
    text: dict[str, Any] = {name: dict(section) for name, section in SMALL.items()}
    for name, value in overrides.items():
        if name == "cluster" and "node" in value:
            text[name] = value
        else:
            text[name] = {**text[name], **value} if name in ("cluster", "training") else value
    file, document = read_job_file(DATA / "job.yaml", text=yaml.safe_dump(text, sort_keys=False))
    return resolve(file, document, "job", catalogs)


def plan(job: Job, **values: Any) -> Plan:
    """The plainest plan of a job with some values replaced."""
    return plain_plan(job).changed(**values)


def random_plan(job: Job, draw: Random) -> Plan:
    """Any plan of the job's space, legal or not."""
    return Plan({choice.name: draw.choice(choice.values) for choice in job_space(job).choices})


# ── drawn jobs ───────────────────────────────────────────────────────────────────────────────────────────────────────

NVME = {"capacity": "1 TB", "read": "6 GB/s", "write": "3 GB/s"}
MODELS = (
    "llama-3.2-1b", "qwen2.5-0.5b", "llama-2-7b", "gemma-2-9b", "gpt-oss-20b", "deepseek-v2-lite", "gpt2-xl", "t5-3b",
    "mamba-2.8b", "mixtral-8x7b",
)  # fmt: skip
SMALL_MODELS = ("dense_then_experts/config.json", "local_and_global/config.json")
# Each with its number of GPUs.
MACHINES: tuple[tuple[int, Mapping[str, Any]], ...] = (
    (1, {"gpu": "rtx4090-24gb", "gpus_per_node": 1}),
    (2, {"gpu": "a100-sxm-80gb", "gpus_per_node": 2}),
    (3, {"gpu": "a100-sxm-40gb", "gpus_per_node": 3}),
    (4, {"gpu": "l40s-48gb", "gpus_per_node": 4}),
    (8, {"node": "dgx-a100-80gb"}),
    (16, {"node": "dgx-h100", "nodes": 2}),
    (2, {"node": "workstation-2x-rtx4090"}),
    (4, {"node": "aws-g5.12xlarge"}),
)
LARGEST_SMALL = 3000
# Runtimes that divide a model's tensors or layers over ranks, with the degrees that each is asked for.
DIVIDING: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("megatron", ("tensor", "pipeline", "sequence", "expert")),
    ("megatron-deepspeed", ("tensor", "pipeline")),
    ("internevo", ("tensor", "pipeline")),
    ("deepspeed", ("tensor", "sequence")),
    ("fsdp2", ("tensor", "sequence")),
)


def random_job(seed: int, small: bool = False) -> Job:
    """A job drawn from `seed`: model, machine, batch, length, precision, optimizer, pins and memory limits.

    `small` keeps to few layers and narrowed choices, at most LARGEST_SMALL candidate plans. Of jobs on several GPUs two
    in five have a runtime that divides the model, and a few layouts drawn from those it can have.
    """
    draw, divided = Random(seed), Random(f"divided {seed}")
    gpus, machine = draw.choice(MACHINES)
    runtime, degrees = divided.choice(DIVIDING) if gpus > 1 and divided.random() < 0.4 else ("deepspeed", ())
    batches = (1, 2, 4, 6) if small else (1, 4, 12, 32, 60)
    asked = _formats(Random(f"formats {seed}")) | _buffers(Random(f"buffers {seed}")) if runtime == "deepspeed" else {}
    length = 16384 if Random(f"long {seed}").random() < 0.1 else 0  # long enough for feed-forward blocks in tiles
    found = job(
        model=_model(draw, small),
        cluster={**machine, **({"nvme": NVME} if draw.random() < 0.5 else {})},
        training={
            "sequence_length": max(length, draw.choice((128, 512, 1024, 2000, 4096))),
            "global_batch": draw.choice((gpus, gpus, gpus, gpus, 1)) * draw.choice(batches),
            "precision": draw.choice(("bf16", "bf16", "fp16", "fp32")),
            "optimizer": draw.choice(("adamw", "adamw", "adam", "lion", "adafactor", "sgd", "adamw-8bit", "muon")),
            "runtime": runtime,
        },
        choices={**_pins(draw, small), **(STAYS if degrees else {}), **_late_pins(divided, small), **asked},
        objective=draw.choice(("step_time", "step_time", "memory")),
    )
    if degrees:
        found = found.with_choices({"layout": _layouts(found, degrees, divided)})
    for name, values in NARROWER.items():
        if small and job_space(found).size > LARGEST_SMALL:
            found = found.with_choices({name: values})
    return _tightened(found, draw)


# What runtimes that divide the model have of the offloads.
STAYS: Mapping[str, str] = {"optimizer_offload": "none", "parameter_offload": "none"}
NARROWER: Mapping[str, tuple[int | str, ...]] = {
    "checkpoint_interval": (0, 1), "micro_batch": (1, 2), "checkpoint_count": (0, 1, 2),
    **{name: (value,) for name, value in PLAIN.items()}, "zero_stage": (1,),
}  # fmt: skip


def _late_pins(draw: Random, small: bool) -> dict[str, Any]:
    """Where activations wait, what checkpoints keep, when gradients are reduced; small jobs leave little of it open."""
    options = {
        "activation_offload": ["none", "cpu"], "recompute_policy": ["full", "selective"],
        "gradient_sync": ["every_micro_batch", "last_micro_batch"],
    }  # fmt: skip
    return {name: draw.choice(values) for name, values in options.items() if draw.random() < (0.8 if small else 0.3)}


def _formats(draw: Random) -> dict[str, Any]:
    """What stage 3 of DeepSpeed sends of parameters and gradients, now and then in few bits."""
    options = {"gather_precision": ["compute", "int8"], "reduction_precision": ["int4", "compute"]}
    return {name: values for name, values in options.items() if draw.random() < 0.25}


def _buffers(draw: Random) -> dict[str, Any]:
    """Sizes of DeepSpeed's buffers that are not the job's own, now and then one or two of one of them."""
    options = {
        "reduce_bucket": (200_000, 3_000_000, 10**9), "prefetch_bucket": (0, 500_000, 4 * 10**7),
        "live_parameters": (0, 2 * 10**7, 10**9), "sub_group": (10**6, 2 * 10**7),
    }  # fmt: skip
    found = {name: draw.sample(sizes, draw.randint(1, 2)) for name, sizes in options.items() if draw.random() < 0.5}
    return found if draw.random() < 0.4 else {}


def _layouts(found: Job, degrees: tuple[str, ...], draw: Random) -> tuple[Layout, ...]:
    """One to three layouts that the runtime can have; now and then with model chunks, or states shared by two ranks."""
    possible = layouts(found.with_choices({f"{name}_parallel": (1, 2, 4) for name in degrees}))
    piped = [layout for layout in possible if layout.pipeline > 1]
    drawn = piped if piped and draw.random() < 0.6 else possible
    chosen = draw.sample(drawn, min(len(drawn), draw.randint(1, 3)))
    return tuple(dict.fromkeys(_varied(layout, draw) for layout in chosen))


def _varied(layout: Layout, draw: Random) -> Layout:
    """The layout, with two chunks to a stage or groups of two sharing ranks where it can have them."""
    if layout.pipeline > 1 and draw.random() < 0.3:
        layout = replace(layout, virtual_stages=2)
    if layout.data % 2 == 0 and layout.expert == 1 and draw.random() < 0.2:
        layout = replace(layout, shard=2)
    return layout


def _model(draw: Random, small: bool) -> Any:
    """A size with few layers or a model with several kinds of layers, else mostly one of the catalog."""
    if draw.random() < 0.3:
        return draw.choice(SMALL_MODELS)
    if small or draw.random() < 0.4:
        layers = draw.randint(2, 6)
        return {
            "parameters": draw.randint(60, 1500) * 1_000_000 + draw.randint(0, 999_999),
            "layers": layers,
            "vocabulary": draw.choice((8000, 32000, 50257)),
        }
    return draw.choice(MODELS)


def _pins(draw: Random, small: bool) -> dict[str, Any]:
    """Choices pinned or narrowed; those of small jobs leave few candidate plans."""
    options: dict[str, tuple[Any, ...]] = {
        "zero_stage": ([0, 1, 2, 3], [3, 1], [2, 3], 3, 2, 0),
        "optimizer_offload": (["none", "cpu", "nvme"], ["cpu", "none"], "none", "cpu", "nvme"),
        "parameter_offload": (["none", "cpu", "nvme"], ["none", "cpu"], "none"),
        "gradient_accumulation_dtype": ("fp32", ["fp32"]),
        "micro_batch": (1, [1, 2], [4, 1, 3]),
        "checkpoint_interval": ([0, 1], [0, 2, 1], 1, 0),
        "checkpoint_count": (0, [0, 2, 1], [0, 1, 2]),
    }
    often = {"checkpoint_interval": 0.5, "micro_batch": 0.5} if small else {}
    return {name: draw.choice(values) for name, values in options.items() if draw.random() < often.get(name, 0.2)}


def _tightened(job: Job, draw: Random) -> Job:
    """The job with GPU and host memory near what some plan of it needs: exactly that, a byte less, or about as much."""
    if draw.random() < 0.15:
        return job
    needed = ledger(job, random_plan(job, draw))
    gpu = _usable(needed["gpu"].peak.total, job.runtime.fragmentation, draw)
    found = replace(job.cluster, gpu=replace(job.cluster.gpu, usable_memory=gpu))
    if draw.random() < 0.5:
        host = _usable(needed["host"].peak.total, job.runtime.host_margin, draw)
        found = replace(found, node=found.node.overridden(host_memory=host))
    return replace(job, cluster=found)


def _usable(needed: int, margin: float, draw: Random) -> int:
    """Usable memory of which the planned part is `needed` bytes, one less, or up to half as much more."""
    planned = needed + draw.choice((0, -1, int(needed * draw.uniform(-0.1, 0.5))))
    usable = int(planned * margin)
    while int(usable / margin) < planned:
        usable += 1
    return usable
