"""A file as a plan of a job: stage, batch, offloads, precision and buffers as choices, other sizes as the job's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from planner import hardware_catalog
from planner.check.kinds import Misfit, fit, quoted
from planner.check.rules import batch
from planner.check.rules.precision import accumulation
from planner.check.rules.sizes import overlaps
from planner.check.subject import Subject
from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.plan import Value
from planner.resolve import plain_plan
from planner.space import job_space
from planner.techniques import read_runtime

ZERO = "zero_optimization"
# Sizes in elements: of buffers that are choices, and of what every plan of a job has alike.
BUFFERS: Mapping[str, str] = {
    "reduce_bucket": f"{ZERO}.reduce_bucket_size",
    "prefetch_bucket": f"{ZERO}.stage3_prefetch_bucket_size",
    "live_parameters": f"{ZERO}.stage3_max_live_parameters",
    "sub_group": f"{ZERO}.sub_group_size",
}
SIZES: Mapping[str, str] = {
    "persistence_threshold": f"{ZERO}.stage3_param_persistence_threshold",
    "swap_buffer_size": f"{ZERO}.offload_param.buffer_size",
}
# Types of the file by key of the catalog of optimizers.
OPTIMIZERS: Mapping[str, str] = {
    "adam": "adamw", "adamw": "adamw", "AdamW": "adamw", "Adam": "adam", "adagrad": "adagrad", "lion": "lion",
    "muon": "muon", "SGD": "sgd", "Adafactor": "adafactor", "lamb": "lamb",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class SizedJob(Job):
    """A job whose thresholds are those of a file instead of sized to the model; `sizes` in elements."""

    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def persistence_threshold(self) -> int:
        """Tensors up to this many elements stay whole in stage 3."""
        return self.sizes["persistence_threshold"]

    @property
    def swap_buffer_size(self) -> int:
        """Elements of one NVMe parameter buffer."""
        return self.sizes["swap_buffer_size"]


@dataclass(frozen=True)
class Mapped:
    """A file under a job: what is evaluated, and what was assumed or left out on the way."""

    job: SizedJob
    values: Mapping[str, Value]
    notes: tuple[str, ...]

    @cached_property
    def evaluation(self) -> Evaluation:
        """The books of the file; choices it does not speak of are those of the job."""
        return evaluate(self.job, plain_plan(self.job).changed(**self.values))

    @cached_property
    def checkpointed(self) -> Evaluation:
        """The same with every layer recomputed, as gradient_checkpointing of the trainer does."""
        layers = len(self.job.layer_kinds)
        return evaluate(self.job, self.evaluation.plan.changed(checkpoint_count=layers, checkpoint_interval=1))


def mapped(subject: Subject, job: Job) -> Mapped:
    """The file as a plan of `job`. Raises InputError where the file says something that no plan of the job holds."""
    _refuse_unknown_stage(subject)
    notes = list(unmapped(subject))
    micro, total = sizes_of_batch(subject, job, notes)
    sized = sized_job(subject, job, total, notes)
    values: dict[str, Value] = {
        "zero_stage": subject.stage,
        "micro_batch": micro,
        "optimizer_offload": _optimizer_offload(subject),
        "parameter_offload": subject.offload("offload_param") if subject.stage == 3 else "none",
        "gradient_accumulation_dtype": accumulation_dtype(subject, sized),
    }
    if subject.stage == 3:
        values |= _stage_3(subject, sized, notes)
    read = BUFFERS if subject.stage == 3 else ("reduce_bucket",) if subject.stage else ()
    values |= {name: _size(subject, BUFFERS[name], job) for name in read}
    known = job_space(sized).by_name
    return Mapped(sized, {name: value for name, value in values.items() if name in known}, tuple(notes))


def _stage_3(subject: Subject, job: Job, notes: list[str]) -> Mapping[str, Value]:
    """The second shards inside a node, the part of the optimizer on the GPU in whole tens of percent, 8 and 4 bits."""
    group, inside = subject.value(f"{ZERO}.zero_hpz_partition_size"), job.cluster.gpus_per_node
    if group > 1 and (group != inside or job.cluster.nodes == 1):
        notes.append(f"the second copy of zero_hpz_partition_size {group} is not counted: it is none of a node's GPUs")
        group = 1
    ratio = subject.value(f"{ZERO}.offload_optimizer.ratio")
    kept = math.floor(10 * (1 - ratio) + 1e-9) * 10 if subject.offload("offload_optimizer") == "cpu" else 0
    if ratio < 1 and kept != round(100 * (1 - ratio)):
        notes.append(f"ratio {ratio:g} is counted as {kept} % of the optimizer states on the GPU")
    return {
        "secondary_partition": "node" if group > 1 else "none",
        "optimizer_on_gpu": min(90, kept),
        **{choice: _if_there(subject, job, choice, *wanted) for choice, wanted in QUANTIZED.items()},
    }


# The value of a choice that a switch of stage 3 is.
QUANTIZED: Mapping[str, tuple[Value, str]] = {
    "gather_precision": ("int8", "zero_quantized_weights"),
    "reduction_precision": ("int4", "zero_quantized_gradients"),
}


def _if_there(subject: Subject, job: Job, choice: str, value: Value, key: str) -> Value:
    """The value of a choice where the file asks for it and it does anything for the job, else the choice's default."""
    technique = job.techniques.entry(choice, value)
    acts = technique is not None and job.unmet(technique.where) is None
    return value if acts and subject.value(f"{ZERO}.{key}") else job.techniques.choices[choice].default


