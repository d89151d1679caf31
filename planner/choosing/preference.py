"""Which of several plans is taken: the best by the objective, of those as good as it the one that changes least.

The rule: let the best value be that of any plan. Plans within TOLERANCE of it count as equally good; of those the one
with the fewest changes of numerics or convergence is taken, then the one with the fewest values that are not the job's
own at all, then the best by the objective. So a change of numerics is taken only where nothing fits without, or where
it is better by more than TOLERANCE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from planner.choosing.choice import Candidate, Choice

Value = tuple[float, ...]
TOLERANCE = 0.01  # share by which a plan may be worse and still count as equally good
Ranked = tuple[Candidate, Value]


def value_of(choice: Choice, candidate: Candidate, microseconds: float) -> Value:
    """What the objective orders candidates by, for a step of that length: less is better, and grows with the time.

    `step_time`: time, then price; `cost`: price × time, then the time; `smallest`: GPUs, then price, then time. The
    time is that of a step, or of one sequence where candidates differ in their global batch. A cluster without a price
    counts as dearer than all others; of equals one with a price of its own comes first.
    """
    price, gpus = candidate.price_per_hour or inf, candidate.gpus
    time = microseconds / candidate.global_batch if choice.batches_differ else microseconds
    by_objective: Mapping[str, Value] = {
        "step_time": (time, price, gpus),
        "cost": (price * time, time, gpus),
        "smallest": (gpus, price, time),
    }
    return (*by_objective[choice.objective], candidate.price_source == "gpu")


def preferred(choice: Choice, plans: Iterable[Ranked]) -> Candidate:
    """The candidate whose plan is taken; of equals the first. There is at least one."""
    ranked = list(plans)
    best = min(value for _, value in ranked)
    near = [(candidate, value) for candidate, value in ranked if equally_good(choice, value, best)]
    return min(near, key=lambda item: (*item[0].changes, item[1]))[0]


def equally_good(choice: Choice, value: Value, best: Value) -> bool:
    """Whether a value is within the tolerance of the best one; numbers of GPUs have none."""
    if choice.objective == "smallest":
        return value[0] == best[0] and value[1] <= best[1] * (1 + TOLERANCE)
    return value[0] <= best[0] * (1 + TOLERANCE)


def may_be_taken(choice: Choice, taken: Candidate, plans: Iterable[Ranked], candidate: Candidate, bound: int) -> bool:
    """Whether a candidate whose steps take at least `bound` microseconds can change what is taken.

    `plans` are the plans known of other candidates, that of the taken one first. A plan as fast as the bound does most:
    what it cannot change no slower one can, since a slower one makes fewer others fall out of the tolerance.
    """
    return preferred(choice, [*plans, (candidate, value_of(choice, candidate, bound))]) is not taken
