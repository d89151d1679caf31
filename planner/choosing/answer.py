"""A choice as an answer: that of the chosen plan, with what became of every cluster and combination of settings."""

from __future__ import annotations

from planner.answer import Answer, conflict_answer, plan_answer, solution_answer
from planner.choosing.choice import Candidate
from planner.choosing.choosing import Chosen, Outcome, outcome_value
from planner.choosing.preference import value_of
from planner.choosing.variant import Allowance
from planner.errors import NoPlan
from planner.evaluate import Evaluation
from planner.objective import cost_per_token
from planner.plan_summary import plan_summary

UNITS = {"step_time": "seconds", "cost": "USD per 10^6 tokens", "smallest": "GPUs"}
PER_TOKEN = "seconds per 10^6 tokens"  # where steps are of different numbers of tokens


def chosen_answer(found: Chosen) -> Answer:
    """The answer of `planner solve` where much is open; where nothing fits the conflict on the largest cluster."""
    clusters = {"choice": _choice(found), "clusters": [outcome_answer(found, outcome) for outcome in found.outcomes]}
    if found.solution is None:
        failure = found.failure
        assert isinstance(failure, NoPlan)  # a search that ended early without a plan has no answer
        return {**conflict_answer(failure), **clusters}
    answer = solution_answer(found.solution)
    answer["status"] = "optimal" if found.proven and found.solution.proof.optimal else "feasible"
    return {**answer, **clusters}


def _choice(found: Chosen) -> Answer:
    """What was chosen, by what, and what is proven about all candidates."""
    best, choice = found.best, found.choice
    answer: Answer = {
        "objective": found.choice.objective,
        "unit": PER_TOKEN if choice.batches_differ and choice.objective == "step_time" else UNITS[choice.objective],
        "cluster": None if best is None else best.candidate.name if not choice.allows else _cluster(best.candidate),
        "settings": None if best is None else dict(best.candidate.settings),
        "value": None if best is None or best.best is None else value(found, best.candidate, best.best),
        "optimal": found.proven,
    }
    if choice.allows:
        answer["candidate"] = None if best is None else best.candidate.name
        answer["training"] = None if best is None else dict(best.candidate.variant.training)
        answer["choices"] = None if best is None else dict(best.candidate.variant.choices)
        answer["allowed"] = {
            "used": [_allowance(one) for one in used(found)],
            "not_needed": [_allowance(one) for one in not_needed(found)],
        }
    if found.stopped:
        answer["stopped"] = found.stopped
    return answer


def _cluster(candidate: Candidate) -> str | None:
    """The name of a candidate's cluster alone."""
    if candidate.job is None:
        return None
    return f"{candidate.job.cluster.nodes} × {candidate.job.cluster.node.key}"


def _allowance(allowance: Allowance) -> Answer:
    """One allowance: the setting of `training`, its value, the job's own in words, and what it changes."""
    return {
        "setting": allowance.setting, "value": allowance.value, "name": allowance.label,
        "in_place_of": allowance.own, "changes": allowance.changes,
    }  # fmt: skip


def used(found: Chosen) -> tuple[Allowance, ...]:
    """What the chosen plan takes in place of the job's own values."""
    return () if found.best is None else found.best.candidate.variant.allowances


def not_needed(found: Chosen) -> tuple[Allowance, ...]:
    """What is allowed, and the chosen plan does not take."""
    taken = {(allowance.setting, allowance.label) for allowance in used(found)}
    return tuple(one for one in found.choice.offered if (one.setting, one.label) not in taken)


def value(found: Chosen, candidate: Candidate, best: Evaluation) -> float | None:
    """A plan's value of the objective in its unit."""
    seconds = best.step_time.seconds
    time = seconds_per_million(candidate, seconds) if found.choice.batches_differ else seconds
    by_objective = {"step_time": time, "cost": cost(candidate, seconds)}
    return by_objective.get(found.choice.objective, best.job.cluster.gpus)


