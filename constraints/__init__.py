"""One file per rule that a plan must satisfy.

Each module has the same two names: `require(job)` gives the requirements, `because(job, plan)` the sentence that says
how a plan breaks them (None where it does not). The module's name is the constraint's name, its docstring its page.
"""

from types import ModuleType

from constraints import (
    accumulation_dtype_suits_the_stage,
    batch_divides_over_ranks,
    checkpoints_fit_the_layers,
    gpu_memory_holds_every_phase,
    gpu_memory_leaves_the_headroom,
    host_memory_holds_every_phase,
    host_memory_is_within_the_limit,
    host_runs_the_optimizer,
    interleaved_pipeline_takes_whole_rounds,
    layout_fills_the_cluster,
    nvme_holds_what_is_moved_there,
    optimizer_in_backward_updates_at_once,
    precision_runs_on_the_gpu,
    quantized_shards_are_whole_blocks,
    quantized_weights_are_whole,
    step_time_is_within_the_deadline,
    techniques_do_not_conflict,
    techniques_exist_in_the_runtime,
    techniques_have_what_they_need,
)

ALL: tuple[ModuleType, ...] = (
    precision_runs_on_the_gpu,
    layout_fills_the_cluster,
    batch_divides_over_ranks,
    interleaved_pipeline_takes_whole_rounds,
    checkpoints_fit_the_layers,
    techniques_exist_in_the_runtime,
    techniques_have_what_they_need,
    techniques_do_not_conflict,
    accumulation_dtype_suits_the_stage,
    optimizer_in_backward_updates_at_once,
    quantized_weights_are_whole,
    quantized_shards_are_whole_blocks,
    host_runs_the_optimizer,
    step_time_is_within_the_deadline,
    gpu_memory_leaves_the_headroom,
    host_memory_is_within_the_limit,
    gpu_memory_holds_every_phase,
    host_memory_holds_every_phase,
    nvme_holds_what_is_moved_there,
)

NAMES: tuple[str, ...] = tuple(module.__name__.rpartition(".")[2] for module in ALL)
