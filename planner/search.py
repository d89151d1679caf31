"""Solves a job: the best plan with its proof, the runner-up, or the minimal conflict with the nearest miss.

Ties are broken in a fixed order (objective, then GPU memory or step time, then the order of the catalog), so the same
input gives the same plan whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic

from planner.compile import GRAIN, Answer, Question, ask
from planner.compile import feasible as search_feasible
from planner.errors import InternalError, NoPlan, Stopped
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.plan import Plan, Value
from planner.points import Points, Wanted, enumerate_points, promising_points, some_row_holds
from planner.quantities import ceil_divide
from planner.specification import Specification, specify
from planner.terms import Limit


@dataclass(frozen=True)
class Proof:
    """What is proven: `bound` is the least value of the objective that a plan can have, in `unit` (seconds, bytes)."""

    optimal: bool
    bound: float
    configurations: int
    solver_seconds: float
    unit: str = "seconds"


@dataclass(frozen=True, eq=False)
class Solution:
    """The best plan of a job, evaluated; `runner_up` is the best that differs in more than how much it recomputes."""

    best: Evaluation
    proof: Proof
    runner_up: Evaluation | None


def solve(job: Job) -> Solution:
    """The best plan. Raises NoPlan with a proof, Stopped where time ran out first, InternalError on a bug of ours."""
    specification = specify(job)
    points = _candidates(specification)
    search = _Search(specification, points, monotonic() + job.time_limit)
    answer = search.best(points)
    if answer.status == "infeasible":
        raise no_plan(specification, search)
    return Solution(_evaluated(job, answer), search.proof(answer), search.runner_up(answer))


def best_plan(job: Job) -> Evaluation | None:
    """The best plan alone, None with a proof that nothing fits; neither runner-up nor conflict is looked for."""
    specification = specify(job)
    points = _candidates(specification)
    answer = _Search(specification, points, monotonic() + job.time_limit).best(points)
    return None if answer.status == "infeasible" else _evaluated(job, answer)


def _candidates(specification: Specification, wanted: Wanted = lambda _: True) -> Points:
    """The points among which the best plan is: for the fastest only those that can be as fast as some plan that holds.

    Where nothing holds these are all points, and the proof that no plan exists is about the whole space.
    """
    if specification.job.objective != "memory":
        return promising_points(specification, wanted)
    points = enumerate_points(specification)
    return replace(points, points=tuple(point for point in points.points if wanted(point.values)))


def _evaluated(job: Job, answer: Answer) -> Evaluation:
    """The answer's plan with its figures, which are the solver's. Raises Stopped where there is no plan."""
    if answer.plan is None:
        raise Stopped(f"the time limit of {job.time_limit:g} s")
    best = evaluate(job, answer.plan)
    if answer.status == "optimal":
        _agree(best, answer)
    return best


def objective_value(evaluation: Evaluation) -> int:
    """What the job's objective minimises: microseconds, or whole grains of one GPU's memory."""
    if evaluation.job.objective == "memory":
        return ceil_divide(evaluation.peak_bytes, GRAIN)
    return evaluation.step_time.microseconds


def _agree(evaluation: Evaluation, answer: Answer) -> None:
    """Both readings of the terms give the same objective, or it is a bug of ours."""
    value = objective_value(evaluation)
    if value != answer.value:
        raise InternalError(f"the solver's objective {answer.value} differs from the evaluated {value}: {answer.plan}")
    if evaluation.violations:
        broken = ", ".join(violation.constraint for violation in evaluation.violations)
        raise InternalError(f"the solver's plan breaks {broken}: {answer.plan}")


class _Search:
    """The questions asked about one specification, with the time they may still take."""

    def __init__(self, specification: Specification, points: Points, deadline: float) -> None:
        self.specification, self.points, self.deadline = specification, points, deadline
        self.capacities = {device: limit.capacity for device, limit in specification.limits.items()}
        self.seconds = 0.0

    def ask(self, points: Points, question: Question) -> Answer:
        """One answer; its time is counted."""
        remaining = max(0.05, self.deadline - monotonic())
        answer = ask(points, replace(question, time_limit=remaining))
        self.seconds += answer.seconds
        return answer

    def best(self, points: Points) -> Answer:
        """The best plan in the fixed order: objective, then the other of time and memory, then the catalog's order.

        `value` and `bound` are the objective's. Where time runs out on the way, the best plan so far.
        """
        first, second = ("memory", "time") if self.specification.job.objective == "memory" else ("time", "memory")
        question = Question(first, self.capacities, 0.0)  # type: ignore[arg-type]
        answer = self.ask(points, question)
        if answer.status != "optimal" or answer.value is None:
            return answer
        best = answer
        for held, objective in ((first, second), (second, "rank")):
            value = best.value * (GRAIN if held == "memory" else 1)  # type: ignore[operator]  # an optimum has a value
            question = replace(question, objective=objective, **{f"{held}_at_most": value})  # type: ignore[arg-type]
            refined = self.ask(points, question)
            if refined.status == "infeasible":
                raise InternalError(f"a proven {held} cannot be held: {best.value}")
            if refined.status != "optimal":
                break
            best = refined
        return replace(answer, plan=best.plan)

    def proof(self, answer: Answer) -> Proof:
        """What the answer proves about the whole space."""
        memory = self.specification.job.objective == "memory"
        found = answer.bound if answer.bound is not None else 0
        bound = max(0, found - 1) * GRAIN if memory else found / 1e6  # grains are rounded up
        size = self.specification.space.size
        return Proof(answer.status == "optimal", bound, size, self.seconds, "bytes" if memory else "seconds")

    def runner_up(self, answer: Answer) -> Evaluation | None:
        """The best plan that differs from the answer's in a choice that is not fine; None where none fits."""
        assert answer.plan is not None  # asked only after a plan was found
        job = self.specification.job
        inner = {choice.name for choice in self.points.inner}
        telling = [name for name, entry in job.techniques.choices.items() if not entry.fine and name not in inner]
        taken = {name: answer.plan[name] for name in telling}

        def differs(values: Mapping[str, Value]) -> bool:
            return any(values[name] != taken[name] for name in telling)

        other = self.best(_candidates(self.specification, differs))
        return evaluate(job, other.plan) if other.plan is not None else None


