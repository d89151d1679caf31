"""From the facts of a report to the job and plan that describe it.

What a report leaves open is taken at its least demanding: one sequence at a time, one micro-batch a step, every layer
recomputed, flash attention; buffers are DeepSpeed's defaults. A run that ran cannot have needed less. For one that ran
out of memory its test says what else is needed (`told`), such as the default length of the tool that ran it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from planner.check.mapping import SizedJob
from planner.job import Job
from planner.job_file import JobFile
from planner.ledger import DeviceLedger, Ledger, ledger
from planner.plan import Layout, Plan
from planner.reading import Document, validated
from planner.resolve import plain_plan, resolve
from planner.units import GIB
from tests.cases.case_models import MODELS

FILE = Path(__file__).parent.parent / "data" / "cases.yaml"
SHORT = 128
"""Tokens of a sequence where a report names no length: few, so that the verdict rests on what is stated."""
# Cards by name and nominal GiB. Cards that the catalog lacks stand for one of the same size.
GPUS: Mapping[tuple[str, float], str] = {
    ("", 24): "rtx3090-24gb", ("", 32): "v100-sxm2-32gb", ("", 40): "a100-sxm-40gb", ("", 48): "rtx-a6000-48gb",
    ("", 80): "a100-sxm-80gb", ("A100", 40): "a100-sxm-40gb", ("A100", 80): "a100-sxm-80gb",
    ("A100", 0): "a100-sxm-80gb", ("A800", 80): "a800-sxm-80gb", ("A10", 0): "a10-24gb", ("A10G", 24): "a10g-24gb",
    ("A6000", 48): "rtx-a6000-48gb", ("H100", 80): "h100-sxm-80gb", ("H100 NVL", 96): "h100-nvl-94gb",
    ("H200-class", 139.72): "h200-sxm-141gb", ("RTX 3090", 24): "rtx3090-24gb", ("RTX 6000", 24): "rtx3090-24gb",
    ("T4", 16): "t4-16gb", ("TITAN RTX", 24): "rtx3090-24gb", ("V100", 32): "v100-sxm2-32gb", ("", 16): "t4-16gb",
}  # fmt: skip
# DeepSpeed's defaults in elements (deepspeed 0.19.8 runtime/zero/config.py): sizes of every plan, and of choices.
DEFAULT_SIZES: Mapping[str, int] = {"persistence_threshold": 100_000, "swap_buffer_size": 100_000_000}
DEFAULT_BUFFERS: Mapping[str, int] = {
    "live_parameters": 10**9, "reduce_bucket": 500_000_000, "prefetch_bucket": 50_000_000, "sub_group": 10**9,
}  # fmt: skip


@lru_cache
def cases() -> Mapping[str, Mapping[str, Any]]:
    """Every report by its id."""
    return {case["id"]: case for case in yaml.safe_load(FILE.read_text(encoding="utf-8"))}


@dataclass(frozen=True, eq=False)
class Setup:
    """A run as the planner sees it."""

    job: Job
    plan: Plan

    @cached_property
    def ledger(self) -> Ledger:
        """The books of the run."""
        return ledger(self.job, self.plan)

    def verdict(self, device: str = "gpu") -> str:
        """`fits`, `risky` or `no`."""
        return self.ledger[device].verdict

    def gib(self, metric: str) -> float:
        """GiB of the peak: `allocated`, `reserved` or `device` of one GPU, or `host` of a node."""
        if metric == "host":
            return float(self.ledger["host"].peak.total / GIB)
        gpu: DeviceLedger = self.ledger["gpu"]
        reserved = gpu.reserved(self.job.runtime.fragmentation)
        found = {"allocated": float(gpu.tensors()), "reserved": reserved, "device": reserved + gpu.reserve}
        return float(found[metric] / GIB)

    def line(self, name: str, moment: str, device: str = "gpu") -> int:
        """Bytes of a line at a moment."""
        found = next(one for one in self.ledger[device].moments if one.name == moment)
        return sum(line.bytes for line in found.lines if line.name == name)


def setup(case_id: str, **told: Any) -> Setup:
    """The run of a report; `told` replaces or adds facts (variants that one report compares)."""
    facts = {**cases()[case_id]["facts"], **told}
    job = _job(case_id, facts)
    buffers: dict[str, int] = {}
    if job.runtime.runtime == "deepspeed":
        kept, stated = {item.name: getattr(job, item.name) for item in fields(Job)}, facts.get("sizes", {})
        job = SizedJob(**kept, sizes={name: stated.get(name, size) for name, size in DEFAULT_SIZES.items()})
        buffers = {name: stated.get(name, size) for name, size in DEFAULT_BUFFERS.items()}
    return Setup(job, plain_plan(job).changed(**buffers, **_choices(facts, job)))


# ── the job ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _job(case_id: str, facts: Mapping[str, Any]) -> Job:
    """The report's job, read as a user's would be."""
    layout = facts.get("layout") or Layout(data=_gpus(facts))
    with TemporaryDirectory() as folder:
        data = _job_data(facts, folder)
        document = Document(file=str(Path(folder, "job.yaml")), data=data, marks={}, key_marks={})
        return resolve(validated(JobFile, document), document, case_id).with_choices({"layout": (layout,)})


def _job_data(facts: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """What the report's job file would hold; a model that the catalog lacks becomes a config.json in `folder`."""
    model = facts["model"]
    model = MODELS.get(model, model) if isinstance(model, str) else model
    if not isinstance(model, str) and "model_type" in model:
        Path(folder, "config.json").write_text(json.dumps(model), encoding="utf-8")
        model = "config.json"
    return {"model": model, "cluster": _cluster(facts), "training": _training(facts)}


