"""The best plan over several clusters and settings: those whose bound can change nothing need not be solved."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.choosing.bound import least_microseconds
from planner.choosing.choice import Candidate, Choice
from planner.choosing.conflict import limits_in_conflict
from planner.choosing.preference import Ranked, Value, may_be_taken, preferred, value_of
from planner.clock import Clock
from planner.errors import InternalError, NoPlan, Stopped
from planner.evaluate import Evaluation
from planner.job import Job
from planner.search import Proof, Solution, best_plan, solve
from planner.space import job_space

Progress = Callable[[int, int], None]
Status = Literal["fits", "no_plan", "not_better", "left_out", "not_reached"]
PROOF_SECONDS = 10.0  # the longest search for the chosen cluster's proof, after all clusters were compared


@dataclass(frozen=True, eq=False)
class Outcome:
    """What became of one cluster.

    `fits`: `best` is its best plan, proven unless `proven` says no. `no_plan`: proven, `conflict` names the limits that
    cannot hold together. `not_better`: no plan on it can be better than the chosen one, by `bound`. `left_out`: it
    cannot be planned. `not_reached`: the search ended before. `bound` in microseconds of a step.
    """

    candidate: Candidate
    status: Status
    best: Evaluation | None = None
    proven: bool = False
    bound: int = 0
    conflict: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Chosen:
    """Every cluster with what became of it, in the order of the choice, and the plan of the best one with its proof.

    `best` and `solution` are None where no cluster holds a plan; `stopped` says what ended the search early.
    """

    choice: Choice
    outcomes: tuple[Outcome, ...]
    best: Outcome | None
    solution: Solution | None
    stopped: str = ""

    @property
    def proven(self) -> bool:
        """Whether no plan on any cluster is better."""
        return self.best is not None and self.best.proven and not any(map(self._may_be_taken, self.outcomes))

    def _may_be_taken(self, outcome: Outcome) -> bool:
        """Whether a plan that would be taken instead is not ruled out."""
        open_yet = outcome.status == "not_reached" or (outcome.status == "fits" and not outcome.proven)
        return open_yet and outcome is not self.best and matters(self.choice, self.outcomes, self.best, outcome)

    @property
    def largest(self) -> Candidate:
        """The candidate with the most memory, of equals the first."""
        found = [outcome.candidate for outcome in self.outcomes if outcome.candidate.job is not None]
        return max(found, key=_memory)

    @property
    def failure(self) -> NoPlan | Stopped | None:
        """What to raise where no cluster holds a plan."""
        if self.best is not None:
            return None
        open_yet = [outcome for outcome in self.outcomes if outcome.status == "not_reached"]
        if open_yet:
            reason = self.stopped or "no plan was found in time"
            return Stopped(f"{reason}; {len(open_yet)} of {len(self.outcomes)} {self.choice.what}s were not solved")
        where = f"{self.choice.where} any of the {len(self.outcomes)} {self.choice.what}s"
        return NoCluster(*self._nearest(), where=where)

    def _nearest(self) -> tuple[tuple[str, ...], Evaluation | None]:
        """Conflict and nearest miss on the cluster with the most memory."""
        largest = self.largest.job
        assert largest is not None  # those without a job are not asked
        try:
            solve(replace(largest, time_limit=PROOF_SECONDS))
        except NoPlan as failure:
            return failure.conflict, failure.nearest_miss
        raise InternalError("a plan exists on a cluster where none was found")


@dataclass
class NoCluster(NoPlan):
    """Proof that no plan exists for any candidate; conflict and nearest miss are of the one with most memory."""

    conflict: tuple[str, ...]
    nearest_miss: Evaluation | None = None
    reasons: tuple[str, ...] = ()
    details: dict[str, object] = field(default_factory=dict)
    where: str = ""

    def __str__(self) -> str:
        return f"no plan {self.where}: " + ", ".join(self.conflict)


def _memory(candidate: Candidate) -> int:
    """Bytes of all GPUs together."""
    assert candidate.job is not None  # those without a job are not asked
    return candidate.job.cluster.gpus * candidate.job.cluster.gpu.usable_memory


def choose(choice: Choice, clock: Clock | None = None, progress: Progress | None = None) -> Chosen:
    """Solves candidates in the order of what they can reach at best until no other can be taken in place of the best.

    An interrupt or the end of the time keeps what was found until then.
    """
    clock = clock or Clock(choice.time_limit)
    search = _Search(choice, clock, progress)
    search.run()
    best = search.best
    outcomes = tuple(search.outcomes[candidate.name] for candidate in choice.candidates)
    solution = _solution(best, clock) if best is not None and best.best is not None else None
    return Chosen(choice, outcomes, best, solution, search.stopped)


def outcome_value(choice: Choice, outcome: Outcome) -> Value:
    """The value of a cluster's best plan."""
    assert outcome.best is not None  # asked of those that fit
    return value_of(choice, outcome.candidate, outcome.best.step_time.microseconds)


