"""The candidate space of a job: which values each choice may take before any rule is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from math import isqrt

from planner.architecture.shape import LayerKind
from planner.choices import Choice, Derived, Space
from planner.errors import InputError
from planner.job import Job
from planner.layouts import WHOLE, cuts, degree_name, layouts, stage_layers, stages
from planner.plan import Value, layout_of, whole
from planner.share import Share, measure_name, share, share_of
from planner.sizes import ELEMENTS, own_size
from planner.techniques import ChoiceEntry
from planner.terms import Measure, Values


@lru_cache(maxsize=64)
def job_space(job: Job) -> Space:
    """Choices in catalog order with the job's pins applied, the measures of recomputed layers, and derived values."""
    choices = tuple(_choice(job, name, entry) for name, entry in job.techniques.choices.items())
    return Space(choices, tuple(_measures(job)), tuple(_derived(job)))


def _choice(job: Job, name: str, entry: ChoiceEntry) -> Choice:
    """One choice: its domain, or what the job narrows it to."""
    domain = _domain(job, name, entry)
    wanted = job.choices.get(name)
    if wanted is None:
        free = (value for value in domain if not _needs_leave(entry, value))
        return Choice(name, tuple(value for value in free if _acts(job, entry, value)))
    if entry.domain == "listed":
        unknown = [value for value in wanted if value not in domain]
        if unknown:
            raise InputError(
                f"unknown value '{unknown[0]}' of {name}",
                path=f"choices.{name}",
                expected="one of " + ", ".join(map(str, domain)),
            )
    return Choice(name, tuple(wanted))


def _domain(job: Job, name: str, entry: ChoiceEntry) -> tuple[Value, ...]:
    """Every value that the choice can take by itself; of a size that is the job's own one."""
    if entry.domain == ELEMENTS:
        return (own_size(job, name),)
    return tuple(entry.values) if entry.domain == "listed" else DOMAINS[entry.domain](job)


def _needs_leave(entry: ChoiceEntry, value: Value) -> bool:
    """Whether a technique is only taken where the job names it."""
    technique = entry.values.get(value)  # type: ignore[arg-type]
    return technique is not None and (technique.changes_numerics or technique.on_request)


def _acts(job: Job, entry: ChoiceEntry, value: Value) -> bool:
    """Whether the facts of the job are such that a technique exists and does anything."""
    technique = entry.values.get(value)  # type: ignore[arg-type]
    return technique is None or job.unmet(technique.where) is None