def _gpus(facts: Mapping[str, Any]) -> int:
    return int(facts.get("gpus", 1))


def _cluster(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The machines; what torch printed as a card's capacity replaces the catalog's."""
    nodes = int(facts.get("nodes", -(-_gpus(facts) // 8)))
    found: dict[str, Any] = {"gpu": _gpu(facts), "gpus_per_node": _gpus(facts) // nodes, "nodes": nodes}
    for key, fact in (("gpu_memory", "usable_gib"), ("host_memory", "host_ram_gib")):
        if fact in facts:
            found[key] = f"{_number(facts, fact, 0) if fact == 'host_ram_gib' else facts[fact]} GiB"
    if "nvme" in str(facts.get("zero", "")).lower():
        found["nvme"] = {"capacity": "2 TB", "read": "3 GB/s", "write": "2 GB/s"}
    if nodes > 1:
        found["interconnect"] = "100 Gbit/s"
    return found


def _gpu(facts: Mapping[str, Any]) -> str:
    """The card's key in the catalog."""
    name = re.sub(r" (x|\().*", "", str(facts.get("gpu", "")))
    return GPUS[name, facts.get("gpu_mem_gib", 0)]


def _training(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The training settings."""
    micro, steps = _number(facts, "micro_batch", 1), _number(facts, "grad_accum", 1)
    layout = facts.get("layout") or Layout(data=_gpus(facts))
    found: dict[str, Any] = {
        "runtime": facts.get("runtime", "deepspeed"),
        "sequence_length": _number(facts, "seq_len", SHORT),
        "global_batch": micro * steps * layout.data,
        "precision": str(facts.get("precision", "bf16")).removeprefix("amp_").split(" ")[0],
        "optimizer": OPTIMIZERS.get(str(facts.get("optimizer")), facts.get("optimizer", "adamw")),
    }
    for key in ("method", "loss", "kernels", "attention", "frozen_models", "gradient_clipping"):
        if key in facts:
            found[key] = facts[key]
    return found


OPTIMIZERS: Mapping[str, str] = {
    "DecoupledAdamW": "adamw", "bitsandbytes PagedAdamW": "paged-adamw", "None": "adamw",
}  # fmt: skip


def _number(facts: Mapping[str, Any], name: str, default: int) -> int:
    """The first whole number of a fact."""
    found = re.search(r"[0-9]+", str(facts.get(name, "")))
    return int(found.group()) if found else default


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def _choices(facts: Mapping[str, Any], job: Job) -> dict[str, Any]:
    """The values that the report gives to choices of the catalog."""
    recompute = facts.get("recompute", True)
    stage = _number(facts, "zero", 0)
    where = str(facts.get("zero", ""))
    optimizer = "cpu" if "offload" in where else "none"
    parameters = "cpu" if stage == 3 and re.search(r"\+ offload$|param", where) else "none"
    return {
        "layout": job.choices["layout"][0],
        "zero_stage": stage,
        "micro_batch": _number(facts, "micro_batch", 1),
        "checkpoint_interval": int(bool(recompute)),
        "checkpoint_count": len(job.layer_kinds) if recompute else 0,
        "optimizer_offload": facts.get("optimizer_offload", optimizer),
        "parameter_offload": facts.get("parameter_offload", parameters),
        "gradient_accumulation_dtype": facts.get("accumulation", job.training.precision.dtype),
        "optimizer_update": facts.get("update", "after_backward"),
        "activation_offload": facts.get("activation_offload", "none"),
    }
