"""The time of one optimizer step as terms: compute, recomputation, collectives, transfers and the optimizer update.

All terms are whole microseconds of a whole step, rounded up. `outlook` is the outlook on time: `low` seconds take the
high end of every efficiency, `high` seconds the low end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import Any

from planner.activation_copies import copy_terms
from planner.cluster import (
    collective_seconds,
    cpu_optimizer_seconds,
    host_link_seconds,
    nvme_seconds,
)
from planner.compute import (
    Pass,
    ends_seconds,
    layers_seconds,
    overlap_slowdown,
    recomputed_seconds,
    updated_seconds,
)
from planner.effect_terms import Reader, job_effects, unique
from planner.effects import AnyEffect, Collective, Convert, Transfer, Update
from planner.exchange import STAGE_LANES, Repeats, axis_group, axis_part, exchange_terms, replica_group
from planner.job import Job
from planner.layouts import stages
from planner.plan import layout_of, whole
from planner.quantities import BY_NAME
from planner.recomputed_modules import module_terms
from planner.share import measure_name, share_of
from planner.speed.memory_bound import host_seconds, memory_seconds
from planner.speed.passes import pass_cost
from planner.speed.seconds import NARROW
from planner.terms import BATCH, TimeTerm, Values, ceil_divide
from planner.tiled_blocks import tile_terms


@lru_cache(maxsize=64)
def time_terms(job: Job, outlook: str) -> tuple[TimeTerm, ...]:
    """Every time term of the job under one outlook, made once."""
    effects = job_effects(job)
    reader = Reader(job, effects, stages(job)[0])
    exchanged = exchange_terms(job, REPEATS, microseconds, outlook)
    copied = copy_terms(job, REPEATS, microseconds, outlook)
    tiled = tile_terms(job, REPEATS, microseconds, outlook)
    again = module_terms(job, REPEATS, microseconds, outlook)
    acting = _effect_terms(reader, effects, outlook)
    once = (*_narrow_terms(job, outlook), *_measured_terms(job))
    return (*compute_terms(job, outlook), *exchanged, *copied, *tiled, *again, *acting, *once)


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds, rounded up; a tolerance of a picosecond absorbs binary fractions."""
    return ceil(seconds * 1e6 - 1e-6)


SLOWDOWN = "compute slowed by collectives"
COPIES = "copies around collectives"
REDUCTIONS = ("all_reduce", "reduce_scatter")


def bubble(values: Values) -> float:
    """Micro-batches that a stage waits: (p - 1) / v of p stages with v chunks each (arXiv:2104.04473, section 2.2)."""
    layout = layout_of(values)
    return (layout.pipeline - 1) / layout.virtual_stages


def window_repeats(micro_batches: Any, waits: Any) -> tuple[Any, Any, int]:
    """How many of a step's micro-batches forward, backward and the last backward hold, fill and drain included."""
    return micro_batches + waits, micro_batches - 1 + waits, 1


def _repeats(window: int) -> Repeats:
    return lambda job, values: window_repeats(job.micro_batches(values), bubble(values))[window]


REPEATS: dict[str, Repeats] = {
    name: _repeats(window) for window, name in enumerate(("forward", "backward", "last_backward"))
}


def compute_terms(job: Job, outlook: str) -> Iterable[TimeTerm]:
    """Forward, backward and recomputation of every layer, and the logits with the loss, stage by stage."""
    for stage in stages(job):
        for window, repeats in REPEATS.items():
            direction: Pass = "forward" if window == "forward" else "backward"
            yield _model_term(job, stage, window, direction, repeats, outlook)
            if window != "forward":
                yield _recompute_term(job, stage, window, repeats, outlook)


