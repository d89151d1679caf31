"""Solves a job: the best plans with their proof, or the minimal conflict with the nearest miss.

Ties are broken in a fixed order (objective, then GPU memory or step time, then the order of the catalog), so the same
input gives the same plan whatever the number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Literal

from planner.candidates import Wanted, leanest_points, promising_points
from planner.clock import Clock
from planner.compile import Answer, Question, ask
from planner.conflict import no_plan
from planner.errors import InternalError, Stopped
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.objective import GRAIN, Coordinate, coordinates, slackened
from planner.plan import Plan, Value
from planner.points import Points
from planner.specification import Specification, specify
from planner.terms import ceil_divide
from planner.units import format_bytes, format_seconds


@dataclass(frozen=True)
class Proof:
    """What is proven: `bound` is the least value of the objective that a plan can have, in `unit` (seconds, bytes).

    `gap` is the share of the plan's value that a better plan may be below it, 0 where none can; `stopped` says what
    ended a search without a full proof. `then` is the same about a second objective.
    """

    optimal: bool
    bound: float
    configurations: int
    solver_seconds: float
    unit: str = "seconds"
    gap: float = 0.0
    stopped: str = ""
    then: Proof | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """The best plan of a job, evaluated; `plans` are the best ones in order, `best` the first.

    Each differs from all before it in a choice that is neither fine nor how much is recomputed; `runner_up` is the
    second. `ordered`: it is proven that none is missing between them.
    """

    best: Evaluation
    proof: Proof
    runner_up: Evaluation | None
    plans: tuple[Evaluation, ...] = ()
    ordered: bool = True


def solve(job: Job, top: int = 1, workers: int = 1, clock: Clock | None = None) -> Solution:
    """The `top` best plans and the runner-up.

    Raises NoPlan with a proof, Stopped where time ran out before any plan was found, InternalError on a bug of ours.
    """
    specification = specify(job)
    search = _Search(specification, clock or Clock(job.time_limit), workers)
    found = search.best()
    if found.status == "infeasible":
        raise no_plan(specification, search.ask)
    best, proof = _evaluated(search, found), search.proof(found)
    others, ordered = search.others(found, max(2, top) - 1)
    plans = (best, *others)
    return Solution(best, proof, plans[1] if others else None, plans[:top], ordered)


def best_plan(job: Job, clock: Clock | None = None) -> Evaluation | None:
    """The best plan alone, None with a proof that nothing fits; neither runner-up nor conflict is looked for."""
    search = _Search(specify(job), clock or Clock(job.time_limit))
    found = search.best()
    return None if found.status == "infeasible" else _evaluated(search, found)


def objective_value(evaluation: Evaluation) -> int:
    """What the job's objective minimises: microseconds, or whole grains of one GPU's memory."""
    return _value(evaluation, coordinates(evaluation.job)[0])


def _value(evaluation: Evaluation, coordinate: Coordinate) -> int:
    """Microseconds of a step, or whole grains of one GPU's memory."""
    if coordinate == "memory":
        return ceil_divide(evaluation.peak_bytes, GRAIN)
    return evaluation.step_time.microseconds


@dataclass(frozen=True)
class _Found:
    """What one search found.

    `first` is the answer about the objective, `then` that about the second one among plans of at most `held` (grains)
    in the first, where the job names a second one. `unequalled`: ties are broken down to the catalog's order.
    """

    status: Literal["optimal", "feasible", "infeasible", "stopped"]
    plan: Plan | None
    first: Answer
    then: Answer | None = None
    held: int | None = None
    unequalled: bool = False


def _evaluated(search: _Search, found: _Found) -> Evaluation:
    """The plan with its figures, which are the solver's. Raises Stopped where there is no plan."""
    job = search.specification.job
    if found.plan is None:
        what = "" if search.unread is None else " while combinations of choices were still being read"
        bound = search.proof(found).bound
        least = format_bytes(bound) if search.first == "memory" else format_seconds(bound)
        raise Stopped(f"{search.clock.reason}{what}; no plan is below {least}", bound)
    best = evaluate(job, found.plan)
    if best.violations:
        broken = ", ".join(violation.constraint for violation in best.violations)
        raise InternalError(f"the solver's plan breaks {broken}: {found.plan}")
    if found.status == "optimal":
        _agree(best, found)
    return best


def _agree(evaluation: Evaluation, found: _Found) -> None:
    """Both readings of the terms give the same objectives, or it is a bug of ours."""
    first, second = coordinates(evaluation.job)
    told, then = found.first.value, found.then.value if found.then is not None else None
    value, beside = _value(evaluation, first), _value(evaluation, second)
    exact = found.held is None or found.held == told
    if (exact and value != told) or (found.held is not None and value > found.held):
        raise InternalError(f"the solver's objective {told} differs from the evaluated {value}: {found.plan}")
    if then is not None and beside != then:
        raise InternalError(f"the solver's {second} {then} differs from the evaluated {beside}: {found.plan}")


