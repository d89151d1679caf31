"""The candidate space of a job: which values each choice may take before any rule is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import isqrt

from planner.choices import Choice, Derived, Space
from planner.errors import InputError
from planner.job import Job
from planner.plan import Layout, Value, layout_of, whole
from planner.techniques import ChoiceEntry
from planner.terms import Measure, Values


@lru_cache(maxsize=64)
def job_space(job: Job) -> Space:
    """Choices in catalog order with the job's pins applied, the measures of recomputed layers, and derived values."""
    choices = tuple(_choice(job, name, entry) for name, entry in job.techniques.choices.items())
    return Space(choices, tuple(_measures(job)), tuple(_derived(job)))


def _choice(job: Job, name: str, entry: ChoiceEntry) -> Choice:
    """One choice: its domain, or what the job narrows it to."""
    domain = tuple(entry.values) if entry.domain == "listed" else DOMAINS[entry.domain](job)
    wanted = job.choices.get(name)
    if wanted is None:
        return Choice(name, tuple(value for value in domain if not _needs_leave(entry, value)))
    if entry.domain == "listed":
        unknown = [value for value in wanted if value not in domain]
        if unknown:
            raise InputError(
                f"unknown value '{unknown[0]}' of {name}",
                path=f"choices.{name}",
                expected="one of " + ", ".join(map(str, domain)),
            )
    return Choice(name, tuple(wanted))


def _needs_leave(entry: ChoiceEntry, value: Value) -> bool:
    """Whether a technique changes numerics, and so is only taken where the job names it."""
    technique = entry.values.get(value)  # type: ignore[arg-type]
    return technique is not None and technique.changes_numerics


def layouts(job: Job) -> tuple[Layout, ...]:
    """Legal layouts of the cluster: every rank holds its own share of the batch."""
    return (Layout(data=job.cluster.gpus),)


def micro_batches(job: Job) -> tuple[int, ...]:
    """Sequences per micro-batch that divide the share of the global batch of at least one layout."""
    found: set[int] = set()
    for layout in layouts(job):
        share = job.training.global_batch // layout.data
        found |= set(divisors(share)) if share else set()
    return tuple(sorted(found)) or (1,)


def divisors(number: int) -> list[int]:
    """All divisors in rising order."""
    small = [size for size in range(1, isqrt(number) + 1) if number % size == 0]
    return small + [number // size for size in reversed(small) if size * size != number]


def checkpoint_counts(job: Job) -> tuple[int, ...]:
    """From nothing checkpointed to every layer."""
    return tuple(range(len(job.layer_kinds) + 1))


def checkpoint_intervals(job: Job) -> tuple[int, ...]:
    """0 (nothing is checkpointed), then one layer per checkpoint up to twice the square root of the layer count."""
    layers = len(job.layer_kinds)
    longest = min(layers, 2 * isqrt(layers))
    dense = range(1, longest + 1)
    return (0, *(step for step in dense if step <= 4 or layers % step == 0 or step == isqrt(layers)))


def accumulation_dtypes(job: Job) -> tuple[str, ...]:
    """The precision of compute, and fp32 beside it."""
    return tuple(dict.fromkeys((job.training.precision.dtype, "fp32")))


DOMAINS: Mapping[str, Callable[[Job], tuple[Value, ...]]] = {
    "layouts": layouts,
    "divisors_of_batch": micro_batches,
    "layers": checkpoint_counts,
    "intervals": checkpoint_intervals,
    "accumulation_dtypes": accumulation_dtypes,
}


def _measures(job: Job) -> list[Measure]:
    """Recomputed layers of each kind, and the number of checkpoints itself."""
    kinds = job.layer_kinds

    def recomputed(kind: object) -> Callable[[Values], int]:
        return lambda values: sum(found == kind for found in kinds[: checkpointed_layers(values)])

    counted = [
        Measure(name, ("checkpoint_count", "checkpoint_interval"), recomputed(kind), kinds.count(kind))
        for name, kind in job.recomputed_kinds.items()
    ]
    count = Measure("checkpoints", ("checkpoint_count",), lambda values: whole(values, "checkpoint_count"), len(kinds))
    return [*counted, count]


def checkpointed_layers(values: Values) -> int:
    """How many layers, from the first on, lie inside checkpointed segments."""
    return whole(values, "checkpoint_count") * whole(values, "checkpoint_interval")


def _derived(job: Job) -> list[Derived]:
    """Accumulation and the parallel degrees, shown beside the choices."""

    def degree(name: str) -> Derived:
        return Derived(f"{name}_parallel", ("layout",), lambda values: getattr(layout_of(values), name))

    accumulation = Derived("gradient_accumulation", ("layout", "micro_batch"), job.micro_batches)
    return [accumulation, *(degree(name) for name in ("tensor", "pipeline", "sequence", "expert", "data"))]
