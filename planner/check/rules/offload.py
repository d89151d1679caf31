"""Offload of optimizer states and parameters to host memory and NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, PARSER, Finding, error, info, warn
from planner.check.subject import Subject
from planner.units import format_bytes

ZERO = "zero_optimization"
OPTIMIZER, PARAMETER = f"{ZERO}.offload_optimizer", f"{ZERO}.offload_param"
BOTH = ("offload_optimizer", "offload_param")
# One partition of a parameter must fit into a swap buffer; smaller buffers hold no matrix of a language model.
SMALLEST_BUFFER = 1_000_000


def parameters_are_offloaded_at_stage_3(subject: Subject) -> Iterator[Finding]:
    """Below stage 3 the block is accepted and does nothing."""
    if subject.offload("offload_param") != "none" and subject.stage != 3:
        yield error(
            subject.offload_key("offload_param"),
            f"parameters are offloaded at stage 3 only: at stage {subject.stage} the block is accepted without a "
            "word and "
            "they all stay on the GPU",
        )


def optimizer_is_offloaded_with_zero(subject: Subject) -> Iterator[Finding]:
    """Without ZeRO the CPU optimizer gets parameters on the GPU."""
    if subject.offload("offload_optimizer") != "none" and not subject.stage:
        yield error(
            subject.offload_key("offload_optimizer"),
            "without ZeRO nothing is offloaded, yet DeepSpeed takes its CPU optimizer, which fails on parameters "
            "on the GPU",
            ENGINE,
        )


def nvme_has_a_path(subject: Subject) -> Iterator[Finding]:
    """The parser lets a missing path through."""
    for which in BOTH:
        path = f"{ZERO}.{which}.nvme_path"
        if subject.offload(which) == "nvme" and subject.raw(path) in (None, ""):
            yield error(path, "device nvme needs it: the engine stops where it is missing", ENGINE)


def nvme_has_stage_3(subject: Subject) -> Iterator[Finding]:
    """Stages 1 and 2 keep the states in host memory whatever the device."""
    if subject.offload("offload_optimizer") == "nvme" and subject.stage in (1, 2):
        yield warn(
            f"{OPTIMIZER}.device",
            f"stage {subject.stage} takes nvme as cpu without a word: the states fill host memory",
        )
    for which in BOTH:
        if subject.offload(which) == "nvme" and subject.stage == 3:
            yield info(
                f"{ZERO}.{which}.device",
                "nvme needs libaio and its headers, a writable local path, and pinned buffers in host memory",
            )


def ratio_has_stage_3(subject: Subject) -> Iterator[Finding]:
    """A share of the states on the GPU is a matter of stage 3, in whole sub-groups."""
    dotted = f"{OPTIMIZER}.ratio"
    ratio = subject.value(dotted)
    if ratio >= 1:
        return
    if subject.stage != 3:
        yield error(
            dotted, f"{ratio:g} keeps a part on the GPU, which stage 3 alone can: DeepSpeed refuses the file", PARSER
        )
        return
    yield info(
        dotted,
        f"keeps {1 - ratio:.0%} of the optimizer states on the GPU, rounded down to whole sub-groups: "
        "sub_group_size must be far below the shard",
    )
    if subject.raw("scheduler.type"):
        yield warn(
            dotted, "the part on the GPU does not follow the learning rate schedule of its first parameter group"
        )


def states_go_before_parameters(subject: Subject) -> Iterator[Finding]:
    """Parameters are a seventh of what the optimizer keeps."""
    if (
        subject.offload("offload_param") != "none"
        and subject.offload("offload_optimizer") == "none"
        and subject.stage == 3
    ):
        yield warn(
            f"{OPTIMIZER}.device",
            "parameters are offloaded while the optimizer states, about six times as large, stay on the GPU",
        )


def swap_buffers_hold_a_partition(subject: Subject) -> Iterator[Finding]:
    """Sizes that matter where parameters live on NVMe."""
    if subject.offload("offload_param") != "nvme" or subject.stage != 3:
        return
    size, count, kept = (subject.value(f"{PARAMETER}.{name}") for name in ("buffer_size", "buffer_count", "max_in_cpu"))
    if size < SMALLEST_BUFFER:
        yield error(
            f"{PARAMETER}.buffer_size",
            f"a buffer of {size} elements holds no parameter's partition: the run stops at the first one",
            ENGINE,
        )
    if size * count * 2 > 4 * 1024**3:
        yield info(
            f"{PARAMETER}.buffer_count",
            f"{count} buffers of {size:g} elements pin {format_bytes(size * count * 2)} of host memory for each GPU",
        )
    if 0 < kept < SMALLEST_BUFFER:
        yield warn(
            f"{PARAMETER}.max_in_cpu",
            f"keeps {kept} elements in host memory, next to nothing; 0 says none, the default is 1e9",
        )


def optimizer_buffers_hold_the_states(subject: Subject) -> Iterator[Finding]:
    """Adam swaps parameter, gradient and two moments."""
    dotted = f"{OPTIMIZER}.buffer_count"
    count = subject.value(dotted)
    if subject.offload("offload_optimizer") == "nvme" and subject.stage == 3 and count < 4:
        yield warn(dotted, f"{count} buffers are fewer than Adam's four (parameter, gradient, two moments)")


def super_offload_has_what_it_needs(subject: Subject) -> Iterator[Finding]:
    """SuperOffload is stage 3 with states in host memory, and overlaps only without clipping."""
    dotted = f"{OPTIMIZER}.super_offload"
    if not subject.value(dotted):
        return
    clipping = subject.value("gradient_clipping")
    if subject.stage != 3:
        yield warn(dotted, f"only stage 3 reads it: no effect at stage {subject.stage}")
    elif subject.offload("offload_optimizer") != "cpu":
        yield error(dotted, "needs device cpu", ENGINE)
    elif isinstance(clipping, (int, float)) and clipping > 0:
        yield warn(
            dotted, f"the optimizer on the host overlaps backward only with gradient_clipping 0, which is {clipping:g}"
        )


def zenflow_has_an_offload(subject: Subject) -> Iterator[Finding]:
    """ZenFlow splits an optimizer that lives in host memory."""
    if not isinstance(subject.raw(f"{ZERO}.zenflow"), dict):
        return
    if not subject.stage:
        yield warn(f"{ZERO}.zenflow", "needs a ZeRO stage: no effect without")
    elif subject.offload("offload_optimizer") == "none":
        yield error(f"{ZERO}.zenflow", "needs the optimizer offloaded to the host: the engine refuses it", ENGINE)
    else:
        yield warn(f"{ZERO}.zenflow", "most gradients are applied late: numerics change")


def a_host_optimizer_is_known(subject: Subject) -> Iterator[Finding]:
    """An optimizer in host memory needs a kernel for the host."""
    if subject.offload("offload_optimizer") == "none" or not subject.stage:
        return
    found = subject.optimizer
    if found is None and not subject.has("optimizer"):
        yield info(
            subject.offload_key("offload_optimizer"),
            "no optimizer block: a client optimizer must be DeepSpeedCPUAdam or DeepSpeedCPULion, which Hugging "
            "Face sees to, "
            "or zero_force_ds_cpu_optimizer false",
        )
    elif found == "lamb":
        yield error("optimizer.type", "Lamb has no kernel for the host: it cannot update offloaded states", ENGINE)
    elif found in subject.inventory.optimizers["torch"] and found not in subject.inventory.optimizers["on_host"]:
        yield warn(
            "optimizer.type", f"{found} has no DeepSpeed kernel for the host: updates of offloaded states are slow"
        )


RULES = (
    parameters_are_offloaded_at_stage_3,
    optimizer_is_offloaded_with_zero,
    nvme_has_a_path,
    nvme_has_stage_3,
    ratio_has_stage_3,
    states_go_before_parameters,
    swap_buffers_hold_a_partition,
    optimizer_buffers_hold_the_states,
    super_offload_has_what_it_needs,
    zenflow_has_an_offload,
    a_host_optimizer_is_known,
)
