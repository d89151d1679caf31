"""Fits a calibration to measured step times: least squares on relative errors over the planner's own terms.

Unknown are the logarithms of the multiples, and the constants. Each starts at what the catalogs say and costs as much
as its width makes it unlikely; a run costs the square of its relative error over the usual scatter, and less than that
where it lies far from all others (Huber 1964). The derivative of each run's step time is taken by evaluating it again,
so that what overlap hides counts for nothing, and is taken anew after every step of Gauss and Newton.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, log, sqrt
from statistics import fmean, median
from typing import Any

import numpy

from planner.calibrate.groups import EVERYTHING, Group, combined, groups, scatter, told
from planner.calibrate.measured import Measured
from planner.calibration import Calibration

Array = numpy.ndarray[Any, numpy.dtype[numpy.float64]]
ROUNDS = 4
REWEIGHTED = 20
STEP = 0.05
LARGEST_STEP = 0.5
LEAST_GAIN = 0.05
MEDIAN_TO_DEVIATION = 1.4826
SMALL_SHARE = 0.01
NOTHING_LEFT = "the runs leave nothing for it"


@dataclass(frozen=True)
class Fitted:
    """One group's value, a multiple or seconds, and its standard error: relative for a multiple, seconds otherwise."""

    group: Group
    value: float
    error: float


@dataclass(frozen=True)
class Fit:
    """A calibration of one machine, what was fitted, and what the runs cannot tell with the reason.

    `before`, `after`: mean absolute relative error of the runs' step times.
    """

    calibration: Calibration
    fitted: tuple[Fitted, ...]
    cannot_tell: Mapping[str, str]
    runs: int
    before: float
    after: float


@dataclass(frozen=True)
class _State:
    """Values of the unknowns, each in units of its width, with the runs' residuals and derivatives there."""

    unknowns: Array
    residuals: Array
    slopes: Array


@dataclass(frozen=True)
class _Problem:
    """The runs, the groups that are free, and the seconds that one unit of each constant stands for."""

    runs: Sequence[Measured]
    free: tuple[Group, ...]
    units: Mapping[str, float]

    def with_only(self, free: Sequence[Group]) -> _Problem:
        """The same runs with other groups free."""
        return replace(self, free=tuple(free))

    def calibration(self, unknowns: Array) -> Calibration:
        """What the unknowns mean."""
        return combined(self.values(unknowns))

    def values(self, unknowns: Array) -> dict[str, float]:
        """Multiples and seconds by group."""
        return {g.name: self.value(g, float(x)) for g, x in zip(self.free, unknowns, strict=True)}

    def value(self, group: Group, unknown: float) -> float:
        """A group's multiple, or its seconds, which are never negative."""
        if group.constant:
            return max(0.0, unknown * self.units[group.name])
        return exp(unknown * group.width)

    def state(self, unknowns: Array) -> _State:
        """Residuals and derivatives at some values."""
        values = self.values(unknowns)
        rows = [self._row(run, values) for run in self.runs]
        return _State(unknowns, numpy.array([row[0] for row in rows]), numpy.array([row[1:] for row in rows]))

    def _row(self, run: Measured, values: Mapping[str, float]) -> list[float]:
        """The logarithm of measured over predicted, and the derivative of the prediction's by each unknown."""
        here = run.predicted(combined(values))
        return [log((run.seconds or here) / here), *(self._slope(run, values, group, here) for group in self.free)]

    def _slope(self, run: Measured, values: Mapping[str, float], group: Group, here: float) -> float:
        """The derivative by one unknown."""
        value = values[group.name]
        moved = value + STEP * self.units[group.name] if group.constant else value * exp(STEP)
        there = log(run.predicted(combined({**values, group.name: moved})) / here)
        return there / STEP if group.constant else there / STEP * group.width

    def cost(self, state: _State, weights: Array) -> float:
        """What the fit minimises."""
        return float(weights @ state.residuals**2 / scatter() ** 2 + state.unknowns @ state.unknowns)


