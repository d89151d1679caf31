"""The layout fills the cluster.

The product of the parallel degrees is the number of GPUs: none idles, none is used twice.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Plan, layout_of
from planner.terms import Requirement, Rule

NAME = "layout_fills_the_cluster"


def require(job: Job) -> tuple[Requirement, ...]:
    """The number of ranks is the number of GPUs."""
    gpus = job.cluster.gpus
    return (Rule(NAME, ("layout",), lambda values: layout_of(values).ranks == gpus),)


def because(job: Job, plan: Plan) -> str | None:
    """The two numbers that differ."""
    ranks, gpus = layout_of(plan).ranks, job.cluster.gpus
    return None if ranks == gpus else f"the layout has {ranks} ranks, the cluster {gpus} GPUs"
