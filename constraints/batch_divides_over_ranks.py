"""The global batch divides over micro-batches and ranks.

global_batch = micro_batch × gradient_accumulation × data_parallel, with a whole number of micro-batches per rank: no
rank gets a smaller batch and the update is the one that was asked for.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, layout_of, whole
from planner.terms import Requirement, Rule, Values

NAME = "batch_divides_over_ranks"


def _at_once(values: Values) -> int:
    """Sequences that all ranks together take in one micro-batch."""
    return whole(values, "micro_batch") * layout_of(values).data


def require(job: Job) -> tuple[Requirement, ...]:
    """The global batch is a multiple of what all ranks take at once."""
    batch = job.training.global_batch
    return (Rule(NAME, ("layout", "micro_batch"), lambda values: batch % _at_once(values) == 0),)


def because(job: Job, plan: Plan) -> str | None:
    """The numbers that do not divide."""
    batch, at_once = job.training.global_batch, _at_once(plan)
    if batch % at_once == 0:
        return None
    return (
        f"a global batch of {batch} is no multiple of micro_batch {plan['micro_batch']} × {layout_of(plan).data} "
        f"data-parallel ranks = {at_once}"
    )
