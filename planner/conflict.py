"""Why no plan exists: a minimal set of constraints that cannot hold together, and the plan that misses by the least."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from planner.candidates import promising_points
from planner.clock import Clock
from planner.compile import Answer, Question
from planner.compile import feasible as search_feasible
from planner.errors import NoPlan
from planner.evaluate import Evaluation, evaluate
from planner.objective import GRAIN
from planner.openings import nearest_points, opening
from planner.points import Points
from planner.specification import Specification, specify
from planner.terms import TIME, Limit

Ask = Callable[[Points, Question], Answer]
EXPLAINING = 30.0  # seconds for the conflict, and as many for the nearest miss
SHARES = 4  # parts of the time that is left, of which one question gets one


def no_plan(specification: Specification, ask: Ask, seconds: float = EXPLAINING) -> NoPlan:
    """The minimal conflict by a deletion filter over the constraints' names, and the nearest miss.

    Each of the two takes `seconds` at most, beyond which the conflict may be larger than it has to be, and the miss is
    the nearest of what was looked at; of a job with a shorter time limit as much as that.
    """
    seconds = min(seconds, specification.job.time_limit)
    conflict, minimal = minimal_conflict(specification, Clock(seconds))
    attempts = _attempts(specification, conflict)
    tried = (_missed(specification, ask, *attempt, Clock(seconds)) for attempt in attempts)
    miss = next((found for found in tried if found is not None), None)
    reasons = tuple(f"{item.constraint}: {item.because}" for item in miss.violations) if miss else ()
    return NoPlan(conflict, miss, reasons, minimal=minimal)


def _names(specification: Specification) -> tuple[str, ...]:
    """Constraint names in their order, each once."""
    return tuple(dict.fromkeys(item.constraint for item in specification.requirements))


def minimal_conflict(specification: Specification, clock: Clock | None = None) -> tuple[tuple[str, ...], bool]:
    """Names that cannot hold together, and whether it is known that none of them can be left out.

    Runs of constraints are dropped, shorter and shorter down to one, the limits last and of those the user's first; a
    run stays out where the rest still cannot hold. What the clock leaves open stays in.
    """
    limits = {limit.constraint for limit in specification.every_limit}
    kept = sorted(_names(specification), key=lambda name: name in limits)
    undecided: list[frozenset[str]] = []
    feasible = feasibility(specification, clock, undecided)
    late = _late(specification)
    if late and feasible(frozenset(kept) - late) and not feasible(late):
        return tuple(late), not undecided  # mostly so, and found without dropping all else step by step
    size = len(kept) // 2
    while size:
        first = 0
        undecided.clear()  # in the end every name that is left is asked for alone
        while first < len(kept):
            without = kept[:first] + kept[first + size :]
            if feasible(frozenset(without)):
                first += size
            else:
                kept = without
        size //= 2
    return tuple(name for name in _names(specification) if name in kept), not undecided


def feasibility(
    specification: Specification, clock: Clock | None, undecided: list[frozenset[str]]
) -> Callable[[frozenset[str]], bool]:
    """Whether some plan may satisfy the named constraints alone; yes where the clock leaves it open, see `undecided`.

    Each question takes a share of what is left of the time, so that one that takes long leaves some to the others.
    """

    def feasible(active: frozenset[str]) -> bool:
        if clock is not None and clock.over():
            undecided.append(active)
            return True
        part = None if clock is None else Clock(clock.remaining / SHARES)
        found = opening(specification, active, part)
        if found.points is None:
            undecided.extend([active] if not found.whole else [])
            return found.holds or not found.whole
        limit = specification.job.time_limit if clock is None else clock.remaining
        return search_feasible(found.points, Question("rank", specification.capacities_of(active), limit))

    return feasible


def _attempts(
    specification: Specification, conflict: Sequence[str]
) -> Iterator[tuple[frozenset[str], tuple[Limit, ...]]]:
    """What may be given up to come near: names of constraints, and the limits among them that bytes are counted over.

    A deadline goes first, for a late plan runs; then the memory limits in conflict, or all of the conflict; then a
    deadline too that is no part of it.
    """
    broken = [limit for limit in specification.every_limit if limit.constraint in conflict]
    late = _late(specification)
    soft = tuple(limit for limit in broken if limit.device != TIME)
    if late & set(conflict):
        yield late, ()
    given_up = frozenset(limit.constraint for limit in soft) or frozenset(conflict)
    yield given_up, soft
    if late:
        yield given_up | late, soft


def _late(specification: Specification) -> frozenset[str]:
    """The names of the limits on time."""
    return frozenset(limit.constraint for limit in specification.every_limit if limit.device == TIME)


def _fastest(specification: Specification, ask: Ask) -> Evaluation | None:
    """The fastest plan of the job without its deadline."""
    job = specification.job
    relaxed = specify(replace(job, limits=replace(job.limits, step_time_at_most=None)))
    found = ask(promising_points(relaxed), Question("time", relaxed.capacities, 0.0))
    return evaluate(job, found.plan) if found.plan is not None else None


def _missed(
    specification: Specification, ask: Ask, given_up: frozenset[str], soft: Sequence[Limit], clock: Clock
) -> Evaluation | None:
    """The plan that exceeds the soft limits by the fewest bytes while all that is not given up holds; the fastest."""
    active = frozenset(_names(specification)) - given_up
    held, over = specification.capacities_of(active), 0
    capacities = {limit.device: limit.capacity for limit in soft}
    if given_up == _late(specification):
        return _fastest(specification, ask)
    points = nearest_points(specification, active, capacities, GRAIN, clock)
    if soft:
        least = ask(points, Question("overflow", held, 0.0, soft=capacities))
        if least.plan is None or least.value is None:
            return None
        over = least.value * GRAIN
    for limit in soft:
        most = limit.capacity + over
        held[limit.device] = min(most, held.get(limit.device, most))
    fastest = ask(points, Question("time", held, 0.0)).plan or (least.plan if soft else None)
    return evaluate(specification.job, fastest) if fastest is not None else None