def matters(choice: Choice, outcomes: Iterable[Outcome], best: Outcome | None, outcome: Outcome) -> bool:
    """Whether the plan of a candidate, of which the bound alone counts here, can change which one is taken."""
    if best is None:
        return True
    others = [other for other in outcomes if other.best is not None and other not in (best, outcome)]
    plans = [(other.candidate, outcome_value(choice, other)) for other in (best, *others)]
    return may_be_taken(choice, best.candidate, plans, outcome.candidate, outcome.bound)


class _Search:
    """One pass over the candidates, from the most promising one on."""

    def __init__(self, choice: Choice, clock: Clock, progress: Progress | None) -> None:
        self.choice, self.clock, self.progress = choice, clock, progress
        self.outcomes: dict[str, Outcome] = {}
        self.solved: dict[str, Outcome] = {}
        self.best: Outcome | None = None
        self.stopped = ""

    def run(self) -> None:
        """Fills `outcomes` for every candidate, and `best`."""
        for candidate in self.choice.candidates:
            status: Status = "left_out" if candidate.job is None else "not_reached"
            self.outcomes[candidate.name] = Outcome(candidate, status)
        ordered = list(self._ordered())
        while not self.clock.over() and (waiting := self._waiting(ordered)):
            self._solve(waiting[0])
            if self.progress is not None:
                self.progress(len(self.choice.candidates) - len(waiting) + 1, len(self.choice.candidates))
        if self.clock.over():
            self.stopped = self.clock.reason
        self._close()

    def _waiting(self, ordered: list[Candidate]) -> list[Candidate]:
        """The candidates that were not solved and may still change what is taken."""
        open_yet = (candidate for candidate in ordered if candidate.name not in self.solved)
        return [candidate for candidate in open_yet if self._matters(self.outcomes[candidate.name])]

    def _matters(self, outcome: Outcome) -> bool:
        """Whether the candidate's plan can change what is taken."""
        return matters(self.choice, self.solved.values(), self.best, outcome)

    def _ordered(self) -> Iterator[Candidate]:
        """Candidates in the order of the best value that they can reach, their bounds noted."""
        found = [candidate for candidate in self.choice.candidates if candidate.job is not None]
        if self.choice.objective == "smallest":  # the order of clusters is known without their times
            bounds = [0] * len(found)
        else:
            bounds = [0 if self.clock.over() else self._bound(candidate) for candidate in found]
        values = [value_of(self.choice, *pair) for pair in zip(found, bounds, strict=True)]
        for place in sorted(range(len(found)), key=lambda index: (values[index], index)):
            yield found[place]

    def _bound(self, candidate: Candidate) -> int:
        """The least microseconds of a cluster, kept where the search ends before the cluster is solved."""
        assert candidate.job is not None  # the others have no order
        bound = least_microseconds(candidate.job)
        self.outcomes[candidate.name] = Outcome(candidate, "not_reached", bound=bound)
        return bound

    def _solve(self, candidate: Candidate) -> None:
        """Notes what becomes of one candidate, whose plan may be the one that is taken."""
        assert candidate.job is not None  # the others have no order
        name = candidate.name
        self.outcomes[name] = self.solved[name] = _solved(
            candidate, candidate.job, self.outcomes[name].bound, self.clock
        )
        plans: dict[Candidate, Outcome] = {o.candidate: o for o in self.solved.values() if o.best is not None}
        if plans:
            ranked: list[Ranked] = [(one, outcome_value(self.choice, outcome)) for one, outcome in plans.items()]
            self.best = plans[preferred(self.choice, ranked)]

    def _close(self) -> None:
        """Candidates that cannot be taken are told from those not reached."""
        for name, outcome in self.outcomes.items():
            if self.best is not None and outcome.status == "not_reached" and not self._matters(outcome):
                self.outcomes[name] = replace(outcome, status="not_better")


def _solved(candidate: Candidate, job: Job, bound: int, clock: Clock) -> Outcome:
    """The best plan of a cluster within the time left, or the proof that it has none."""
    try:
        found = best_plan(job, clock)
    except Stopped:
        return Outcome(candidate, "not_reached", bound=bound)
    if found is None:
        return Outcome(candidate, "no_plan", proven=True, conflict=limits_in_conflict(job))
    return Outcome(candidate, "fits", found, not clock.over(), bound)


def _solution(best: Outcome, clock: Clock) -> Solution:
    """The chosen cluster's answer as its own job would get it; after an interrupt what is known without more search."""
    assert best.best is not None and best.candidate.job is not None  # it fits
    if best.proven and not clock.interrupted:
        found = solve(replace(best.candidate.job, time_limit=PROOF_SECONDS))
        if found.best.step_time.microseconds <= best.best.step_time.microseconds:
            return found
    time = best.best.step_time.microseconds
    bound = time if best.proven else best.bound
    proof = Proof(
        best.proven, bound / 1e6, job_space(best.best.job).size, 0.0, gap=1 - bound / time,
        stopped="" if best.proven else clock.reason,
    )  # fmt: skip
    return Solution(best.best, proof, None, (best.best,), False)
