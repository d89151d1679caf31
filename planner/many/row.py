"""One job solved into one row of results: figures of its best plan, or why there is none; never an exception."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, Any

from planner.errors import InternalError, NoPlan, PlannerError, Stopped

if TYPE_CHECKING:
    from planner.evaluate import Evaluation
    from planner.many.task import Task

Row = dict[str, Any]
FIGURES = (
    "cluster", "gpus", "step_seconds", "tokens_per_second_per_gpu", "peak_bytes", "usd_per_million_tokens", "plan",
    "error",
)  # fmt: skip
COLUMNS = ("job", "fields", "status", *FIGURES, "seconds", "digest")


def row_of(task: Task) -> Row:
    """The row of one task, its digest left empty. `status`: optimal, feasible, infeasible, stopped (no time), error."""
    started = monotonic()
    found: Row = {"status": "error", **dict.fromkeys(FIGURES)}
    try:
        found |= {"error": task.error} if task.error else _solved(task)
    except NoPlan as failure:
        found |= {"status": "infeasible", "error": str(failure)}
    except Stopped as failure:
        found |= {"status": "stopped", "error": str(failure)}
    except PlannerError as error:
        found["error"] = str(error)
    except Exception as error:  # one job that fails must not end the others
        found["error"] = str(InternalError(f"{type(error).__name__}: {error}"))
    row = {"job": task.name, "fields": dict(task.fields), **found}
    return {**row, "seconds": round(monotonic() - started, 3), "digest": ""}


def _solved(task: Task) -> Row:
    """Status and figures of the best plan, over all clusters and settings that the job leaves open."""
    from planner.choosing.choice import leaves_open

    if leaves_open(task.document.data):
        return _chosen(task)
    from dataclasses import replace

    from planner.job_file import JobFile
    from planner.reading import validated
    from planner.resolve import resolve
    from planner.search import solve

    job = resolve(validated(JobFile, task.document), task.document, task.name, task.catalogs)
    if task.time_limit is not None:
        job = replace(job, time_limit=task.time_limit)
    solution = solve(job)
    return {"status": "optimal" if solution.proof.optimal else "feasible", **_figures(solution.best)}


def _chosen(task: Task) -> Row:
    """The best plan over several clusters and settings, with what it takes of what is allowed."""
    from planner.choosing.choice import choice_of
    from planner.choosing.choosing import choose

    found = choose(choice_of(task.document, task.name, task.catalogs, (), task.time_limit))
    if found.failure is not None:
        raise found.failure
    assert found.solution is not None and found.best is not None  # what did not fail has a plan
    row = {"status": "optimal" if found.proven else "feasible", **_figures(found.solution.best)}
    variant = found.best.candidate.variant.label
    return {**row, "plan": f"{row['plan']}, with {variant}"} if variant else row


def _figures(best: Evaluation) -> Row:
    """What a row tells of a plan."""
    from planner.objective import cost_per_token
    from planner.plan_summary import plan_summary

    cluster = best.job.cluster
    priced = cluster.gpu_price_per_hour is not None
    return {
        "cluster": f"{cluster.nodes} × {cluster.node.key}",
        "gpus": cluster.gpus,
        "step_seconds": best.step_time.seconds,
        "tokens_per_second_per_gpu": round(best.tokens_per_second_per_gpu, 3),
        "peak_bytes": best.peak_bytes,
        "usd_per_million_tokens": round(cost_per_token(best), 6) if priced else None,
        "plan": plan_summary(best),
    }
