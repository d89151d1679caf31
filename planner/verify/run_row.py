"""A measured run as a row of a run log, and the log with it appended whole or not at all."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from datetime import date
from pathlib import Path

from planner.accuracy.run_log import COLUMNS, read_run_log
from planner.driver_names import means
from planner.errors import InputError
from planner.output import write_files
from planner.plan import layout_of
from planner.units import GIB
from planner.verify.comparison import Comparison, step_seconds

SOURCE = "verify"


def run_row(found: Comparison, number: int) -> dict[str, str]:
    """The columns that the run fills. Peaks on processors are those of the tensors, which is what is allocated."""
    return {
        "id": f"{SOURCE}-{number:03d}", "source": SOURCE, "quality": "A",
        "use": "score" if found.on_gpus else "plausibility",
        **_model(found), **_training(found), **_plan(found), **_measurements(found),
    }  # fmt: skip


def _model(found: Comparison) -> dict[str, str]:
    """Shape of the model and of the machine."""
    job = found.evaluation.job
    architecture, kind = job.architecture, job.layer_kinds[0]
    attention = kind.attention
    width = getattr(kind.feed_forward, "width", None)
    return {
        "model": architecture.name,
        "architecture": "llama" if architecture.family in ("llama", "mistral", "qwen2", "qwen3") else "other",
        "hidden": str(architecture.hidden),
        "layers": str(len(job.layer_kinds)),
        "heads": str(attention.heads) if attention else "",
        "kv_heads": str(attention.kv_heads) if attention else "",
        "ffn_hidden": str(width) if width else "",
        "vocab": str(architecture.vocabulary),
        "tied_embeddings": "yes" if architecture.tied else "no",
        "parameters_billion": f"{architecture.parameters / 1e9:.9g}",
        "gpu": _gpu(found),
        "gpus": str(job.cluster.gpus),
        "gpus_per_node": str(job.cluster.gpus_per_node),
    }


def _gpu(found: Comparison) -> str:
    """The job's GPU, another one by its driver's name, or cpu."""
    name, gpu = str(found.measured["gpu"]), found.evaluation.job.cluster.gpu
    return "cpu" if not found.on_gpus else gpu.key if means(name, gpu) else name


def _training(found: Comparison) -> dict[str, str]:
    """Training settings by the log's words."""
    training = found.evaluation.job.training
    kernels = {"chunked": "chunked-loss", "fused": "fused-loss"}.get(str(found.evaluation.plan["loss"]), "")
    return {
        "runtime": found.evaluation.job.runtime.runtime,
        "sequence_length": str(training.sequence_length),
        "global_batch": str(training.global_batch),
        "precision": training.precision.dtype,
        "optimizer": training.optimizer.key,
        "attention": training.attention,
        "method": training.method,
        "kernels": kernels,
    }


def _plan(found: Comparison) -> dict[str, str]:
    """The choices by the log's words."""
    plan, layout = found.evaluation.plan, layout_of(found.evaluation.plan)
    return {
        "zero_stage": str(plan["zero_stage"]),
        "tensor_parallel": str(layout.tensor),
        "pipeline_parallel": str(layout.pipeline),
        "context_parallel": str(layout.sequence),
        "data_parallel": str(layout.data),
        "micro_batch": str(plan["micro_batch"]),
        "gradient_accumulation": str(found.evaluation.job.micro_batches(plan)),
        "recompute": recompute(found),
        "offload_optimizer": str(plan.get("optimizer_offload", "none")),
        "offload_parameters": str(plan.get("parameter_offload", "none")),
        "offload_activations": str(plan.get("activation_offload", "none")),
    }


def recompute(found: Comparison) -> str:
    """The log's word for what is recomputed; longer segments count as their layers."""
    plan, layers = found.evaluation.plan, len(found.evaluation.job.layer_kinds)
    count = int(str(plan.get("checkpoint_count", 0))) * int(str(plan.get("checkpoint_interval", 0)))
    return "none" if not count else "full" if count >= layers else f"partial:{count} of {layers}"


def _measurements(found: Comparison) -> dict[str, str]:
    """What was measured; times only of GPUs."""
    peak = max(row.measured for row in found.phases)
    row = {"peak_allocated_gib": f"{peak / GIB:.9g}", "memory_ranks": "rank0", "fits": "yes",
           "score_memory": "yes" if found.on_gpus else "no", "score_time": "yes" if found.on_gpus else "no",
           "notes": f"planner verify {date.today().isoformat()}"}  # fmt: skip
    if found.on_gpus:
        row["peak_reserved_gib"] = f"{found.measured['peak_reserved'] / GIB:.9g}"
        row["peak_device_gib"] = f"{found.measured['used'] / GIB:.9g}"
        row["step_seconds"] = f"{step_seconds(found.measured):.6g}"
    return row


def appended(path: Path, found: Comparison) -> str:
    """Appends the run to the log at `path`, made where missing, and returns the row's id.

    Raises InputError for a bad log.
    """
    known = read_run_log(path) if path.exists() else ()
    names = _columns(path) if known else list(COLUMNS)
    taken = {run.id for run in known}
    number = next(count for count in range(1, len(taken) + 2) if f"{SOURCE}-{count:03d}" not in taken)
    row = run_row(found, number)
    lost = [name for name, value in row.items() if value and name not in names]
    if lost:
        raise InputError(f"the log has no column {lost[0]}", str(path), 1, 1, expected="all columns of a run log")
    text = path.read_text(encoding="utf-8") if known else _line(dict.fromkeys(names, ""), names, header=True)
    write_files(path.parent, {path.name: text.rstrip("\n") + "\n" + _line(row, names)}, force=True)
    return row["id"]


def _columns(path: Path) -> list[str]:
    """The columns of a log in their order."""
    with path.open(encoding="utf-8-sig", newline="") as stream:
        return [name.strip() for name in next(csv.reader(stream))]


def _line(row: Mapping[str, str], names: list[str], header: bool = False) -> str:
    """One line of the log."""
    out = io.StringIO()
    writer = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
    if header:
        writer.writeheader()
    else:
        writer.writerow(dict(row))
    return out.getvalue()
