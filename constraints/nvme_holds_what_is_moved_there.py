"""The node's NVMe holds what is moved there.

States move to NVMe only where every node has drives, and stay within their capacity.
"""

from __future__ import annotations

from constraints._memory import limit, overflow
from planner.job import Job
from planner.plan import Plan
from planner.terms import Requirement, Rule, Values

NAME = "nvme_holds_what_is_moved_there"
MOVED = ("optimizer_offload", "parameter_offload")


def _unused(values: Values) -> bool:
    """Whether nothing is moved to NVMe."""
    return all(values[name] != "nvme" for name in MOVED)


def require(job: Job) -> tuple[Requirement, ...]:
    """Without drives a rule, with drives the limit of their capacity."""
    return limit(job, NAME, "nvme") if job.cluster.node.nvme else (Rule(NAME, MOVED, _unused),)


def because(job: Job, plan: Plan) -> str | None:
    """That there is no drive, or how far over its capacity the plan is."""
    if job.cluster.node.nvme is None:
        return None if _unused(plan) else f"node {job.cluster.node.key} has no NVMe drive"
    return overflow(job, plan, "nvme")
