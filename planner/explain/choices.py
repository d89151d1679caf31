"""For each choice of a plan: what another value would cost, or what it would exceed, with that value pinned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.choices import Choice
from planner.errors import InternalError
from planner.evaluate import Evaluation, evaluate
from planner.explain.conflicts import conflict
from planner.job import Job
from planner.layouts import DEGREES, degree_name
from planner.plan import Layout, Value, layout_of
from planner.points import enumerate_points
from planner.specification import specify
from planner.sweep import TIME, Allowed, Corner, Progress, Ranking, plan_of

FEW_VALUES = 4  # of a choice that are all asked for; of others the neighbours


@dataclass(frozen=True)
class Excess:
    """One device over its limit: `bytes` over what can be planned with, at the peak's phase."""

    constraint: str
    device: str
    bytes: int
    phase: str


@dataclass(frozen=True, eq=False)
class Outcome:
    """Some choices pinned: the best plan with them, or else the nearest miss, or else the rules in conflict."""

    pins: Mapping[str, Value]
    best: Evaluation | None
    miss: Evaluation | None = None
    conflict: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Reason:
    """Why a choice has its value: the outcomes of other values, the next best first, those that do not fit last."""

    choice: str
    value: Value
    outcomes: tuple[Outcome, ...]


class Asker:
    """Questions about one job, asked of points that are made once and hold plans beyond every device too.

    A question is answered by bounds and rows over all of them, exactly, so that dozens take no longer than one solve.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.specification = specify(job)
        self.capacities = self.specification.capacities
        names = frozenset(item.constraint for item in self.specification.requirements)
        active = names - {limit.constraint for limit in self.specification.every_limit}
        self.points = enumerate_points(self.specification, active)
        first, second = ("gpu", TIME) if job.objective == "memory" else (TIME, "gpu")
        self.ranking = Ranking(self.points, (first, second))

    def best(self, allowed: Allowed | None = None, capacities: Mapping[str, int] | None = None) -> Evaluation | None:
        """The best plan with allowed values; None where nothing fits. `capacities` stand in for the job's own."""
        held = self.capacities if capacities is None else capacities
        return self._evaluated(self.ranking.best(allowed or {}, held))

    def nearest(self, allowed: Allowed) -> Evaluation | None:
        """The best of the plans that exceed the limits by the fewest bytes; None where no rule lets one be.

        Of a deadline bytes say nothing: where only that is missed, the best plan without it.
        """
        devices = {device: capacity for device, capacity in self.capacities.items() if device != TIME}
        return self._evaluated(self.ranking.nearest(allowed, devices))

    def least(self, device: str, capacities: Mapping[str, int]) -> Evaluation | None:
        """The plan that holds the least on a device, of those the fastest, within the capacities and `time`."""
        corner = Ranking(self.points, (device, TIME)).best({}, capacities)
        return None if corner is None else evaluate(self.job, plan_of(self.points, corner))

    def _evaluated(self, corner: Corner | None) -> Evaluation | None:
        """The plan at a corner with its figures, which are the corner's, or it is a bug of ours."""
        if corner is None:
            return None
        found = evaluate(self.job, plan_of(self.points, corner))
        if measured(found) != (corner.first, corner.second):
            raise InternalError(f"{(corner.first, corner.second)} differs from the evaluated {measured(found)}")
        return found

    def outcome(self, pins: Mapping[str, Value], allowed: Mapping[str, Sequence[Value]] | None = None) -> Outcome:
        """What becomes of the job with candidate values pinned; `allowed` where a pin stands for several values."""
        held = allowed or {name: (value,) for name, value in pins.items()}
        best = self.best(held)
        if best is not None:
            return Outcome(pins, best)
        miss = self.nearest(held)
        if miss is not None:
            return Outcome(pins, None, miss)
        pinned = self.job.with_choices({name: tuple(values) for name, values in held.items()})
        return Outcome(pins, None, None, conflict(specify(pinned)))


def why_not(job: Job, pins: Mapping[str, Value]) -> Outcome:
    """What becomes of a job with any values pinned, also with such as are no candidates of its own."""
    return Asker(job.with_choices({name: (value,) for name, value in pins.items()})).outcome(pins)


def reasons(asker: Asker, best: Evaluation, progress: Progress | None = None) -> tuple[Reason, ...]:
    """A reason for every choice that has another value; the layout's for each of its degrees."""
    found: list[Reason] = []
    choices = asker.specification.space.choices
    for number, choice in enumerate(choices):
        if progress is not None:
            progress(number, len(choices))
        if choice.name == "layout":
            found += _degree_reasons(asker, choice, best)
            continue
        value = best.plan[choice.name]
        outcomes = [asker.outcome({choice.name: other}) for other in _others(choice.values, value)]
        found.append(Reason(choice.name, value, tuple(sorted(outcomes, key=cost))))
    return tuple(reason for reason in found if reason.outcomes)


def _degree_reasons(asker: Asker, choice: Choice, best: Evaluation) -> Iterator[Reason]:
    """A reason for every degree of the layout that can be another: its neighbours, whatever the other degrees."""
    taken, layouts = layout_of(best.plan), [value for value in choice.values if isinstance(value, Layout)]
    for degree in DEGREES:
        value, name = getattr(taken, degree), degree_name(degree)
        outcomes = []
        for other in _neighbours(sorted({getattr(layout, degree) for layout in layouts}), value):
            allowed = [layout for layout in layouts if getattr(layout, degree) == other]
            outcomes.append(asker.outcome({name: other}, {"layout": allowed}))
        yield Reason(name, value, tuple(sorted(outcomes, key=cost)))


def _others(values: Sequence[Value], value: Value) -> Sequence[Value]:
    """All other values of a choice that has few, the two neighbours where there are many."""
    if len(values) <= FEW_VALUES:
        return [other for other in values if other != value]
    return _neighbours(values, value)


def _neighbours(values: Sequence[Value], value: Value) -> Sequence[Value]:
    """The values before and after one."""
    place = values.index(value)
    return [values[index] for index in (place - 1, place + 1) if 0 <= index < len(values)]


def cost(outcome: Outcome) -> tuple[int, int, int]:
    """Sorts outcomes: what fits by the objective, then the nearest misses, then what breaks rules."""
    if outcome.best is not None:
        return 0, *measured(outcome.best)
    return (1, sum(excess.bytes for excess in excesses(outcome.miss)), 0) if outcome.miss is not None else (2, 0, 0)


def measured(found: Evaluation) -> tuple[int, int]:
    """The job's objective of a plan, then what is the other of time and memory."""
    both = found.step_time.microseconds, found.peak_bytes
    return (both[1], both[0]) if found.job.objective == "memory" else both


def excesses(found: Evaluation) -> tuple[Excess, ...]:
    """The devices that a plan holds more on than can be planned with, in the order of the limits."""
    limits = specify(found.job).limits.values()
    peaks = {limit.device: found.ledger[limit.device].peak for limit in limits}
    return tuple(
        Excess(limit.constraint, limit.device, peaks[limit.device].total - limit.capacity, peaks[limit.device].phase)
        for limit in limits
        if peaks[limit.device].total > limit.capacity
    )
