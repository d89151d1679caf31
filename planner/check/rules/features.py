"""The other blocks: compilation, data efficiency, autotuning, checkpoints, and what a trainer adds."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, PARSER, Finding, error, info, warn
from planner.check.subject import Subject

SAMPLING = "data_efficiency.data_sampling"
REQUIRED = (
    (f"{SAMPLING}.curriculum_learning", "curriculum_metrics"),
    (f"{SAMPLING}.dynamic_batching", "max_tokens"),
)
LTD = "data_efficiency.data_routing.random_ltd"


def enabled_blocks_are_complete(subject: Subject) -> Iterator[Finding]:
    """Data efficiency asserts what an enabled block needs."""
    for block, name in REQUIRED:
        if subject.raw(f"{block}.enabled") and not subject.has(f"{block}.{name}"):
            yield error(f"{block}.{name}", "the block is enabled and needs it: DeepSpeed refuses the file", PARSER)


def autotuning_has_folders(subject: Subject) -> Iterator[Finding]:
    """Both folders are asserted to be named."""
    for name in ("results_dir", "exps_dir"):
        dotted = f"autotuning.{name}"
        if subject.has(dotted) and not subject.raw(dotted):
            yield error(dotted, "is empty: DeepSpeed refuses the file", PARSER)


def compiled_offloads_exclude_each_other(subject: Subject) -> Iterator[Finding]:
    """What DeepCompile moves to the host has one mover."""
    activations, states, parameters = (
        subject.value(f"compile.offload_{name}") for name in ("activation", "opt_states", "parameters")
    )
    if activations and (states or parameters):
        yield error(
            "compile.offload_activation",
            "does not go with offload_opt_states or offload_parameters: the engine refuses it",
            ENGINE,
        )
    if states and subject.offload("offload_optimizer") != "none":
        yield error("compile.offload_opt_states", "does not go with offload_optimizer: the engine refuses it", ENGINE)


def compilation_has_a_stage(subject: Subject) -> Iterator[Finding]:
    """DeepCompile rewrites ZeRO's collectives."""
    if subject.value("compile.deepcompile") and not subject.stage:
        yield warn("compile.deepcompile", "works on ZeRO stages 1 to 3: no effect without")


def tensor_parallel_ranks_count_in_the_batch(subject: Subject) -> Iterator[Finding]:
    """The batch equation takes all ranks, also those that share one sequence."""
    size = subject.value("tensor_parallel.autotp_size")
    if size and size > 1:
        yield info(
            "tensor_parallel.autotp_size",
            f"the batch equation counts all {subject.ranks} ranks although {size} of them share each sequence",
        )
        if subject.ranks % size:
            yield error("tensor_parallel.autotp_size", f"{size} does not divide {subject.ranks} ranks", ENGINE)


def clipping_is_written(subject: Subject) -> Iterator[Finding]:
    """The default changed to 1.0 in 2026."""
    if subject.readable and not subject.has("gradient_clipping"):
        yield info(
            "gradient_clipping", "not given: DeepSpeed 0.19.8 clips at 1.0, releases before June 2026 did not clip"
        )


def profiling_is_off(subject: Subject) -> Iterator[Finding]:
    """Measuring each step slows it."""
    for name in ("flops_profiler.enabled", "wall_clock_breakdown", "memory_breakdown", "dump_state"):
        if subject.value(name) is True:
            yield info(name, "measures while it trains: steps are slower")


def optimizer_block_makes_one_group(subject: Subject) -> Iterator[Finding]:
    """With the block, Hugging Face hands over all parameters in one group."""
    if subject.optimizer is not None:
        yield info(
            "optimizer",
            "with this block Hugging Face decays all weights alike, norms and biases too; without it they are spared",
        )


RULES = (
    enabled_blocks_are_complete,
    autotuning_has_folders,
    compiled_offloads_exclude_each_other,
    compilation_has_a_stage,
    tensor_parallel_ranks_count_in_the_batch,
    clipping_is_written,
    profiling_is_off,
    optimizer_block_makes_one_group,
)
