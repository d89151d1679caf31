"""An explanation as an object: of a plan, or of why there is none. Sentences are made from it elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from planner.errors import InternalError, NoPlan
from planner.evaluate import Evaluation
from planner.explain.choices import Asker, Outcome, Reason, measured, reasons, why_not
from planner.explain.limits import LimitReason, Purchase, limit_reasons, purchases
from planner.explain.repairs import Failed, Repair, repairs
from planner.explain.traffic import Traffic, traffic
from planner.job import Job
from planner.layouts import layouts
from planner.plan import Layout, Value, layout_of
from planner.search import solve
from planner.sweep import Progress
from planner.variants import Source

# Of a job with more layouts than this, those are looked at that differ from the plan's in few respects.
MANY_LAYOUTS, MOST_APART = 200, 2


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
    asker = Asker(near(job, best))
    if not job.within and measured(_there(asker.best())) != measured(best):
        raise InternalError(f"the solver's plan {best.plan} is not the best of all rows")
    found = reasons(asker, best, progress)
    limits = () if job.within else limit_reasons(asker, best)  # a tolerance, and no limit, holds such a plan back
    return Explanation(best, None, found, limits, purchases(job), traffic(best))


def near(job: Job, best: Evaluation) -> Job:
    """The job; of one with very many layouts with those alone that differ from the plan's in at most two degrees."""
    taken, known = layout_of(best.plan), layouts(job)
    if len(known) <= MANY_LAYOUTS:
        return job
    near = tuple(layout for layout in known if _apart(layout, taken) <= MOST_APART)
    return job.with_choices({"layout": near})


def _apart(one: Layout, other: Layout) -> int:
    """In how many respects two layouts differ, beside the data-parallel degree, which follows from the others."""
    return sum(getattr(one, field.name) != getattr(other, field.name) for field in fields(one) if field.name != "data")


def _there(found: Evaluation | None) -> Evaluation:
    """A plan that must exist because the solver found one."""
    if found is None:
        raise InternalError("the solver finds a plan where no row fits")
    return found