def _model_term(job: Job, stage: str, window: str, direction: Pass, repeats: Repeats, outlook: str) -> TimeTerm:
    """One pass over all layers of a stage, and over embedding, logits and loss where it has them.

    While the pipeline fills and drains a stage waits for the layers of others, not for what stands at the ends.
    """

    def body(values: Values) -> int:
        share, count, times = share_of(job, values, stage), job.tokens(values), repeats(job, values)
        waits = 0.0 if window == "last_backward" else bubble(values)
        layers = times * layers_seconds(share, count, direction, outlook)
        ends = ends_seconds(share, count, direction, outlook, str(values["loss"]))
        return microseconds(layers + (times - waits) * ends)

    return TimeTerm("compute", (*BATCH, "loss"), (), body, window, STAGE_LANES[stage])


def _recompute_term(job: Job, stage: str, window: str, repeats: Repeats, outlook: str) -> TimeTerm:
    """The second forward of every checkpointed layer of a stage."""
    measured = {measure_name(name, stage): kind for name, kind in job.recomputed_kinds.items()}

    def body(values: Values) -> int:
        share, count, times = share_of(job, values, stage), job.tokens(values), repeats(job, values)
        if not share.exists:
            return 0
        policy = str(values["recompute_policy"])
        once = ((name, recomputed_seconds(share, kind, count, policy, outlook)) for name, kind in measured.items())
        return sum(microseconds(times * again) * whole(values, name) for name, again in once)

    return TimeTerm("recompute", (*BATCH, "recompute_policy"), tuple(measured), body, window, STAGE_LANES[stage])


@dataclass(frozen=True)
class _Slot:
    """A window and lane that an effect's time goes to, and how often per step it is paid there."""

    window: str
    lane: str
    repeats: Repeats


def _once(job: Job, values: Values) -> float:
    return 1


def _slots(every: str, during: str, lane: str) -> tuple[_Slot, ...]:
    """Where something paid every micro-batch or every step is paid; serial work goes to the end of the step."""
    if during == "serial":
        return (_Slot("optimizer_step", "serial", Job.micro_batches if every == "micro_batch" else _once),)
    if every == "micro_batch" and during == "backward":
        return tuple(_Slot(window, lane, REPEATS[window]) for window in ("backward", "last_backward"))
    if every == "micro_batch":
        return (_Slot(during, lane, REPEATS[during]),)
    return (_Slot("last_backward" if during == "backward" else during, lane, _once),)


def _narrow_terms(job: Job, outlook: str) -> Iterable[TimeTerm]:
    """Narrow copies of the weights where they are made once a step, on the first pipeline stage as on any."""
    size, kernels = pass_cost("narrow_weight_of_the_step", job.training.kernels, "forward")

    def body(values: Values) -> int:
        weights = share_of(job, values, stages(job)[0]).multiplied
        return microseconds(memory_seconds(job.cluster.gpu, size * weights, kernels, outlook))

    if size and job.training.precision.peak in NARROW:
        yield TimeTerm("narrow copies of the weights", ("layout",), (), body, "optimizer_step", "serial")


def _measured_terms(job: Job) -> Iterable[TimeTerm]:
    """Constants of every step and micro-batch that measured runs show beside all other terms."""
    found = job.cluster.gpu.calibration

    def body(values: Values) -> int:
        return microseconds(found.step_seconds + found.micro_batch_seconds * REPEATS["forward"](job, values))

    if found.step_seconds or found.micro_batch_seconds:
        yield TimeTerm("rest, as measured", BATCH, (), body, "optimizer_step", "serial", "calibration")


def _effect_terms(reader: Reader, effects: tuple[AnyEffect, ...], outlook: str) -> Iterable[TimeTerm]:
    """The time terms of collectives, transfers and updates."""
    for effect in effects:
        if isinstance(effect, Collective):
            yield from _collective_terms(reader, effect, outlook)
        elif isinstance(effect, Convert):
            yield from _convert_terms(reader, effect, outlook)
        elif isinstance(effect, Transfer):
            yield from _transfer_terms(reader, effect, outlook)
        elif isinstance(effect, Update):
            yield from _update_terms(reader, effect, outlook)


def _repeated(
    job: Job, slot: _Slot, name: str, scope: tuple[str, ...], seconds: Callable[[Values], float], source: str
) -> TimeTerm:
    """A term that pays `seconds` as often as its slot says."""

    def body(values: Values) -> int:
        return microseconds(slot.repeats(job, values) * seconds(values))

    return TimeTerm(name, unique([*BATCH, *scope]), (), body, slot.window, slot.lane, source)


