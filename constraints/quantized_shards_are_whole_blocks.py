"""Quantized shards are whole blocks.

A rank's shard of a parameter is quantized eight elements at a time, and what ranks gather has no room for padding:
every tensor has a multiple of eight elements for each rank (deepspeed 0.19.8 runtime/zero/partition_parameters.py,
CUDAQuantizer.quantize asserts it; a padded tensor would be scaled wrongly).
"""

from __future__ import annotations

from planner.job import Job
from planner.layouts import stages
from planner.plan import Plan, layout_of
from planner.quantized_exchange import MULTIPLE, ragged_tensor
from planner.share import share_of
from planner.terms import Requirement, Rule, Values

NAME = "quantized_shards_are_whole_blocks"


def require(job: Job) -> tuple[Requirement, ...]:
    """Parameters are gathered in 8 bits only by as many ranks as divide each of them."""
    if job.runtime.runtime != "deepspeed":
        return ()

    def holds(values: Values) -> bool:
        return values["gather_precision"] != "int8" or ragged_tensor(share_of(job, values, stages(job)[0])) is None

    return (Rule(NAME, ("layout", "gather_precision"), holds),)


def because(job: Job, plan: Plan) -> str | None:
    """The first tensor that does not divide."""
    if job.runtime.runtime != "deepspeed" or plan["gather_precision"] != "int8":
        return None
    tensor, ranks = ragged_tensor(share_of(job, plan, stages(job)[0])), layout_of(plan).shards
    if tensor is None:
        return None
    return (
        f"gather_precision int8 takes a multiple of {MULTIPLE} elements from each of {ranks} ranks, "
        f"{tensor.name} has {tensor.elements:,}"
    )
