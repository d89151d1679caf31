"""Evaluations as machine-readable answers: plain dictionaries with stable keys, in base units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from planner.errors import NoPlan
from planner.evaluate import Evaluation
from planner.layouts import stage_counts
from planner.ledger import DeviceLedger
from planner.objective import OBJECTIVES
from planner.plan import Layout, Plan, Value, layout_of, whole
from planner.search import Proof, Solution
from planner.specification import specify
from planner.terms import TIME

Answer = dict[str, Any]


def solution_answer(solution: Solution, top: int = 1) -> Answer:
    """The answer of `planner solve`: the best plan, its proof, and the runner-up with what it would cost.

    With `top` above 1 the best plans in order beside them.
    """
    from planner.emit.deepspeed import configuration

    best = solution.best
    answer = evaluation_answer(best, "optimal" if solution.proof.optimal else "feasible")
    answer["objective"] = objective_answer(best)
    answer["proof"] = proof_answer(solution.proof)
    if solution.proof.then is not None:
        answer["proof"]["then"] = proof_answer(solution.proof.then)
    if top > 1:
        answer["plans"] = [ranked_answer(best, number, other) for number, other in enumerate(solution.plans, 1)]
        answer["proof"]["plans_in_order"] = solution.ordered
    answer["runner_up"] = runner_up_answer(best, solution.runner_up)
    answer["deepspeed"] = configuration(best.job, best.plan) if best.job.runtime.runtime == "deepspeed" else None
    return answer


def evaluation_answer(evaluation: Evaluation, status: str = "evaluated") -> Answer:
    """Everything about one plan."""
    return {
        "status": status,
        "job": evaluation.job.name,
        "cluster": {"gpus": evaluation.job.cluster.gpus, "nodes": evaluation.job.cluster.nodes},
        "training": {
            "global_batch": evaluation.job.training.global_batch,
            "sequence_length": evaluation.job.training.sequence_length,
        },
        "plan": plan_answer(evaluation.values),
        "memory": memory_answer(evaluation),
        "step_time": time_answer(evaluation),
        "throughput": {
            "tokens_per_second_per_gpu": round(evaluation.tokens_per_second_per_gpu, 3),
            "model_flops_utilization": round(evaluation.model_flops_utilization, 6),
        },
        "model": model_answer(evaluation),
        "bounds": bounds_answer(evaluation),
        "violations": [{"constraint": item.constraint, "because": item.because} for item in evaluation.violations],
        "assumptions": list(evaluation.job.assumptions),
    }


def plan_answer(values: Mapping[str, Value]) -> Answer:
    """The plan's values; the layout is spelled out by its degrees."""
    return {name: value for name, value in values.items() if not isinstance(value, Layout)}


def memory_answer(evaluation: Evaluation) -> Answer:
    """Every device; of a GPU also what tools show."""
    found = {device: device_answer(ledger) for device, ledger in evaluation.ledger.items()}
    shown = evaluation.ledger["gpu"].shown(evaluation.job.runtime.fragmentation)
    found["gpu"]["shown"] = {f"{name}_bytes": size for name, size in asdict(shown).items()}
    return found


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
        "layers": len(job.layer_kinds),
        "layers_of_stages": stage_counts(len(job.layer_kinds), layout_of(evaluation.plan)),
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
        **({} if proof.optimal else {"gap": round(proof.gap, 6)}),
        **({"stopped_by": proof.stopped} if proof.stopped else {}),
    }


def bounds_answer(evaluation: Evaluation) -> list[Answer]:
    """What every limit allows of what: bytes of a device, or seconds of a step."""
    limits = specify(evaluation.job).every_limit
    return [
        {"constraint": limit.constraint, "of": "step_time", "seconds_at_most": limit.capacity / 1e6}
        if limit.device == TIME
        else {"constraint": limit.constraint, "of": limit.device, "bytes_at_most": limit.capacity}
        for limit in limits
    ]  # fmt: skip


def objective_answer(evaluation: Evaluation) -> Answer:
    """The plan's value in the job's objective, and in the second one of a pair."""
    job = evaluation.job
    found = OBJECTIVES[job.objective]
    answer: Answer = {"name": found.name, "value": found.value(evaluation), "unit": found.unit(job)}
    if job.then:
        then = OBJECTIVES[job.then]
        answer["within"] = float(job.within)
        answer["then"] = {"name": then.name, "value": then.value(evaluation), "unit": then.unit(job)}
    return answer


def ranked_answer(best: Evaluation, number: int, other: Evaluation) -> Answer:
    """One of the best plans: its place, what it changes from the best one, and its figures."""
    return {
        "rank": number,
        "plan": plan_answer(other.values),
        "changes": changes(best.values, other.values),
        "objective": objective_answer(other),
        "step_seconds": other.step_time.seconds,
        "peak_bytes": other.peak_bytes,
        "host_peak_bytes": other.ledger["host"].peak.total,
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


def conflict_answer(failure: NoPlan) -> Answer:
    """The answer where no plan exists: the names that cannot hold together, and the nearest miss.

    `conflict_is_minimal` is False where time ran out before every name was found to be needed.
    """
    miss: Evaluation | None = failure.nearest_miss
    answer: Answer = {
        "status": "infeasible",
        "conflict": list(failure.conflict),
        "conflict_is_minimal": failure.minimal,
        "nearest_miss": None,
    }
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