def micro_batches(job: Job) -> tuple[int, ...]:
    """Sequences per micro-batch that divide the share of the global batch of at least one layout."""
    shares = {job.training.global_batch // layout.data for layout in layouts(job)}
    found = {size for share in shares if share for size in divisors(share)}
    return tuple(sorted(found)) or (1,)


def divisors(number: int) -> list[int]:
    """All divisors in rising order."""
    small = [size for size in range(1, isqrt(number) + 1) if number % size == 0]
    return small + [number // size for size in reversed(small) if size * size != number]


def checkpoint_counts(job: Job) -> tuple[int, ...]:
    """From nothing checkpointed to every layer of the longest stage."""
    most = max(stage_layers(len(job.layer_kinds), found, stage)[1] for found in cuts(job) for stage in stages(job))
    return tuple(range(most + 1))


def checkpoint_intervals(job: Job) -> tuple[int, ...]:
    """0 (nothing is checkpointed), then one layer per checkpoint up to twice the square root of the layer count."""
    layers = len(job.layer_kinds)
    longest = min(layers, 2 * isqrt(layers))
    dense = range(1, longest + 1)
    return (0, *(step for step in dense if step <= 4 or layers % step == 0 or step == isqrt(layers)))


def accumulation_dtypes(job: Job) -> tuple[str, ...]:
    """What the runtime uses by itself, where it says so; else the precision of compute, and fp32 beside it."""
    if job.runtime.gradient_accumulation_dtype:
        return (job.runtime.gradient_accumulation_dtype,)
    return tuple(dict.fromkeys((job.training.precision.dtype, "fp32")))


DOMAINS: Mapping[str, Callable[[Job], tuple[Value, ...]]] = {
    "layouts": layouts,
    "divisors_of_batch": micro_batches,
    "layers": checkpoint_counts,
    "intervals": checkpoint_intervals,
    "accumulation_dtypes": accumulation_dtypes,
}


def _measures(job: Job) -> list[Measure]:
    """Recomputed layers of each kind, and the number of checkpoints itself, for each pipeline stage."""
    return [measure for stage in stages(job) for measure in _stage_measures(job, stage)]


def _stage_measures(job: Job, stage: str) -> Iterable[Measure]:
    """The measures of one stage; where there is a pipeline they depend on the layout."""
    layout = () if stage == WHOLE else ("layout",)
    most = max(len(share(job, found, stage).kinds) for found in cuts(job))

    def part(values: Values) -> Share:
        return share(job, layouts(job)[0], stage) if stage == WHOLE else share_of(job, values, stage)

    def recomputed(kind: LayerKind) -> Callable[[Values], int]:
        key = id(kind)

        def count(values: Values) -> int:
            before = part(values).counts_before.get(key)
            return before[min(checkpointed_layers(values), len(before) - 1)] if before else 0

        return count

    def checkpoints(values: Values) -> int:
        count = whole(values, "checkpoint_count")
        if stage == WHOLE:
            return count
        interval = max(1, whole(values, "checkpoint_interval"))
        return min(count, -(-len(part(values).kinds) // interval))

    counts = {id(kind): count for kind, count in job.kind_counts}
    for name, kind in job.recomputed_kinds.items():
        largest = counts[id(kind)] if stage == WHOLE else most
        scope = ("checkpoint_count", "checkpoint_interval", *layout)
        yield Measure(measure_name(name, stage), scope, recomputed(kind), largest)
    scope = ("checkpoint_count", *(("checkpoint_interval", *layout) if layout else ()))
    yield Measure(measure_name("checkpoints", stage), scope, checkpoints, most)


def checkpointed_layers(values: Values) -> int:
    """How many layers of each pipeline stage, from its first on, lie inside checkpointed segments."""
    return whole(values, "checkpoint_count") * whole(values, "checkpoint_interval")


def _derived(job: Job) -> list[Derived]:
    """Accumulation and the parallel degrees, shown beside the choices."""

    def degree(name: str) -> Derived:
        return Derived(degree_name(name), ("layout",), lambda values: getattr(layout_of(values), name))

    accumulation = Derived("gradient_accumulation", ("layout", "micro_batch"), job.micro_batches)
    shards = Derived("sharded_over", ("layout",), lambda values: layout_of(values).shards)
    interleaved = ("virtual_stages",) if any(layout.virtual_stages > 1 for layout in layouts(job)) else ()
    return [
        accumulation,
        *([shards] if job.runtime.hybrid else []),
        *(degree(name) for name in ("tensor", "pipeline", *interleaved, "sequence", "expert", "data")),
        *_division_of_layers(job),
    ]


def _division_of_layers(job: Job) -> Iterable[Derived]:
    """What layouts differ in beside their degrees: the stream of tensor-parallel ranks, layers of uneven stages."""
    if any(layout.whole_stream for layout in layouts(job)) and job.runtime.either_stream:
        streams = ("divided", "whole")
        yield Derived("residual_stream", ("layout",), lambda values: streams[layout_of(values).whole_stream])
    if any(layout.spared for layout in layouts(job)):
        layers = len(job.layer_kinds)
        for stage, name in (("first", "layers_of_the_first_stage"), ("last", "layers_of_the_last_stage")):
            yield Derived(name, ("layout",), _held(layers, stage))


def _held(layers: int, stage: str) -> Callable[[Values], Value]:
    """How many layers a stage of the layout has; without a pipeline the first and last stage is all of them."""

    def body(values: Values) -> Value:
        layout = layout_of(values)
        return layers if layout.pipeline == 1 else stage_layers(layers, layout, stage)[1]

    return body