def fit(runs: Sequence[Measured]) -> Fit:
    """The calibration of one machine from its timed runs; with none every group is one that they cannot tell."""
    timed = [run for run in runs if run.seconds is not None]
    if not timed:
        return Fit(Calibration(), (), {group.name: "no run states a step time" for group in groups()}, 0, 0.0, 0.0)
    every = _Problem(timed, groups(), _units(timed))
    start = every.state(numpy.zeros(len(every.free)))
    reasons = _cannot_tell(every, start)
    reasons |= _not_carried(every, start, reasons)
    problem = every.with_only([group for group in groups() if group.name not in reasons])
    ended = _minimum(problem)
    before = fmean(abs(exp(-float(value)) - 1) for value in start.residuals)
    after = fmean(abs(exp(-float(value)) - 1) for value in ended.residuals)
    fitted = [item for item in _fitted(problem, ended) if item.value > 0]
    left = {group.name for group in problem.free} - {item.group.name for item in fitted}
    reasons |= dict.fromkeys(sorted(left), NOTHING_LEFT)
    return Fit(problem.calibration(ended.unknowns), tuple(fitted), reasons, len(timed), before, after)


def _units(runs: Sequence[Measured]) -> Mapping[str, float]:
    """Seconds that are a constant's width of the usual step, by constant: less where a step has many of them."""
    found = {}
    for group in groups():
        if group.constant:
            added = Calibration(**{group.name: 1.0})
            times = (run.predicted(added) - run.predicted(Calibration()) for run in runs)
            found[group.name] = group.width * median(
                (run.seconds or 0.0) / count for run, count in zip(runs, times, strict=True)
            )
    return found


# ── the minimum ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _minimum(problem: _Problem) -> _State:
    """Where the cost is least, by steps of Gauss and Newton that are halved until they gain."""
    state = problem.state(numpy.zeros(len(problem.free)))
    for _ in range(ROUNDS if problem.free else 0):
        moved = _step(problem, state)
        if moved is None:
            return state
        state = moved
    return state


def _step(problem: _Problem, state: _State) -> _State | None:
    """One step; None where none gains."""
    target, weights = _solved(state)
    change = target - state.unknowns
    widest = max(abs(change) * [group.width for group in problem.free])
    for share in (1.0, 0.5, 0.25):
        moved = problem.state(state.unknowns + change * share * min(1.0, LARGEST_STEP / max(widest, 1e-12)))
        if problem.cost(moved, weights) < problem.cost(state, weights) - LEAST_GAIN:
            return moved
    return None


def _solved(state: _State) -> tuple[Array, Array]:
    """The unknowns that minimise the cost were the step times as straight as here, and the runs' weights there."""
    slopes, wanted = state.slopes, state.residuals + state.slopes @ state.unknowns
    weights = numpy.ones(len(wanted))
    found = state.unknowns
    for _ in range(REWEIGHTED):
        right = slopes.T @ (weights * wanted) / scatter() ** 2
        found = numpy.asarray(numpy.linalg.solve(_information(slopes, weights), right), dtype=numpy.float64)
        weights = _weights(wanted - slopes @ found)
    return found, weights


def _weights(residuals: Array) -> Array:
    """1 for runs near the others, less for those beyond one robust deviation."""
    deviation = max(scatter(), MEDIAN_TO_DEVIATION * float(numpy.median(abs(residuals))))
    return numpy.asarray(1.0 / numpy.maximum(1.0, abs(residuals) / deviation))


def _information(slopes: Array, weights: Array) -> Array:
    """The inverse of the unknowns' covariance: what the runs say and what was known before."""
    return numpy.asarray((slopes.T * weights) @ slopes / scatter() ** 2 + numpy.eye(slopes.shape[1]))


def _fitted(problem: _Problem, state: _State) -> tuple[Fitted, ...]:
    """Every free group with its standard error, from the scatter of the runs where that is larger than usual."""
    left = max(1.0, float(numpy.median(abs(state.residuals))) * MEDIAN_TO_DEVIATION / scatter())
    weights = numpy.full(len(state.residuals), 1.0 / left**2)
    covariance = numpy.linalg.inv(_information(state.slopes, weights))
    return tuple(
        Fitted(group, problem.value(group, float(x)), sqrt(float(covariance[i, i])) * _unit(problem, group))
        for i, (group, x) in enumerate(zip(problem.free, state.unknowns, strict=True))
    )


def _unit(problem: _Problem, group: Group) -> float:
    """What one unit of an unknown is: a share of the multiple, or seconds."""
    return problem.units[group.name] if group.constant else group.width


# ── what the runs cannot tell ────────────────────────────────────────────────────────────────────────────────────────