def collective_cost(job: Job, effect: Collective, size: int, values: Values, outlook: str) -> float:
    """Seconds of one round of a collective that carries `size` bytes in all, cut in messages of its bucket."""
    if size == 0:
        return 0.0
    share = share_of(job, values, stages(job)[0])
    elements = BY_NAME[effect.of].elements(share, values)
    bucket = BY_NAME[effect.message].elements(share, values) if effect.message else elements
    messages = max(1, ceil_divide(elements, max(1, bucket)))
    layout = layout_of(values)
    group, part = axis_group(job, layout, effect.axis), axis_part(job, layout, effect.axis)
    once = collective_seconds(job.cluster, effect.operation, size * part / messages, group, outlook)
    if effect.operation in REDUCTIONS and layout.replicas > 1:
        part, between = size / messages / layout.shards, replica_group(layout)
        once += collective_seconds(job.cluster, "all_reduce", part, between, outlook)
    ranks = group.size if group.size > 1 else 0
    return messages * (once + ranks * effect.per_rank * 1e-6)


def _collective_terms(reader: Reader, effect: Collective, outlook: str) -> Iterable[TimeTerm]:
    """A collective's time in each window that it is paid in."""
    scope, _, amount = reader.amount(effect.of, effect.bytes, None, effect.when)
    _, _, copied = reader.amount(effect.of, Fraction(effect.copied), None, effect.when)
    job = reader.job

    def seconds(values: Values) -> float:
        return collective_cost(job, effect, amount(values), values, outlook)

    def copies(values: Values) -> float:
        part = axis_part(job, layout_of(values), effect.axis) if layout_of(values).shards > 1 else 0
        return memory_seconds(job.cluster.gpu, copied(values) * part, 0, outlook)

    sent = [BY_NAME[name] for name in (effect.of, effect.message, effect.ahead) if name]
    names = unique(["layout", *scope, *(name for quantity in sent for name in quantity.scope)])
    late = 0 < effect.awaited_above < job.architecture.largest_layer
    if late and effect.operation == "all_gather" and effect.during == "backward":
        yield from _gathered_again(job, effect, names, seconds)
    for slot in _slots(effect.every, effect.during, "serial" if late else "communication"):
        if slot.lane == "serial":
            yield _repeated(job, slot, effect.name, names, seconds, effect.source)
        else:
            yield from _beside(job, slot, effect, names, seconds, outlook)
        if effect.copied:
            yield _repeated(job, _Slot(slot.window, "serial", slot.repeats), COPIES, names, copies, effect.source)


def _beside(
    job: Job,
    slot: _Slot,
    effect: Collective,
    names: tuple[str, ...],
    seconds: Callable[[Values], float],
    outlook: str,
) -> Iterable[TimeTerm]:
    """What a collective takes beside the layers, and of their compute; they wait for what is not sent ahead."""
    share, part = overlap_slowdown(job).at(outlook), stages(job)[0]
    ahead = BY_NAME[effect.ahead] if effect.ahead else None

    def sent(values: Values) -> bool:
        return ahead is None or ahead.elements(share_of(job, values, part), values) > 0

    def beside(values: Values) -> float:
        return seconds(values) if sent(values) else 0.0

    def awaited(values: Values) -> float:
        return 0.0 if sent(values) else seconds(values)

    yield _repeated(job, slot, effect.name, names, beside, effect.source)
    for stage in stages(job):
        lane = _Slot(slot.window, STAGE_LANES[stage], slot.repeats)
        yield _repeated(job, lane, SLOWDOWN, names, lambda values: share * beside(values), effect.source)
    if ahead is not None:
        alone = _Slot(slot.window, "serial", slot.repeats)
        yield _repeated(job, alone, effect.name, names, awaited, effect.source)


