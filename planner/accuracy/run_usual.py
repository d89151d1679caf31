"""What a run does where its row does not say: the usual settings of the training code of its kind and time.

A log has columns for the runtime, not for the code that drives it; what is usual follows from what the row does state.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from planner.accuracy.run_log import Run
from planner.accuracy.run_software import changed, could
from planner.architecture.shape import Tensor
from planner.job import Job
from planner.techniques import read_runtime

DEFAULT_OPTIMIZER = "adamw"
OPTIMIZERS: Mapping[str, str] = {"adam-bf16-states": "adamw-bf16-states"}
# Plain training on one GPU is a group of one.
RUNTIMES: Mapping[str, str] = {"single": "ddp"}
# A runtime with the margin that most of them share.
COMMON = "ddp"
FUSED = re.compile(r"\bfused (adamw?|optimizer)\b|\b(torch|adamw?) fused\b", re.IGNORECASE)
# Bytes of a 16-bit parameter.
SMALL = 2
# Bytes of a 32-bit one.
WIDE = 4
# Dimensions of a tensor that holds the matrices of all experts.
STACKED = 3


def catalog_runtime(run: Run) -> str:
    """The catalog's name of the runtime."""
    name = str(run.runtime)
    return RUNTIMES.get(name, name)


def all_small(run: Run) -> bool:
    """Whether all that is kept of a trained parameter has 16 bits; of a frozen base it is the adapters' that counts."""
    adapters = run.method != "full" and run.gradient_bytes is not None
    kept = run.gradient_bytes if adapters else run.parameter_bytes
    return run.precision in ("bf16", "fp16", "fp8") and kept == SMALL and run.master_bytes == 0


def _compiled(run: Run) -> bool:
    return "compile" in run.kernels


def usual_optimizer(run: Run) -> str:
    """The catalog's name of the optimizer; which of its AdamWs torch ran is in no column.

    The one with a temporary for every parameter (foreach) unless the notes say that it is fused; code that compiles its
    layers asks for the fused kernel too, and Composer, which trains MPT, has a loop of its own.
    """
    name = run.optimizer or DEFAULT_OPTIMIZER
    fused = _compiled(run) or FUSED.search(run.notes or "")
    plain = catalog_runtime(run) in ("ddp", "fsdp1") and not fused and run.architecture != "mpt"
    of_torch = name == "adamw" or (name in OPTIMIZERS and all_small(run))
    return "adamw-foreach" if plain and of_torch and not could(run, "fused_adamw") else OPTIMIZERS.get(name, name)


def usual_attention(run: Run) -> str:
    """The attention of a run that names none: torch's SDPA, where it has no kernels of its own."""
    own = read_runtime(catalog_runtime(run)).kernels == "megatron"
    return "flash" if own or could(run, "grouped_attention") else "sdpa"


def usual_loss(run: Run, kernels: str | None) -> str:
    """How logits become a loss where the log does not say; MPT's own training code has flash-attn's.

    Compiled layers with nothing but 16-bit parameters are torchtune's, whose loss goes by chunks.
    """
    if kernels == "compiled" and all_small(run) and could(run, "chunked_loss"):
        return "chunked"
    whole = run.architecture == "mpt" or (kernels == "compiled" and could(run, "compiled_loss"))
    return "kernel" if whole else "standard"


def as_usual(run: Run, job: Job) -> Job:
    """The job as the run's training code sets it up, in what a job file has no word for."""
    for change in (_allocated, _reduced, _sharded, _unstacked, _buffered, _prepared):
        job = change(run, job)
    return job


def _reduced(run: Run, job: Job) -> Job:
    """Gradients of DistributedDataParallel are no views of its buckets, as torch has it unless told otherwise."""
    if run.runtime != "ddp" or job.cluster.gpus == 1:
        return job
    return replace(job, runtime=changed(job.runtime, "gradients_of_their_own"))


def _titan(run: Run) -> bool:
    """Whether a run looks like torchtitan's: FSDP2 on fp32 parameters, compiled layers or checkpoints by operation."""
    return run.runtime == "fsdp2" and not all_small(run) and (_compiled(run) or run.recompute == "selective")


def _allocated(run: Run, job: Job) -> Job:
    """The waste of torch's allocator: its segments grow where the run says so, and in torchtitan's launcher, on CUDA.

    Segments of a fixed size, as torch has them unless told otherwise, waste more. A margin other than the one that most
    runtimes share is the runtime's own or was measured on the machine, and stays.
    """
    told, nvidia = "expandable-segments" in run.kernels or _titan(run), job.cluster.gpu.vendor == "nvidia"
    if job.runtime.fragmentation != read_runtime(COMMON).fragmentation or (told and not nvidia):
        return job
    return replace(job, runtime=changed(job.runtime, "expandable_segments" if told else "fixed_segments"))


def _sharded(run: Run, job: Job) -> Job:
    """The FSDP units of torchtitan, and what its selective checkpoints keep of torch's SDPA."""
    if not _titan(run):
        return job
    if could(run, "units_outside_layers"):
        job = replace(job, runtime=changed(job.runtime, "units_outside_layers"))
    cudnn = job.cluster.gpu.architecture == "blackwell" and run.attention in (None, "sdpa")
    if cudnn and could(run, "cudnn_attention") and not could(run, "cudnn_attention_kept"):
        job = replace(job, settings=replace(job.settings, attention_remade=True))
    return job


def _unstacked(run: Run, job: Job) -> Job:
    """Experts of the Hugging Face model code were linear layers, which run one after the other and are quantized."""
    if not run.experts or job.training.kernels == "megatron" or _titan(run) or could(run, "stacked_experts"):
        return job
    layers = tuple(
        replace(group, kind=replace(group.kind, tensors=tuple(_linear(group.kind.tensors, run.method == "qlora"))))
        for group in job.architecture.layers
    )
    settings = replace(job.settings, experts="loop")
    return replace(job, architecture=replace(job.architecture, layers=layers), settings=settings)


def _linear(tensors: Iterable[Tensor], quantized: bool) -> Iterable[Tensor]:
    """The tensors with those of stacked experts as one matrix for each expert, where the base is quantized."""
    for tensor in tensors:
        if quantized and tensor.role == "expert" and len(tensor.shape) == STACKED:
            yield from [replace(tensor, shape=tensor.shape[1:], role="mlp")] * tensor.shape[0]
        else:
            yield tensor


def _buffered(run: Run, job: Job) -> Job:
    """Linear layers in 4 bits kept their inputs; torchtune's, which are torchao's, never did."""
    if run.method != "qlora" or _compiled(run) or could(run, "unbuffered_inputs"):
        return job
    return replace(job, settings=replace(job.settings, inputs_kept=True))


def _prepared(run: Run, job: Job) -> Job:
    """Adapters in fp32, as PEFT keeps them, and of a 4-bit base all else that is not quantized, the stream with it.

    Not with stacked experts, which bitsandbytes leaves as they are and which no GPU then holds twice. A base that is
    stated to be in fp32 is cast for its products.
    """
    alike = run.method == "full" or run.precision == "fp32" or all_small(run)
    if alike or job.runtime.runtime != "ddp":
        return job
    stacked = run.experts and could(run, "stacked_experts")
    change = "fp32_base" if run.parameter_bytes == WIDE else "fp32_adapters"
    if run.method == "qlora" and not stacked:
        change = "prepared_base"
    settings = job.settings if change == "fp32_adapters" else replace(job.settings, precision="autocast")
    return replace(job, runtime=changed(job.runtime, change), settings=settings)
