"""An interleaved pipeline takes its micro-batches in whole rounds of as many as it has stages.

Each stage works on one model chunk for as many micro-batches as there are stages before it turns to the next chunk
(megatron-core 0.15 core/pipeline_parallel/schedules.py, forward_backward_pipelining_with_interleaving; Narayanan et al.
2021, arXiv:2104.04473, section 2.2).
"""

from __future__ import annotations

from planner.job import Job
from planner.layouts import layouts
from planner.plan import Plan, layout_of
from planner.terms import Requirement, Rule, Values

NAME = "interleaved_pipeline_takes_whole_rounds"


def _holds(job: Job, values: Values) -> bool:
    """Whether the micro-batches of a step are a multiple of the stages, where stages are cut into chunks."""
    layout = layout_of(values)
    return layout.virtual_stages == 1 or job.micro_batches(values) % layout.pipeline == 0


def require(job: Job) -> tuple[Requirement, ...]:
    """Asked only where some layout of the job is interleaved."""
    if all(layout.virtual_stages == 1 for layout in layouts(job)):
        return ()
    return (Rule(NAME, ("layout", "micro_batch"), lambda values: _holds(job, values)),)


def because(job: Job, plan: Plan) -> str | None:
    """The micro-batches and the stages."""
    if _holds(job, plan):
        return None
    layout = layout_of(plan)
    return (
        f"{job.micro_batches(plan)} micro-batches are no multiple of the {layout.pipeline} stages of a pipeline with "
        f"{layout.virtual_stages} model chunks each"
    )
