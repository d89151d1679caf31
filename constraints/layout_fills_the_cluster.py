"""The layout fills the cluster.

The product of the parallel degrees is the number of GPUs: none idles, none is used twice.
"""

from __future__ import annotations

from planner.job import Job
from planner.plan import Layout, Plan
from planner.terms import Requirement, Rule, Values

NAME = "layout_fills_the_cluster"


def _ranks(values: Values) -> int:
    """Ranks of the layout."""
    layout = values["layout"]
    assert isinstance(layout, Layout)  # the space builds no other kind
    return layout.ranks


def require(job: Job) -> tuple[Requirement, ...]:
    """The number of ranks is the number of GPUs."""
    gpus = job.cluster.gpus
    return (Rule(NAME, ("layout",), lambda values: _ranks(values) == gpus),)


def because(job: Job, plan: Plan) -> str | None:
    """The two numbers that differ."""
    ranks, gpus = _ranks(plan), job.cluster.gpus
    return None if ranks == gpus else f"the layout has {ranks} ranks, the cluster {gpus} GPUs"