def _refuse_unknown_stage(subject: Subject) -> None:
    """Raises InputError where a stage is written that is none."""
    dotted = f"{ZERO}.stage"
    key, written = subject.inventory.key(dotted), subject.raw(dotted)
    if key is None or not subject.has(dotted) or subject.is_auto(dotted):
        return
    try:
        fit(key, written)
    except Misfit:
        raise InputError(f"{quoted(written)} is no stage of ZeRO", path=dotted, expected="0, 1, 2 or 3") from None


def accumulation_dtype(subject: Subject, job: Job) -> str:
    """What gradients add up in; that of the model where the file leaves it open."""
    written = subject.value("data_types.grad_accum_dtype")
    return accumulation(subject) if written and not subject.precision_is_open else job.training.precision.dtype


def _optimizer_offload(subject: Subject) -> str:
    """Where the states end up: nvme is cpu below stage 3, and nothing is offloaded without ZeRO."""
    device = subject.offload("offload_optimizer")
    if not subject.stage:
        return "none"
    return "cpu" if device == "nvme" and subject.stage < 3 else device


def sizes_of_batch(subject: Subject, job: Job, notes: list[str]) -> tuple[int, int]:
    """Sequences of a micro-batch and of the whole batch; what the trainer decides follows the job's batch."""
    found = batch.completed(subject)
    if found and found.micro >= 1 and found.steps >= 1:
        micro, steps = int(found.micro), int(found.steps)
        total = micro * steps * job.cluster.gpus
        if total != job.training.global_batch:
            notes.append(
                f"the file makes {total} sequences a step, the job {job.training.global_batch}: the file's are counted"
            )
        return micro, total
    written = subject.raw(batch.MICRO)
    micro = int(written) if batch.is_number(written) and written >= 1 else 1
    notes.append(
        f"batch sizes are left open: {micro} sequences at once towards the job's batch of {job.training.global_batch}"
    )
    return micro, max(job.training.global_batch, micro * job.cluster.gpus)


def sized_job(subject: Subject, job: Job, total: int, notes: list[str]) -> SizedJob:
    """The job with the file's precision, optimizer, batch and buffers."""
    training = job.training
    if not subject.precision_is_open and subject.precision != training.precision.dtype:
        notes.append(
            f"the file trains in {subject.precision}, the job in {training.precision.key}: the file's is counted"
        )
        training = replace(training, precision=hardware_catalog.precision(subject.precision))
    optimizer = OPTIMIZERS.get(subject.optimizer or "")
    if optimizer and optimizer != training.optimizer.key and training.optimizer.key not in ("adam", "adamw"):
        notes.append(f"the file's optimizer {subject.optimizer} is counted, not the job's {training.optimizer.key}")
    if optimizer and optimizer != training.optimizer.key:
        try:
            training = replace(training, optimizer=hardware_catalog.optimizer(optimizer))
        except InputError:
            notes.append(
                f"optimizer {subject.optimizer} has no entry in the catalog: the job's {training.optimizer.key} is "
                "counted"
            )
    kept = {item.name: getattr(job, item.name) for item in fields(Job)}
    kept |= {"training": replace(training, global_batch=total), "runtime": read_runtime("deepspeed")}
    kept["choices"] = {
        name: values for name, values in job.choices.items() if name in ("checkpoint_count", "checkpoint_interval")
    }
    return SizedJob(**kept, sizes={name: _size(subject, dotted, job) for name, dotted in SIZES.items()})


def _size(subject: Subject, dotted: str, job: Job) -> int:
    """A size in elements; "auto" as Hugging Face fills it in from the hidden width."""
    hidden = job.architecture.hidden
    filled = {
        "reduce_bucket_size": hidden**2,
        "stage3_prefetch_bucket_size": int(0.9 * hidden**2),
        "stage3_param_persistence_threshold": 10 * hidden,
    }
    name = dotted.rpartition(".")[2]
    return filled[name] if subject.is_auto(dotted) and name in filled else int(subject.value(dotted))


def unmapped(subject: Subject) -> Iterator[str]:
    """What the file asks for and the ledger does not count."""
    value: Any = subject.value
    if subject.stage in (1, 2) and not overlaps(subject):
        yield "overlap_comm is off: the ledger counts its second bucket all the same"
    if subject.stage == 3:
        yield "stage3_max_reuse_distance is not counted: one layer stays gathered"
    for dotted in (
        f"{ZERO}.offload_optimizer.super_offload",
        "torch_autocast.enabled",
        "bf16.bf16_master_weights_and_grads",
        "fp16.fp16_master_weights_and_grads",
    ):
        if value(dotted):
            yield f"{dotted} is not counted"
    if subject.block(f"{ZERO}.zenflow"):
        yield "zenflow is not counted"
    if (value("tensor_parallel.autotp_size") or 0) > 1:
        yield "tensor_parallel is not counted: every rank is a data-parallel rank"
