"""ZeRO: the stage, and switches that need one."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, PARSER, Finding, error, info, warn
from planner.check.kinds import quoted
from planner.check.subject import Subject

ZERO = "zero_optimization"
# Keys that only stage 3 reads.
STAGE_3 = (
    "stage3_prefetch_bucket_size",
    "stage3_param_persistence_threshold",
    "stage3_model_persistence_threshold",
    "stage3_max_live_parameters",
    "stage3_max_reuse_distance",
    "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
    "stage3_module_granularity_threshold",
    "stage3_use_all_reduce_for_fetch_params",
    "stage3_allgather_sequential",
    "sub_group_size",
    "leaf_module",
)
HARMLESS = ("stage3_gather_16bit_weights_on_model_save", "stage3_gather_fp16_weights_on_model_save", "leaf_module")
# Keys that only stages 1 and 2 read.
STAGES_1_2 = ("round_robin_gradients", "parameter_alignment")
QUANTIZED = ("zero_quantized_weights", "zero_quantized_nontrainable_weights", "zero_quantized_gradients")


def stage_is_named(subject: Subject) -> Iterator[Finding]:
    """true and false are an old spelling of stages 1 and 0."""
    written = subject.raw(ZERO)
    if isinstance(written, bool):
        yield warn(
            ZERO,
            f"{str(written).lower()} is an old spelling that DeepSpeed takes as stage {int(written)}; write "
            f'{{"stage": {int(written)}}}',
        )
    elif subject.readable and not subject.has(ZERO):
        yield info(ZERO, "no ZeRO block: every GPU keeps all parameters, gradients and optimizer states")


def stage_3_keys_have_stage_3(subject: Subject) -> Iterator[Finding]:
    """Read by stage 3 only, skipped below."""
    if subject.stage == 3 or subject.is_auto(f"{ZERO}.stage"):
        return
    for name in STAGE_3:
        dotted = f"{ZERO}.{name}"
        key = subject.inventory.key(dotted)
        if not subject.has(dotted) or subject.is_auto(dotted):
            continue
        changed = key is not None and name not in HARMLESS and subject.value(dotted) != key.default
        say = warn if changed else info
        yield say(dotted, f"only stage 3 reads it: no effect at stage {subject.stage}")


def stages_1_and_2_keys_have_their_stage(subject: Subject) -> Iterator[Finding]:
    """Read by stages 1 and 2 only."""
    if subject.stage in (0, 3):
        for name in STAGES_1_2:
            if subject.value(f"{ZERO}.{name}"):
                yield info(f"{ZERO}.{name}", f"only stages 1 and 2 read it: no effect at stage {subject.stage}")


def secondary_partition_fits_the_node(subject: Subject) -> Iterator[Finding]:
    """The second copy of the parameters is split over a group inside the ranks."""
    dotted, ranks = f"{ZERO}.zero_hpz_partition_size", subject.ranks
    size = subject.value(dotted)
    if size in (0, 1):
        if size == 0:
            yield warn(dotted, "0 is accepted and means nothing; leave it out or give the GPUs of a node")
        return
    if subject.stage != 3:
        yield warn(dotted, f"only stage 3 reads it: no effect at stage {subject.stage}")
    elif size > ranks:
        yield warn(
            dotted,
            f"{size} is more than the {ranks} ranks and is cut to {ranks}; it adds 2/{ranks} bytes per parameter "
            "and saves traffic only as the GPUs of one node",
        )
    elif ranks % size:
        yield error(dotted, f"{size} does not divide {ranks} ranks: the engine refuses it", ENGINE)
    else:
        yield info(dotted, f"keeps a second copy of the parameters: 2/{size} bytes per parameter more on each GPU")


def quantization_has_stage_3(subject: Subject) -> Iterator[Finding]:
    """Quantized collectives belong to stage 3 and change numerics."""
    for name in QUANTIZED:
        dotted = f"{ZERO}.{name}"
        if not subject.value(dotted):
            continue
        if subject.stage != 3:
            yield warn(dotted, f"only stage 3 reads it: no effect at stage {subject.stage}")
        elif name == "zero_quantized_gradients" and not subject.value(f"{ZERO}.reduce_scatter"):
            yield error(dotted, "needs reduce_scatter: the engine refuses it", ENGINE)
        elif name == "zero_quantized_gradients":
            yield warn(dotted, "gradients travel in 4 bits between nodes: numerics change")
            yield from _read_as_fp16(subject)
        else:
            yield info(
                dotted,
                "parameters travel in 8 bits by way of fp16: numerics change a little, and a CUDA kernel is needed",
            )


def _read_as_fp16(subject: Subject) -> Iterator[Finding]:
    """The kernels that quantize gradients convert nothing (deepspeed 0.19.8 ops/csrc/quantization/pt_binding.cpp)."""
    dtype = subject.value("communication_data_type") or subject.precision
    if dtype != "fp16" and not subject.precision_is_open:
        yield warn(
            f"{ZERO}.zero_quantized_gradients",
            f"on several nodes the kernels read {dtype} gradients as if their bits were fp16, which makes them wrong; "
            'set "communication_data_type": "fp16"',
        )


def norm_is_needed(subject: Subject) -> Iterator[Finding]:
    """compute_grad_norm false is for stages 1 and 2 without clipping or offload."""
    dotted = f"{ZERO}.compute_grad_norm"
    if subject.value(dotted):
        return
    if subject.stage not in (1, 2):
        yield error(
            dotted,
            f"false goes with stages 1 and 2 only, this is stage {subject.stage}: DeepSpeed refuses the file",
            PARSER,
        )
        return
    clipping = subject.value("gradient_clipping")
    if isinstance(clipping, (int, float)) and clipping > 0:
        yield error(dotted, f"false needs gradient_clipping 0, which is {clipping:g}: the engine refuses it", ENGINE)
    if subject.offload("offload_optimizer") != "none":
        yield error(dotted, "false does not go with an offloaded optimizer: the engine refuses it", ENGINE)


def old_stage_1_is_gone(subject: Subject) -> Iterator[Finding]:
    """legacy_stage1 raises."""
    if subject.value(f"{ZERO}.legacy_stage1") and subject.stage:
        yield error(f"{ZERO}.legacy_stage1", "the old stage 1 is gone: the engine refuses it", ENGINE)


def elastic_checkpoints_are_gone(subject: Subject) -> Iterator[Finding]:
    """Stage 3 ignores elastic_checkpoint with a warning."""
    if subject.value(f"{ZERO}.elastic_checkpoint") and subject.stage == 3:
        yield warn(f"{ZERO}.elastic_checkpoint", "stage 3 has no elastic checkpoints any more: no effect")


def pipelines_stay_below_stage_2(subject: Subject) -> Iterator[Finding]:
    """A pipeline model asserts a stage below 2."""
    if subject.block("pipeline") and subject.stage >= 2:
        yield warn(
            "pipeline",
            f"a pipeline model runs at ZeRO stage 0 or 1 only, this is stage {subject.stage}; other models skip "
            "the block",
        )


def muon_does_not_scatter(subject: Subject) -> Iterator[Finding]:
    """Stage 3 refuses Muon with reduce_scatter."""
    if subject.optimizer == "muon" and subject.stage == 3 and subject.value(f"{ZERO}.reduce_scatter"):
        yield error(
            f"{ZERO}.reduce_scatter", "Muon at stage 3 needs it false: the engine refuses both together", ENGINE
        )


def leaf_modules_are_new(subject: Subject) -> Iterator[Finding]:
    """Modules whose experts are gathered at once, named in the file since 2026."""
    if subject.block(f"{ZERO}.leaf_module") and subject.stage == 3:
        yield info(
            f"{ZERO}.leaf_module",
            "gathers all parameters of such a module at once; releases before 0.18 refuse the key",
        )


def stage_is_open(subject: Subject) -> Iterator[Finding]:
    """A stage left open ends at 0 unless Accelerate fills it in."""
    if subject.is_auto(f"{ZERO}.stage"):
        yield warn(f"{ZERO}.stage", f"{quoted('auto')} is filled in by Accelerate only; elsewhere ZeRO stays off")


RULES = (
    stage_is_named,
    stage_is_open,
    stage_3_keys_have_stage_3,
    stages_1_and_2_keys_have_their_stage,
    secondary_partition_fits_the_node,
    quantization_has_stage_3,
    norm_is_needed,
    old_stage_1_is_gone,
    elastic_checkpoints_are_gone,
    pipelines_stay_below_stage_2,
    muon_does_not_scatter,
    leaf_modules_are_new,
)
