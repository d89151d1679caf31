"""An explanation as a plain dictionary; every entry holds its figures and its sentence."""

from __future__ import annotations

from planner.answer import Answer, conflict_answer, evaluation_answer, plan_answer
from planner.evaluate import Evaluation
from planner.explain.choices import Outcome, excesses
from planner.explain.explanation import Explanation, NoPlanExplained
from planner.explain.limits import LimitReason, Purchase
from planner.explain.repairs import Repair
from planner.explain.sentences import (
    limit_sentence,
    outcome_sentence,
    purchase_sentence,
    repair_sentence,
    traffic_sentence,
)
from planner.explain.traffic import Traffic


def explanation_answer(found: Explanation | NoPlanExplained) -> Answer:
    """The answer of `planner explain`."""
    if isinstance(found, NoPlanExplained):
        return _no_plan(found)
    best = found.best
    answer = evaluation_answer(best, "optimal")
    answer["why_not"] = outcome_answer(best, found.asked) if found.asked is not None else None
    answer["choices"] = [
        {
            "choice": item.choice,
            "value": item.value,
            "others": [outcome_answer(best, one) for one in item.outcomes],
        }
        for item in found.reasons
    ]
    answer["limits"] = [_limit(best, reason) for reason in found.limits]
    answer["more"] = [_purchase(best, item) for item in found.purchases]
    answer["traffic"] = [_traffic(sent) for sent in found.traffic]
    return answer


def _no_plan(found: NoPlanExplained) -> Answer:
    """The proof that nothing fits, with the repairs."""
    answer = conflict_answer(found.failure)
    miss = found.failure.nearest_miss
    answer["over"] = _over(miss) if miss is not None else []
    answer["repairs"] = [_repair(repair) for repair in found.repairs]
    answer["not_enough"] = [{"kind": item.kind, "change": item.change} for item in found.failed]
    return answer


def outcome_answer(best: Evaluation, outcome: Outcome) -> Answer:
    """Pinned values: what they cost, or what they exceed, or what they break."""
    other = outcome.best
    return {
        "pins": {name: value if isinstance(value, (int, str)) else str(value) for name, value in outcome.pins.items()},
        "fits": other is not None,
        "seconds_more": round(other.step_time.seconds - best.step_time.seconds, 6) if other else None,
        "peak_bytes_more": other.peak_bytes - best.peak_bytes if other else None,
        "plan": plan_answer(other.values) if other else None,
        "over": _over(outcome.miss) if outcome.miss else [],
        "conflict": list(outcome.conflict),
        "sentence": outcome_sentence(best, outcome),
    }


def _over(miss: Evaluation) -> list[Answer]:
    """The limits that a plan exceeds."""
    return [
        {"constraint": item.constraint, "device": item.device, "bytes": item.bytes, "phase": item.phase}
        for item in excesses(miss)
    ]


def _seconds(found: Evaluation | None) -> float | None:
    return found.step_time.seconds if found is not None else None


def _limit(best: Evaluation, reason: LimitReason) -> Answer:
    """One limit with what more of it would buy."""
    return {
        "constraint": reason.constraint,
        "device": reason.device,
        "capacity_bytes": reason.capacity,
        "free_bytes": reason.free,
        "binds": reason.unlimited is not None,
        "seconds_without": _seconds(reason.unlimited),
        "next_bytes": reason.next_bytes if reason.next is not None else None,
        "seconds_with_next_bytes": _seconds(reason.next),
        "seconds_with_one_gib": _seconds(reason.one_more),
        "sentence": limit_sentence(best, reason),
    }


def _purchase(best: Evaluation, item: Purchase) -> Answer:
    """More machines or bandwidth."""
    sentence = purchase_sentence(best, item)
    return {"what": item.what, "gpus": item.job.cluster.gpus, "seconds": _seconds(item.best), "sentence": sentence}


def _traffic(sent: Traffic) -> Answer:
    """One collective."""
    return {
        "name": sent.name,
        "operation": sent.operation,
        "bytes": sent.bytes,
        "rounds": sent.rounds,
        "seconds": sent.seconds,
        "link": sent.link,
        "bandwidth_bytes_per_second": sent.bandwidth,
        "where": sent.where,
        "sentence": traffic_sentence(sent),
    }


def _repair(repair: Repair) -> Answer:
    """One repair with the whole plan it leads to."""
    return {
        "kind": repair.kind,
        "change": repair.change,
        "gpu_hours_per_billion_tokens": repair.cost,
        "answer": evaluation_answer(repair.best, "optimal"),
        "sentence": repair_sentence(repair),
    }