def _gathered_again(
    job: Job, effect: Collective, scope: tuple[str, ...], seconds: Callable[[Values], float]
) -> Iterable[TimeTerm]:
    """One more gather of every recomputed layer: its share of the gather of the whole model."""
    stage = stages(job)[0]
    measured = {measure_name(name, stage): kind for name, kind in job.recomputed_kinds.items()}
    for window in ("backward", "last_backward"):

        def body(values: Values, window: str = window) -> int:
            whole_model = REPEATS[window](job, values) * seconds(values) / share_of(job, values, stage).parameters
            return sum(microseconds(whole_model * k.parameters) * whole(values, name) for name, k in measured.items())

        names = unique([*BATCH, *scope])
        yield TimeTerm(f"{effect.name}, once more", names, tuple(measured), body, window, "serial", effect.source)


def _convert_terms(reader: Reader, effect: Convert, outlook: str) -> Iterable[TimeTerm]:
    """The time of kernels that only read and write GPU memory; nothing hides it."""
    scope, _, amount = reader.amount(effect.of, effect.bytes, None, effect.when)
    job = reader.job

    def seconds(values: Values) -> float:
        return memory_seconds(job.cluster.gpu, amount(values), 0, outlook)

    for slot in _slots(effect.every, effect.during, "serial"):
        yield _repeated(job, slot, effect.name, unique(["layout", *scope]), seconds, effect.source)


def _transfer_terms(reader: Reader, effect: Transfer, outlook: str) -> Iterable[TimeTerm]:
    """A copy's time over the host link or NVMe; every rank of a node copies at the same time."""
    scope, _, amount = reader.amount(effect.of, effect.bytes, effect.over, effect.when, part=effect.part)
    cluster, job = reader.job.cluster, reader.job

    def seconds(values: Values) -> float:
        size, ranks = amount(values), job.ranks_per_node(values)
        if effect.link == "host_link":
            return host_link_seconds(cluster, size, effect.direction, ranks, outlook)
        if cluster.node.nvme is None:
            return 0.0  # no plan with NVMe is allowed then, see constraints/nvme_holds_what_is_moved_there.py
        read, write = (size, 0) if effect.direction == "read" else (0, size)
        return nvme_seconds(cluster, read, write, ranks, outlook)

    for slot in _slots(effect.every, effect.during, "host_link"):
        yield _repeated(job, slot, effect.name, unique(["layout", *scope]), seconds, effect.source)


def _update_terms(reader: Reader, effect: Update, outlook: str) -> Iterable[TimeTerm]:
    """The optimizer's pass over its states, on the GPU or on the host's cores."""
    scope, _, amount = reader.amount(effect.of, effect.bytes, effect.over, effect.when, part=effect.part)
    calls_scope, launched = _launches(reader, effect, outlook)
    job, scope = reader.job, unique([*scope, *calls_scope])

    def seconds(values: Values) -> float:
        size = amount(values)
        if not size:
            return 0.0
        if effect.unit == "cpu":
            elements = ceil(size / effect.bytes)  # type: ignore[operator]  # a number for every update
            return cpu_optimizer_seconds(job.cluster, elements, job.ranks_per_node(values), outlook) + launched(values)
        tensors = len(share_of(job, values, stages(job)[0]).sizes)
        host = tensors * job.runtime.host_update * 1e-6 * job.cluster.gpu.calibration.launches + launched(values)
        return max(host, updated_seconds(job, size, tensors, outlook))

    for slot in _slots("step", effect.during, "host"):
        yield _repeated(job, slot, effect.name, scope, seconds, effect.source)


def _launches(reader: Reader, effect: Update, outlook: str) -> tuple[tuple[str, ...], Callable[[Values], float]]:
    """(scope, seconds of the host) of the calls that come on top of those in the rates of the catalogs."""
    if not effect.calls:
        return (), lambda _: 0.0
    scope, _, calls = reader.amount(effect.calls, Fraction(1), None, effect.when, part=effect.part)
    launches = reader.job.cluster.gpu.calibration.launches
    return scope, lambda values: launches * host_seconds(calls(values) * effect.kernels, "eager", "forward", outlook)