def cost(candidate: Candidate, seconds: float) -> float | None:
    """US dollars for 10^6 tokens at a step time; None without a price."""
    if candidate.job is None or candidate.price_per_hour is None:
        return None
    return candidate.price_per_hour / 3600 * seconds_per_million(candidate, seconds)


def seconds_per_million(candidate: Candidate, seconds: float) -> float:
    """Seconds for 10^6 tokens at a step time."""
    assert candidate.job is not None  # those without a job take no steps
    training = candidate.job.training
    return seconds / (training.global_batch * training.sequence_length) * 1e6


def outcome_answer(found: Chosen, outcome: Outcome) -> Answer:
    """One cluster: what it is, and its plan's figures or why there is none."""
    candidate, best = outcome.candidate, outcome.best
    answer: Answer = {"name": candidate.name, "status": outcome.status, "settings": dict(candidate.settings)}
    if candidate.job is not None:
        cluster = candidate.job.cluster
        answer |= {
            "gpu": cluster.gpu.key, "gpus": cluster.gpus, "nodes": cluster.nodes,
            "price_per_hour": candidate.price_per_hour, "price_of": candidate.price_source,
        }  # fmt: skip
    if found.choice.allows:
        numerics, _ = candidate.changes
        answer |= {"training": dict(candidate.variant.training), "choices": dict(candidate.variant.choices)}
        answer["changes_of_numerics"] = numerics
    if best is not None:
        answer |= {"chosen": outcome is found.best, "proven": outcome.proven, **_figures(candidate, best)}
    if outcome.status in ("not_better", "not_reached") and outcome.bound:
        seconds = outcome.bound / 1e6
        answer |= {"bound_seconds": seconds, "bound_usd_per_million_tokens": cost(candidate, seconds)}
    if outcome.status == "no_plan":
        answer["conflict"] = list(outcome.conflict)
    reason = because(found, outcome)
    return {**answer, "because": reason} if reason else answer


def _figures(candidate: Candidate, best: Evaluation) -> Answer:
    """The figures of a cluster's best plan."""
    return {
        "plan": plan_answer(best.values),
        "summary": plan_summary(best),
        "step_seconds": best.step_time.seconds,
        "tokens_per_second_per_gpu": round(best.tokens_per_second_per_gpu, 3),
        "peak_bytes": best.peak_bytes,
        "usd_per_million_tokens": None if candidate.price_per_hour is None else cost_per_token(best),
    }


def because(found: Chosen, outcome: Outcome) -> str:
    """Why a cluster has no plan in the answer; empty where it has one."""
    if outcome.status == "left_out":
        return outcome.candidate.reason
    if outcome.status == "no_plan":
        several = len(outcome.conflict) > 1
        return (
            "cannot hold together: " + ", ".join(outcome.conflict) if several else f"{outcome.conflict[0]} cannot hold"
        )
    if outcome.status == "not_reached":
        return "the search ended before"
    return _not_better(found, outcome) if outcome.status == "not_better" else ""


def _not_better(found: Chosen, outcome: Outcome) -> str:
    """What its bound says, in the objective's words."""
    assert found.best is not None  # there is something better
    candidate, best, choice = outcome.candidate, found.best.candidate, found.choice
    least = value_of(choice, candidate, outcome.bound)
    changes = ", and changes more" if least < outcome_value(choice, found.best) else ""
    if choice.objective == "smallest":
        more = "has more GPUs" if candidate.gpus > best.gpus else "costs more"
        return "changes more" if changes else more
    if choice.objective == "cost":
        return f"costs at least {cost(candidate, outcome.bound / 1e6):.4f} USD per 10^6 tokens{changes}"
    if choice.batches_differ:
        return f"takes at least {seconds_per_million(candidate, outcome.bound / 1e6):.3f} s per 10^6 tokens{changes}"
    return f"takes at least {outcome.bound / 1e6:.3f} s{changes}"