def no_plan(specification: Specification, search: _Search) -> NoPlan:
    """The minimal conflict by a deletion filter over the constraints' names, and the nearest miss."""
    conflict = minimal_conflict(specification)
    soft = {limit.device: limit.capacity for limit in _limits(specification) if limit.constraint in conflict}
    given_up = {limit.constraint for limit in _limits(specification) if limit.device in soft} or set(conflict)
    miss = _nearest_miss(specification, search, soft, frozenset(_names(specification)) - given_up)
    reasons = tuple(f"{item.constraint}: {item.because}" for item in miss.violations) if miss else ()
    return NoPlan(conflict, miss, reasons)


def _limits(specification: Specification) -> tuple[Limit, ...]:
    """The limits of the specification."""
    return tuple(specification.limits.values())


def _names(specification: Specification) -> tuple[str, ...]:
    """Constraint names in their order, each once."""
    return tuple(dict.fromkeys(item.constraint for item in specification.requirements))


def minimal_conflict(specification: Specification) -> tuple[str, ...]:
    """Names that cannot hold together, none of which can be left out.

    Runs of constraints are dropped, shorter and shorter down to one, the memory limits last; a run stays out where the
    rest still cannot hold.
    """
    limits = {limit.constraint for limit in _limits(specification)}
    kept = sorted(_names(specification), key=lambda name: name in limits)
    feasible = _feasibility(specification)
    size = len(kept) // 2
    while size:
        first = 0
        while first < len(kept):
            without = kept[:first] + kept[first + size :]
            if feasible(frozenset(without)):
                first += size
            else:
                kept = without
        size //= 2
    return tuple(name for name in _names(specification) if name in kept)


def _feasibility(specification: Specification) -> Callable[[frozenset[str]], bool]:
    """Whether some plan satisfies the named constraints alone."""
    limits = {limit.constraint: limit for limit in _limits(specification)}

    def feasible(active: frozenset[str]) -> bool:
        if some_row_holds(specification, active):
            return True
        capacities = {limit.device: limit.capacity for name, limit in limits.items() if name in active}
        question = Question("rank", capacities, specification.job.time_limit)
        return search_feasible(enumerate_points(specification, active), question)

    return feasible


def _nearest_miss(
    specification: Specification, search: _Search, soft: Mapping[str, int], active: frozenset[str]
) -> Evaluation | None:
    """The plan that exceeds the limits in conflict by the fewest bytes while all else holds; of those the fastest."""
    hard = {limit.device: limit.capacity for limit in _limits(specification) if limit.device not in soft}
    points = enumerate_points(specification, active)
    answer = search.ask(points, Question("overflow", hard, 0.0, soft=soft))
    if answer.plan is None or answer.value is None:
        return None
    relaxed = hard | {device: capacity + answer.value * GRAIN for device, capacity in soft.items()}
    fastest = search.ask(points, Question("time", relaxed, 0.0))
    plan: Plan = fastest.plan or answer.plan
    return evaluate(specification.job, plan)
