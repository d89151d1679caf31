"""Failures as objects: what went wrong, where, and what would be right; sentences are made at the edge."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class PlannerError(Exception):
    """Any failure this package raises on purpose; `exit_code` is what a command returns for it."""

    exit_code = 70


@dataclass
class InputError(PlannerError):
    """A mistake in what the user gave: where it stands, what was expected, and the nearest valid spelling.

    `path` names the place by id (`training.sequence_length`); `line` and `column` count from 1, 0 means unknown.
    """

    message: str
    file: str = ""
    line: int = 0
    column: int = 0
    path: str = ""
    expected: str = ""
    hint: str = ""

    exit_code = 2

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place = f"{place}:{self.line}:{self.column}"
        parts = [part for part in (place, self.path) if part]
        text = ": ".join([*parts, self.message])
        if self.expected:
            text += f"; expected {self.expected}"
        if self.hint:
            text += f"; {self.hint}"
        return text


@dataclass
class NoPlan(PlannerError):
    """Proof that no plan satisfies every constraint.

    `conflict` is a minimal set of constraint names that cannot hold together; `nearest_miss` is the plan that
    breaks the remaining limits by the fewest bytes, with its evaluation; None where no candidate exists at all.
    `minimal` is False where time ran out before every name was found to be needed.
    """

    conflict: tuple[str, ...]
    nearest_miss: Any = None
    reasons: tuple[str, ...] = ()
    details: dict[str, Any] = field(default_factory=dict)
    minimal: bool = True

    exit_code = 3

    def __str__(self) -> str:
        return "no plan satisfies: " + ", ".join(self.conflict)


@dataclass
class Stopped(PlannerError):
    """A limit (time or interrupt) ended the search before any plan was found; `bound` is the proven lower bound."""

    reason: str
    bound: float | None = None

    exit_code = 4

    def __str__(self) -> str:
        return f"stopped without a plan: {self.reason}"


@dataclass
class InternalError(PlannerError):
    """The two readings of one formula disagree, or an invariant of ours is broken: a bug, never the user's mistake."""

    message: str

    exit_code = 70

    def __str__(self) -> str:
        return f"internal error: {self.message}"
