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
from planner.ledger import ledger
from planner.plan import Plan
from planner.resolve import plain_plan, resolve
from planner.space import job_space

DATA = Path(__file__).parent / "data"

# Two GPUs with a four-layer model of 30 million parameters: everything fits, 5 400 candidate plans.
SMALL: Mapping[str, Mapping[str, Any]] = {
    "model": {"parameters": 30_000_000, "layers": 4, "vocabulary": 8000},
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 2},
    "training": {"sequence_length": 512, "global_batch": 8},
}


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


def random_job(seed: int, small: bool = False) -> Job:
    """A job drawn from `seed`: model, machine, batch, length, precision, optimizer, pins and memory limits.

    `small` keeps to few layers and narrowed choices, at most LARGEST_SMALL candidate plans.
    """
    draw = Random(seed)
    gpus, machine = draw.choice(MACHINES)
    batches = (1, 2, 4, 6) if small else (1, 4, 12, 32, 60)
    found = job(
        model=_model(draw, small),
        cluster={**machine, **({"nvme": NVME} if draw.random() < 0.5 else {})},
        training={
            "sequence_length": draw.choice((128, 512, 1024, 2000, 4096)),
            "global_batch": draw.choice((gpus, gpus, gpus, gpus, 1)) * draw.choice(batches),
            "precision": draw.choice(("bf16", "bf16", "fp16", "fp32")),
            "optimizer": draw.choice(("adamw", "adamw", "adam", "lion", "adafactor", "sgd", "adamw-8bit", "muon")),
        },
        choices=_pins(draw, small),
        objective=draw.choice(("step_time", "step_time", "memory")),
    )
    for name, values in (("checkpoint_interval", (0, 1)), ("micro_batch", (1, 2)), ("checkpoint_count", (0, 1, 2))):
        if small and job_space(found).size > LARGEST_SMALL:
            found = found.with_choices({name: values})
    return _tightened(found, draw)


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
