"""Precision of the model, of its master copies, of accumulation and of communication."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, PARSER, Finding, error, info, warn
from planner.check.kinds import quoted
from planner.check.subject import Subject

BLOCKS = ("fp16", "bf16", "bfloat16", "torch_autocast")
HIGHEST_SCALE_POWER = 24
DTYPES = {
    "fp16": "fp16", "float16": "fp16", "half": "fp16", "torch.float16": "fp16",
    "bf16": "bf16", "bfloat16": "bf16", "torch.bfloat16": "bf16",
    "fp32": "fp32", "float32": "fp32", "float": "fp32", "torch.float32": "fp32",
}  # fmt: skip


def accumulation(subject: Subject) -> str:
    """The precision in which gradients are added up: what is written, else that of the model."""
    written = subject.value("data_types.grad_accum_dtype")
    return DTYPES.get(written, subject.precision) if isinstance(written, str) else subject.precision


def one_precision_is_enabled(subject: Subject) -> Iterator[Finding]:
    """fp16 and bf16 exclude each other."""
    if subject.enabled("fp16") and subject.enabled("bf16"):
        for one, other in (("fp16", "bf16"), ("bf16", "fp16")):
            yield error(f"{one}.enabled", f"{other} is enabled too: DeepSpeed refuses both together", PARSER)


def a_precision_is_named(subject: Subject) -> Iterator[Finding]:
    """Without a block DeepSpeed trains in fp32, at twice the memory."""
    if not subject.readable or subject.enabled("torch_autocast"):
        return
    if not any(subject.has(block) for block in BLOCKS):
        yield warn("bf16", "neither bf16 nor fp16 is in the file: DeepSpeed trains in fp32 unless the trainer adds one")
    elif subject.precision == "fp32" and not subject.precision_is_open:
        yield info("bf16.enabled", "no 16-bit precision is enabled: the model trains in fp32")


def auto_precision_covers_both(subject: Subject) -> Iterator[Finding]:
    """A trainer that runs bf16 fills bf16.enabled only, which must be there."""
    if subject.is_auto("fp16.enabled") and subject.raw("bf16") is None and subject.raw("bfloat16") is None:
        yield warn(
            "fp16.enabled",
            'is "auto" without a bf16 block: a trainer that runs bf16 leaves DeepSpeed in fp32; add "bf16": '
            '{"enabled": "auto"}',
        )


def loss_scale_is_dynamic(subject: Subject) -> Iterator[Finding]:
    """A static scale overflows or underflows as gradients change."""
    scale = subject.value("fp16.loss_scale")
    if scale and (subject.enabled("fp16") or subject.is_auto("fp16.enabled")):
        small = ", below 1 it shrinks gradients" if scale < 1 else ""
        yield warn("fp16.loss_scale", f"a static loss scale of {scale:g}{small}: 0 lets it follow the gradients")


def first_scale_is_reachable(subject: Subject) -> Iterator[Finding]:
    """fp16 ends at 65504, so each power above costs skipped steps."""
    power = subject.value("fp16.initial_scale_power")
    if power > HIGHEST_SCALE_POWER and (subject.enabled("fp16") or subject.is_auto("fp16.enabled")):
        yield warn(
            "fp16.initial_scale_power",
            f"the first loss scale is 2^{power}: fp16 ends at 65504, so the first steps overflow and are skipped; "
            "16 is the default",
        )


def dynamic_scale_can_move(subject: Subject) -> Iterator[Finding]:
    """Window and floor of a dynamic scale are above 0."""
    if not subject.enabled("fp16") or subject.value("fp16.loss_scale"):
        return
    for name in ("loss_scale_window", "min_loss_scale"):
        value = subject.value(f"fp16.{name}")
        if value <= 0:
            yield error(
                f"fp16.{name}",
                f"{value} is not above 0 while the loss scale is dynamic: DeepSpeed refuses the file",
                PARSER,
            )


def autocast_stands_alone(subject: Subject) -> Iterator[Finding]:
    """torch_autocast works on an fp32 model."""
    if subject.enabled("torch_autocast"):
        if subject.precision != "fp32":
            yield warn("torch_autocast.enabled", f"{subject.precision} is enabled too: autocast expects an fp32 model")
        if subject.value("zero_optimization.zero_quantized_weights"):
            yield error(
                "torch_autocast.enabled", "does not go with zero_quantized_weights: the engine refuses it", ENGINE
            )


def low_precision_masters_have_their_stage(subject: Subject) -> Iterator[Finding]:
    """16-bit master weights need ZeRO, and their states a host that keeps them."""
    offloaded = subject.offload("offload_optimizer") != "none"
    for block in ("fp16", "bf16"):
        name = f"{block}.{block}_master_weights_and_grads"
        if not subject.value(name):
            continue
        if subject.stage == 0:
            yield error(name, "needs ZeRO stage 1, 2 or 3: DeepSpeed refuses the file", PARSER)
        elif not offloaded and not (block == "bf16" and subject.value("bf16.bf16_optimizer_states")):
            yield error(
                name, "needs the optimizer offloaded to the host with DeepSpeedCPUAdam: the engine refuses it", ENGINE
            )
        else:
            yield warn(name, "16-bit master weights change numerics")


def low_precision_states_have_masters(subject: Subject) -> Iterator[Finding]:
    """16-bit states come with 16-bit masters."""
    name = "bf16.bf16_optimizer_states"
    if not subject.value(name):
        return
    if subject.stage == 0:
        yield error(name, "needs ZeRO stage 1, 2 or 3: DeepSpeed refuses the file", PARSER)
    elif not subject.value("bf16.bf16_master_weights_and_grads"):
        yield error(name, "needs bf16_master_weights_and_grads: DeepSpeed refuses the file", PARSER)


def accumulation_suits_the_stage(subject: Subject) -> Iterator[Finding]:
    """Stage 0 accumulates in the model's precision; stage 1 in fp32 is another optimizer that shards no gradients."""
    name, written = "data_types.grad_accum_dtype", subject.value("data_types.grad_accum_dtype")
    if written is None or subject.precision_is_open:
        return
    dtype, model = accumulation(subject), subject.precision
    if subject.stage == 0 and dtype != model:
        yield error(
            name, f"without ZeRO a {model} model accumulates in {model} only: the engine refuses {dtype}", ENGINE
        )
    elif subject.stage == 1 and model == "bf16" and dtype == "fp32" and subject.offload("offload_optimizer") != "cpu":
        yield warn(
            name,
            "fp32 at ZeRO stage 1 switches to an optimizer that keeps 4 bytes of gradient per parameter unsharded "
            "on each GPU, and drops an offload to nvme",
        )
    elif dtype in ("bf16", "fp16"):
        yield info(
            name,
            f"gradients add up in {dtype}: fewer bytes per parameter than fp32, and small contributions are lost "
            "over many steps",
        )


