"""Evaluations as machine-readable answers: plain dictionaries with stable keys, in base units."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.evaluate import Evaluation
from planner.ledger import DeviceLedger
from planner.plan import Layout, Plan, Value, whole
from planner.search import Proof, Solution

Answer = dict[str, Any]


def solution_answer(solution: Solution) -> Answer:
    """The answer of `planner solve`: the best plan, its proof, and the runner-up with what it would cost."""
    from planner.emit.deepspeed import configuration

    best = solution.best
    answer = evaluation_answer(best, "optimal" if solution.proof.optimal else "feasible")
    answer["proof"] = proof_answer(solution.proof)
    answer["runner_up"] = runner_up_answer(best, solution.runner_up)
    answer["deepspeed"] = configuration(best.job, best.plan) if best.job.runtime.runtime == "deepspeed" else None
    return answer


def evaluation_answer(evaluation: Evaluation, status: str = "evaluated") -> Answer:
    """Everything about one plan."""
    return {
        "status": status,
        "job": evaluation.job.name,
        "plan": plan_answer(evaluation.values),
        "memory": {device: device_answer(found) for device, found in evaluation.ledger.items()},
        "step_time": time_answer(evaluation),
        "throughput": {
            "tokens_per_second_per_gpu": round(evaluation.tokens_per_second_per_gpu, 3),
            "model_flops_utilization": round(evaluation.model_flops_utilization, 6),
        },
        "model": model_answer(evaluation),
        "violations": [{"constraint": item.constraint, "because": item.because} for item in evaluation.violations],
        "assumptions": list(evaluation.job.assumptions),
    }


def plan_answer(values: Mapping[str, Value]) -> Answer:
    """The plan's values; the layout is spelled out by its degrees."""
    return {name: value for name, value in values.items() if not isinstance(value, Layout)}


def device_answer(found: DeviceLedger) -> Answer:
    """One device: its peak with the books that add up to it, and each phase."""
    return {
        "peak_bytes": found.peak.total,
        "peak_phase": found.peak.phase,
        "usable_bytes": found.capacity.usable,
        "planned_bytes": found.capacity.planned,
        "verdict": found.verdict,
        "books": dict(found.peak.books),
        "lines": [{"line": line.name, "book": line.book, "bytes": line.bytes} for line in found.peak.lines],
        "phases": {
            name: {"peak_bytes": moment.total, "books": dict(moment.books)} for name, moment in found.phases.items()
        },
    }


def time_answer(evaluation: Evaluation) -> Answer:
    """The step time with its range; the terms add up to the seconds."""
    return {
        "seconds": evaluation.step_time.seconds,
        "low": evaluation.low_seconds,
        "high": evaluation.high_seconds,
        "terms": dict(evaluation.step_time.terms),
    }


def model_answer(evaluation: Evaluation) -> Answer:
    """Facts of the model that people check first."""
    job = evaluation.job
    kind = max(job.kind_counts, key=lambda item: item[1])[0]
    return {
        "parameters": job.architecture.parameters,
        "trainable_parameters": job.trainable_parameters,
        "largest_tensor_parameters": job.architecture.largest_tensor,
        "activation_bytes_per_token_per_layer": float(job.activations_of(kind).stored.per_token),
    }


def proof_answer(proof: Proof) -> Answer:
    """What is proven, and over how many plans."""
    return {
        "optimal": proof.optimal,
        "bound_seconds" if proof.unit == "seconds" else "bound_bytes": proof.bound,
        "configurations": proof.configurations,
        "solver_seconds": round(proof.solver_seconds, 6),
    }


def runner_up_answer(best: Evaluation, other: Evaluation | None) -> Answer | None:
    """The next best plan: what it changes, and what it costs in seconds and bytes."""
    if other is None:
        return None
    return {
        "plan": plan_answer(other.values),
        "changes": changes(best.values, other.values),
        "seconds_more": round(other.step_time.seconds - best.step_time.seconds, 6),
        "peak_bytes_more": other.peak_bytes - best.peak_bytes,
    }


def changes(one: Mapping[str, Value], other: Mapping[str, Value]) -> dict[str, Value]:
    """The values of `other` that differ from those of `one`, the layout by its degrees."""
    return {name: value for name, value in other.items() if not isinstance(value, Layout) and one.get(name) != value}


def conflict_answer(conflict: tuple[str, ...], miss: Evaluation | None) -> Answer:
    """The answer where no plan exists: the names that cannot hold together, and the nearest miss."""
    answer: Answer = {"status": "infeasible", "conflict": list(conflict), "nearest_miss": None}
    if miss is not None:
        found = evaluation_answer(miss)
        answer["nearest_miss"] = found
        answer["violations"] = found["violations"]
        answer["assumptions"] = found["assumptions"]
    return answer


def set_values(plan: Plan, values: Mapping[str, Value]) -> Plan:
    """The plan with values replaced; no checkpoints means interval 0, and some mean at least 1."""
    changed = plan.changed(**values)
    if "checkpoint_count" in values and "checkpoint_interval" not in values:
        interval = 0 if values["checkpoint_count"] == 0 else max(1, whole(changed, "checkpoint_interval"))
        changed = changed.changed(checkpoint_interval=interval)
    if values.get("checkpoint_interval") == 0 and "checkpoint_count" not in values:
        changed = changed.changed(checkpoint_count=0)
    return changed
