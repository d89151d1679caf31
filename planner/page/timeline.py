"""The step on a line of time: what each lane is busy with, and which part of it the step waits for."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from planner.effect_terms import job_effects
from planner.effects import Collective, Convert, Transfer, Update
from planner.evaluate import Evaluation
from planner.job import Job
from planner.terms import WINDOWS
from planner.time_lines import STAGES, TimeLine

ROWS = ("compute", "communication", "offload", "optimizer")
STATES = ("work", "hidden", "exposed")
# The lanes that run beside compute, in the order in which the step waits for them.
BESIDE: Mapping[str, str] = {"communication": "communication", "host_link": "offload", "host": "offload"}
EXCHANGE = " exchange"  # ends the names of what ranks exchange inside a layer and between stages
AGAIN = ", once more"
COPIES = "copies around collectives"


@dataclass(frozen=True)
class Segment:
    """A stretch of one row, in microseconds from the start of the step.

    `state` is `hidden` where other work runs meanwhile, `exposed` where the step waits, `work` on rows of its own.
    """

    row: str
    term: str
    window: str
    state: str
    start: int
    length: int


Stretches = Generator[Segment, None, int]  # returns the microsecond at which they have all ended


def timeline(found: Evaluation) -> tuple[Segment, ...]:
    """The step's work as segments; those that are not hidden fill the step without a gap or an overlap."""
    kinds, segments, start = effect_rows(found.job), list[Segment](), 0
    for window in WINDOWS:
        lines = [line for line in found.step_time.own if line.window == window]
        segments += _window(lines, kinds, start)
        start += found.step_time.window(window)
    return tuple(segments)


def effect_rows(job: Job) -> Mapping[str, str]:
    """The row of each collective, conversion, transfer and update of a job, by its name."""
    rows = ((Collective, "communication"), (Convert, "communication"), (Transfer, "offload"), (Update, "optimizer"))
    return {effect.name: row for effect in job_effects(job) for kind, row in rows if isinstance(effect, kind)}


def row_of(name: str, kinds: Mapping[str, str]) -> str:
    """The row of work that nothing hides."""
    if name.endswith(EXCHANGE) or name == COPIES:
        return "communication"
    return kinds.get(name.removesuffix(AGAIN), "compute")


def _window(lines: Sequence[TimeLine], kinds: Mapping[str, str], start: int) -> Iterator[Segment]:
    """One window: lanes side by side, then the work that runs beside nothing."""
    end = yield from _in_turn([line for line in lines if line.lane in STAGES], kinds, start)
    for lane, row in BESIDE.items():
        end = yield from _beside([line for line in lines if line.lane == lane], row, start, end)
    yield from _in_turn([line for line in lines if line.lane == "serial"], kinds, end)


def _in_turn(lines: Sequence[TimeLine], kinds: Mapping[str, str], start: int) -> Stretches:
    """Lines one after the other; returns where they end."""
    for line in lines:
        row = row_of(line.name, kinds)
        state = "exposed" if row in BESIDE.values() else "work"
        yield Segment(row, line.name, line.window, state, start, line.microseconds)
        start += line.microseconds
    return start


def _beside(lines: Sequence[TimeLine], row: str, start: int, covered: int) -> Stretches:
    """A lane beside others: hidden until `covered`, exposed from there on; returns where both have ended."""
    for line in lines:
        end = start + line.microseconds
        if start < covered:
            yield Segment(row, line.name, line.window, "hidden", start, min(end, covered) - start)
        if end > covered:
            first = max(start, covered)
            yield Segment(row, line.name, line.window, "exposed", first, end - first)
        start = end
    return max(start, covered)
