"""Terms, rules and limits: the whole specification of a planning problem, with no solver in sight.

A term has one body. `evaluate` calls it with a plan's values, the compiler calls the same function over its scope;
both work in exact integers (bytes, microseconds), and rounding up happens inside the body only.

A body gets the values of its `scope` and of the measures it names, nothing else: a hidden dependency is a KeyError.
It must be affine in its measures with integer coefficients for every value of its scope.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from planner.plan import Value

Values = Mapping[str, Value]
Body = Callable[[Values], int]

DEVICES = ("gpu", "host", "nvme")
TIME = "time"
BOOKS = ("parameters", "gradients", "optimizer_states", "activations", "buffers", "reserve")
# The moments of a step at which memory can peak, and the phase that each belongs to, in order of time.
MOMENTS: Mapping[str, str] = {
    "load": "load",
    "init": "init",
    "init_states": "init",
    "init_end": "init",
    "forward": "forward",
    "loss": "loss",
    "backward_start": "backward",
    "recompute_start": "backward",
    "reduction": "backward",
    "backward_end": "backward",
    "gradient_norm": "optimizer_step",
    "optimizer_step": "optimizer_step",
}
PHASES = tuple(dict.fromkeys(MOMENTS.values()))
# The windows of time a step is made of, in order. Lanes of one window run beside each other, serial work does not.
WINDOWS = ("forward", "backward", "last_backward", "optimizer_step")
# Pipeline stages other than the first compute beside it in lanes of their own; they are other GPUs.
LANES = ("serial", "compute", "compute_inner", "compute_last", "communication", "host_link", "host")


# What decides how many tokens a rank has at once, and how often.
BATCH = ("layout", "micro_batch")


def ceil_divide(number: int, divisor: int) -> int:
    """`number` over `divisor`, rounded up."""
    return -(-number // divisor)


@dataclass(frozen=True)
class Measure:
    """A whole number that follows from a few choices (layers recomputed, for example); terms may be affine in it.

    `scope` names choices only; `largest` bounds the value from above, zero bounds it from below.
    """

    name: str
    scope: tuple[str, ...]
    body: Body
    largest: int


@dataclass(frozen=True)
class Term:
    """One line: `body` over `scope` (choices) and `measures`; unit and meaning are those of the subclass."""

    name: str
    scope: tuple[str, ...]
    measures: tuple[str, ...]
    body: Body

    def value(self, values: Values) -> int:
        """The line's value, from the values of its scope and measures alone."""
        return self.body({name: values[name] for name in (*self.scope, *self.measures)})


@dataclass(frozen=True)
class MemoryTerm(Term):
    """Bytes that stand in `book` on `device` during each of `moments`, on a rank of pipeline stage `stage`.

    GPU: per rank; host and NVMe: per node. `apart`: outside the
    allocator's common pool, a buffer larger than any free block or of another stream.
    """

    device: str
    book: str
    moments: tuple[str, ...]
    source: str = ""
    stage: str = "whole"
    apart: bool = False


@dataclass(frozen=True)
class TimeTerm(Term):
    """Microseconds of one optimizer step that `lane` of `window` is busy for."""

    window: str
    lane: str
    source: str = ""


@dataclass(frozen=True)
class Rule:
    """A predicate over a few choices that every plan must satisfy; `constraint` is the name it is reported under."""

    constraint: str
    scope: tuple[str, ...]
    holds: Callable[[Values], bool]

    def satisfied(self, values: Values) -> bool:
        """Whether the rule holds for the values of its scope."""
        return self.holds({name: values[name] for name in self.scope})


@dataclass(frozen=True)
class Limit:
    """At every moment the memory terms of `device` sum to at most `capacity` bytes.

    Of `time` in place of a device: the step takes at most `capacity` microseconds.
    """

    constraint: str
    device: str
    capacity: int


Requirement = Rule | Limit
