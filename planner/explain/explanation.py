"""An explanation as an object: of a plan, or of why there is none. Sentences are made from it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.errors import InternalError, NoPlan
from planner.evaluate import Evaluation
from planner.explain.choices import Asker, Outcome, Reason, measured, reasons, why_not
from planner.explain.limits import LimitReason, Purchase, limit_reasons, purchases
from planner.explain.repairs import Failed, Repair, repairs
from planner.explain.traffic import Traffic, traffic
from planner.plan import Value
from planner.search import solve
from planner.sweep import Progress
from planner.variants import Source


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a plan is the best: each choice, each limit, what more would buy, what goes between GPUs."""

    best: Evaluation
    asked: Outcome | None
    reasons: tuple[Reason, ...]
    limits: tuple[LimitReason, ...]
    purchases: tuple[Purchase, ...]
    traffic: tuple[Traffic, ...]


@dataclass(frozen=True, eq=False)
class NoPlanExplained:
    """Why nothing fits, and what would."""

    failure: NoPlan
    repairs: tuple[Repair, ...]
    failed: tuple[Failed, ...]


def explain(
    source: Source, pins: Mapping[str, Value] | None = None, progress: Progress | None = None
) -> Explanation | NoPlanExplained:
    """The explanation of a job; with `pins` why its best plan has other values there, in place of all else."""
    job = source.job()
    try:
        best = solve(job).best
    except NoPlan as failure:
        return NoPlanExplained(failure, *repairs(source, failure.conflict, progress))
    if pins:
        return Explanation(best, why_not(job, pins), (), (), (), traffic(best))
    asker = Asker(job)
    if measured(_there(asker.best())) != measured(best):
        raise InternalError(f"the solver's plan {best.plan} is not the best of all rows")
    found = reasons(asker, best, progress)
    return Explanation(best, None, found, limit_reasons(asker, best), purchases(job), traffic(best))


def _there(found: Evaluation | None) -> Evaluation:
    """A plan that must exist because the solver found one."""
    if found is None:
        raise InternalError("the solver finds a plan where no row fits")
    return found