def _cannot_tell(problem: _Problem, state: _State) -> dict[str, str]:
    """Reasons by group, of those that the runs leave about as wide as they were and of constants below zero.

    They are given up one after another, constants first, since what is left is told better then.
    """
    kept = list(range(len(problem.free)))
    reasons: dict[str, str] = {}
    while kept:
        part = _State(state.unknowns[kept], state.residuals, state.slopes[:, kept])
        groups_left = problem.with_only([problem.free[index] for index in kept])
        worst = _least_told(groups_left, part)
        if worst is None:
            return reasons
        reasons[groups_left.free[worst].name] = _reason(groups_left, part, worst)
        del kept[worst]
    return reasons


def _not_carried(problem: _Problem, state: _State, refused: Mapping[str, str]) -> dict[str, str]:
    """Reasons for all other groups, where a fit to the rest predicts a run left out worse than the catalogs do."""
    kept = [index for index, group in enumerate(problem.free) if group.name not in refused]
    count = len(state.residuals)
    if count < 2 or not kept:
        return {}
    slopes = state.slopes[:, kept]
    errors = [_left_out(_State(state.unknowns[kept], state.residuals, slopes), index) for index in range(count)]
    before, left_out = (fmean(abs(exp(-float(value)) - 1) for value in found) for found in (state.residuals, errors))
    if left_out <= before:
        return {}
    reason = f"a run left out is predicted worse from the others than from the catalogs: {_shares(left_out, before)}"
    return {problem.free[index].name: reason for index in kept}


def _left_out(state: _State, index: int) -> float:
    """What stays of one run's residual after a fit to the others, were the step times as straight as here."""
    others = _State(state.unknowns, numpy.delete(state.residuals, index), numpy.delete(state.slopes, index, axis=0))
    found, _ = _solved(others)
    return float(state.residuals[index] - state.slopes[index] @ (found - state.unknowns))


def _shares(one: float, other: float) -> str:
    return f"{100 * one:.1f} % against {100 * other:.1f} % off"


def _least_told(problem: _Problem, state: _State) -> int | None:
    """The group to give up next; None where all are told."""
    deviations = numpy.sqrt(numpy.diag(numpy.linalg.inv(_information(state.slopes, numpy.ones(len(state.residuals))))))
    found, _ = _solved(state)
    wide = [index for index in range(len(problem.free)) if deviations[index] > 1.0 - told()]
    below = [index for index, group in enumerate(problem.free) if group.constant and found[index] <= 0]
    if wide:
        return max(wide, key=lambda index: (problem.free[index].constant, deviations[index]))
    if below:
        return below[0]
    if len(problem.free) <= len(state.residuals):
        return None
    own = [index for index, group in enumerate(problem.free) if group.name != EVERYTHING]
    return min(own, key=lambda index: _cost_without(state, index))


def _cost_without(state: _State, index: int) -> float:
    """What the fit would cost without one group, were the step times as straight as here."""
    part = _State(numpy.delete(state.unknowns, index), state.residuals, numpy.delete(state.slopes, index, axis=1))
    found, weights = _solved(part)
    left = part.residuals + part.slopes @ (part.unknowns - found)
    return float(weights @ left**2 / scatter() ** 2 + found @ found)


def _reason(problem: _Problem, state: _State, index: int) -> str:
    """Why one group cannot be told: it takes too little, or goes with another one."""
    group, slopes = problem.free[index], state.slopes[:, index]
    if not slopes.any():
        return "no run spends time on it"
    largest = 100 * float(abs(slopes).max()) / group.width
    if not group.constant and largest < 100 * SMALL_SHARE:
        return f"it takes at most {largest:.1f} % of a step in these runs"
    if float(slopes @ slopes) / scatter() ** 2 > (1.0 - told()) ** -2 - 1.0:  # told if it were alone
        together = numpy.linalg.inv(_information(state.slopes, numpy.ones(len(state.residuals))))
        if sqrt(float(together[index, index])) > 1.0 - told():
            return f"in these runs it goes with {problem.free[_companion(state, index)].means}"
        if len(problem.free) > len(state.residuals):
            return f"{len(state.residuals)} run{'s' * (len(state.residuals) > 1)} cannot tell so many groups apart"
        return NOTHING_LEFT
    if group.constant:
        return "the scatter of such runs is larger than what it may take"
    return f"it takes at most {largest:.0f} % of a step in these runs, too little for their number and scatter"


def _companion(state: _State, index: int) -> int:
    """The group whose time is most like that of another one over the runs."""
    norms = numpy.linalg.norm(state.slopes, axis=0)
    likeness = state.slopes.T @ state.slopes[:, index] / numpy.maximum(norms * norms[index], 1e-12)
    likeness[index] = -1.0
    return int(likeness.argmax())
