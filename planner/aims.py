"""What a job file asks of the plan beside its choices: the objective, and the limits, in base units."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

from planner.cluster import Cluster
from planner.job import Limits
from planner.job_file import JobFile, LimitSettings, ObjectivePair
from planner.reading import Document


def objective_of(job_file: JobFile, document: Document, cluster: Cluster) -> dict[str, Any]:
    """`objective`, `then` and `within` of a Job. Raises InputError for a cost per token where nobody states a price."""
    wanted = job_file.objective
    found = {"objective": wanted, "then": "", "within": Fraction(0)}
    if isinstance(wanted, ObjectivePair):
        found = {"objective": wanted.first, "then": wanted.then, "within": wanted.within}
    if "cost_per_token" in found.values() and cluster.gpu_price_per_hour is None:
        message = f"nobody states a price of {cluster.node.key} or of {cluster.gpu.key}"
        raise document.error(("objective",), message, "cluster.gpu_price, such as 2.50 USD/hour")
    return found


def limits_of(settings: LimitSettings | None, cluster: Cluster) -> Limits:
    """The limits in whole microseconds and bytes; a share of memory is one of the GPU's usable memory."""
    if settings is None:
        return Limits()
    deadline, headroom = settings.step_time_at_most, settings.memory_headroom or 0
    return Limits(
        step_time_at_most=None if deadline is None else int(deadline * 1e6 + 1e-6),
        memory_headroom=ceil(headroom * (cluster.gpu.usable_memory if isinstance(headroom, Fraction) else 1)),
        host_memory_at_most=settings.host_memory_at_most,
    )