class _Search:
    """The questions asked about one specification, with the time they may still take."""

    def __init__(self, specification: Specification, clock: Clock, workers: int = 1) -> None:
        self.specification, self.clock, self.workers = specification, clock, workers
        self.first, self.second = coordinates(specification.job)
        self.seconds = 0.0
        self.unread: int | None = None
        self.inner: tuple[str, ...] = ()

    def ask(self, points: Points, question: Question) -> Answer:
        """One answer; its time is counted."""
        limits = {"time_limit": self.clock.remaining, "stop": self.clock.over, "workers": self.workers}
        answer = ask(points, replace(question, **limits))  # type: ignore[arg-type]
        self.seconds += answer.seconds
        return answer

    def candidates(self, wanted: Wanted = lambda _: True) -> Points:
        """The points among which the best plan is; where nothing holds there are none, which is about all of them."""
        found = promising_points if self.first == "time" else leanest_points
        points = found(self.specification, wanted, self.specification.job.within, self.clock)
        self.unread, self.inner = points.unread, tuple(choice.name for choice in points.inner)
        return points

    def best(self, wanted: Wanted = lambda _: True) -> _Found:
        """The best plan in the fixed order: objective, then the other of time and memory, then the catalog's order.

        With a tolerance the objective's value is only held to within it. Where time runs out on the way, the best plan
        so far.
        """
        points, job = self.candidates(wanted), self.specification.job
        answer = self.ask(points, Question(self.first, self.specification.capacities, 0.0))
        if points.unread is not None:
            answer = _unfinished(answer, points.unread)
        if answer.status != "optimal" or answer.value is None:
            return _Found(answer.status, answer.plan, answer)
        held = slackened(answer.value, job.within)
        order = (self.second, self.first, "rank") if job.within else (self.second, "rank")
        return self._refined(points, answer, held, order)

    def _refined(self, points: Points, answer: Answer, held: int, order: Sequence[str]) -> _Found:
        """The best plan in further coordinates among those of at most `held` in the first; infeasible where none is."""
        question = self._holding(Question(self.first, self.specification.capacities, 0.0), self.first, held)
        plan, then, status = answer.plan, None, answer.status
        for objective in order:
            refined = self.ask(points, replace(question, objective=objective))  # type: ignore[arg-type]
            then = refined if then is None else then
            if refined.status == "infeasible":
                if plan is None:
                    return _Found("infeasible", None, refined)
                raise InternalError(f"a proven {self.first} cannot be held: {held}")
            if refined.status != "optimal" or refined.value is None:
                if then is refined and self.specification.job.then:
                    plan = refined.plan or plan
                    status = "feasible" if plan is not None else "stopped"
                return _Found(status, plan, answer, then if self.specification.job.then else None, held)
            plan = refined.plan
            if objective != "rank":
                question = self._holding(question, objective, refined.value)
        return _Found(status, plan, answer, then if self.specification.job.then else None, held, unequalled=True)

    def _holding(self, question: Question, coordinate: str, value: int) -> Question:
        """The question with a coordinate held to a value in the objective's grains."""
        most = value * GRAIN if coordinate == "memory" else value
        return replace(question, **{f"{coordinate}_at_most": most})  # type: ignore[arg-type]

    def proof(self, found: _Found) -> Proof:
        """What the answer proves about the whole space."""
        optimal = found.status == "optimal"
        then = self._proof(found.then, self.second) if found.then is not None else None
        stopped = "" if optimal else self.clock.reason
        return replace(self._proof(found.first, self.first), optimal=optimal, stopped=stopped, then=then)

    def _proof(self, answer: Answer, coordinate: Coordinate) -> Proof:
        """What an answer proves about one coordinate. Grains of memory are rounded up, so that one is left out."""
        memory, found = coordinate == "memory", answer.bound or 0
        bound = max(0, found - 1) * GRAIN if memory else found / 1e6
        optimal = answer.status == "optimal"
        gap = 0.0 if optimal or not answer.value else max(0.0, 1 - found / answer.value)
        size, unit = self.specification.space.size, "bytes" if memory else "seconds"
        return Proof(optimal, bound, size, self.seconds, unit, gap)

    def others(self, found: _Found, count: int) -> tuple[tuple[Evaluation, ...], bool]:
        """The next best plans, each with a choice unlike all before, and whether it is proven that none is missing.

        Choices that are fine, and how much is recomputed, do not tell plans apart.
        """
        choices = self.specification.job.techniques.choices
        telling = [name for name, entry in choices.items() if not entry.fine and name not in self.inner]
        taken: list[Mapping[str, Value]] = [found.plan] if found.plan is not None else []
        ordered = found.status == "optimal" and found.unequalled

        def differs(values: Mapping[str, Value]) -> bool:
            return all(any(values[name] != plan[name] for name in telling) for plan in taken)

        for _ in range(count):
            if self.clock.interrupted:
                ordered = False
                break
            other = self._next(differs, found)
            ordered = ordered and (other.status == "infeasible" or (other.status == "optimal" and other.unequalled))
            if other.plan is None:
                break
            taken.append(other.plan)
        return tuple(evaluate(self.specification.job, plan) for plan in taken[1:] if isinstance(plan, Plan)), ordered

    def _next(self, wanted: Wanted, best: _Found) -> _Found:
        """The next best plan that is wanted: one within the tolerance of the best one, else by the objective alone."""
        job = self.specification.job
        if not job.within or best.held is None:
            return self.best(wanted)
        points, nothing = self.candidates(wanted), Answer("optimal", None, None, None, 0.0)
        inside = self._refined(points, nothing, best.held, (self.second, self.first, "rank"))
        if inside.status != "infeasible" or points.unread is not None:
            return inside
        return self.exact.best(wanted)

    @cached_property
    def exact(self) -> _Search:
        """The same search without a tolerance."""
        job = replace(self.specification.job, within=Fraction(0))
        return _Search(replace(self.specification, job=job), self.clock, self.workers)


def _unfinished(answer: Answer, unread: int) -> Answer:
    """An answer about points that are not all: a plan stands, and no proof goes below what the others may reach."""
    status: Literal["feasible", "stopped"] = "feasible" if answer.plan is not None else "stopped"
    bound = unread if answer.bound is None else min(unread, answer.bound)
    return replace(answer, status=status, bound=bound)
