"""The time of one step as lines in windows and lanes, and what overlap hides of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from planner.job import Job
from planner.step_time import time_terms
from planner.terms import WINDOWS, Values

STAGES = ("compute", "compute_inner", "compute_last")


@dataclass(frozen=True)
class TimeLine:
    """One time term's microseconds in a window and lane."""

    name: str
    window: str
    lane: str
    microseconds: int
    source: str = ""


@dataclass(frozen=True)
class StepTime:
    """The time of one optimizer step under one outlook.

    A window takes its serial work plus its longest lane; what the other lanes do meanwhile is hidden.
    """

    lines: tuple[TimeLine, ...]

    def lanes(self, window: str) -> Mapping[str, int]:
        """Microseconds by lane of a window."""
        lanes: dict[str, int] = {}
        for line in self.lines:
            if line.window == window:
                lanes[line.lane] = lanes.get(line.lane, 0) + line.microseconds
        return lanes

    def window(self, window: str) -> int:
        """Microseconds that a window takes."""
        lanes = dict(self.lanes(window))
        return lanes.pop("serial", 0) + max(lanes.values(), default=0)

    @cached_property
    def microseconds(self) -> int:
        """Microseconds of the whole step."""
        return sum(self.window(window) for window in WINDOWS)

    @property
    def seconds(self) -> float:
        """Seconds of the whole step."""
        return self.microseconds / 1e6

    @cached_property
    def own(self) -> tuple[TimeLine, ...]:
        """The lines of one GPU: of a window's pipeline stages those of the slowest."""
        slowest = {}
        for window in WINDOWS:
            lanes = self.lanes(window)
            slowest[window] = max(STAGES, key=lambda lane: lanes.get(lane, 0))
        return tuple(line for line in self.lines if line.lane not in STAGES or line.lane == slowest[line.window])

    @property
    def hidden(self) -> int:
        """Microseconds of work that overlap hides."""
        return sum(line.microseconds for line in self.own) - self.microseconds

    @property
    def terms(self) -> Mapping[str, float]:
        """Seconds by term over all windows, and what overlap hides as a negative term; they add up to `seconds`."""
        totals: dict[str, int] = {}
        for line in self.own:
            totals[line.name] = totals.get(line.name, 0) + line.microseconds
        if self.hidden:
            totals["hidden by overlap"] = -self.hidden
        return {name: value / 1e6 for name, value in totals.items()}


def step_time(job: Job, values: Values, outlook: str = "typical") -> StepTime:
    """The step time of a plan's completed values under an outlook."""
    lines = (
        TimeLine(term.name, term.window, term.lane, term.value(values), term.source)
        for term in time_terms(job, outlook)
    )
    return StepTime(tuple(line for line in lines if line.microseconds))