def parameter_dtype_agrees(subject: Subject) -> Iterator[Finding]:
    """param_dtype repeats the enabled precision or fails."""
    written = subject.value("data_types.param_dtype")
    dtype = DTYPES.get(written) if isinstance(written, str) else None
    if dtype and dtype != subject.precision and not subject.precision_is_open:
        yield error(
            "data_types.param_dtype",
            f"{quoted(written)} contradicts the enabled precision, {subject.precision}: the engine refuses it",
            ENGINE,
        )


def sums_have_their_stage(subject: Subject) -> Iterator[Finding]:
    """gradient_allreduce_op sum is refused in three places."""
    if subject.value("gradient_allreduce_op") != "sum":
        return
    places = (
        (subject.stage == 3, "ZeRO stage 3"),
        (bool(subject.block("zero_optimization.zenflow")), "ZenFlow"),
        (bool(subject.value("compile.deepcompile")), "DeepCompile"),
    )
    for holds, place in places:
        if holds:
            yield error("gradient_allreduce_op", f"sum does not go with {place}: DeepSpeed refuses the file", PARSER)


def gradients_are_scaled_after(subject: Subject) -> Iterator[Finding]:
    """Reduce-scatter takes no scaling before it."""
    if subject.stage < 2 or not subject.value("zero_optimization.reduce_scatter"):
        return
    if subject.stage == 2 and subject.value("gradient_allreduce_op") == "sum":
        return
    if subject.value("prescale_gradients"):
        yield error(
            "prescale_gradients",
            f"does not go with reduce_scatter at ZeRO stage {subject.stage}: the engine refuses it",
            ENGINE,
        )
    if subject.value("gradient_predivide_factor") != 1:
        yield error(
            "gradient_predivide_factor",
            f"other than 1 does not go with reduce_scatter at ZeRO stage {subject.stage}: the engine refuses it",
            ENGINE,
        )


def wire_is_as_wide_as_the_model(subject: Subject) -> Iterator[Finding]:
    """fp32 on the wire doubles what 16-bit gradients cost."""
    dtype = subject.value("communication_data_type")
    if dtype and dtype != subject.precision and not subject.precision_is_open:
        more = ": twice the bytes and buckets twice as large" if dtype == "fp32" else ""
        yield info("communication_data_type", f"gradients of a {subject.precision} model travel as {dtype}{more}")


RULES = (
    one_precision_is_enabled,
    a_precision_is_named,
    auto_precision_covers_both,
    loss_scale_is_dynamic,
    first_scale_is_reachable,
    dynamic_scale_can_move,
    autocast_stands_alone,
    low_precision_masters_have_their_stage,
    low_precision_states_have_masters,
    accumulation_suits_the_stage,
    parameter_dtype_agrees,
    sums_have_their_stage,
    gradients_are_scaled_after,
    wire_is_as_wide_as_the_model,
)
