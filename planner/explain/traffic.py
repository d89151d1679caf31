"""What a plan sends between GPUs: each collective with its link, its bytes and its seconds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil

from planner.cluster import Group, bottleneck, describe, spread
from planner.effect_terms import Reader, job_effects
from planner.effects import Axis, Collective
from planner.evaluate import Evaluation
from planner.exchange import axis_group, axis_part
from planner.layouts import stages
from planner.plan import layout_of
from planner.space import job_space


@dataclass(frozen=True)
class Traffic:
    """One exchange of a step: `bytes` of the whole step as its operation counts them, `seconds` of the time term.

    Exchanges inside a layer and between stages have no `bytes` and no `rounds`. `link` is the slowest that the ranks
    cross, over a `network` where they lie on several nodes; `bandwidth` is what it gives each of them in bytes/s.
    """

    name: str
    operation: str
    bytes: int | None
    rounds: int | None
    seconds: float
    link: str
    bandwidth: float
    where: str
    network: bool


def traffic(found: Evaluation) -> tuple[Traffic, ...]:
    """The collectives of a plan that take time, longest first."""
    job, seconds = found.job, found.step_time.terms
    values = job_space(job).complete(found.plan)
    layout = layout_of(values)
    reader = Reader(job, job_effects(job), stages(job)[0])
    totals: dict[tuple[str, str, Axis], tuple[int, int]] = {}
    for effect in reader.effects:
        if not isinstance(effect, Collective) or effect.name not in seconds:
            continue
        _, _, amount = reader.amount(effect.of, effect.bytes, None, effect.when)
        rounds = job.micro_batches(values) if effect.every == "micro_batch" else 1
        if size := ceil(amount(values) * axis_part(job, layout, effect.axis)):
            key = (effect.name, effect.operation, effect.axis)
            before, times = totals.get(key, (0, 0))
            totals[key] = (before + size * rounds, times + rounds)
    sent = [
        _traffic(found, name, operation, axis_group(job, layout, axis), size, times)
        for (name, operation, axis), (size, times) in totals.items()
    ]
    return tuple(sorted([*sent, *_exchanges(found)], key=lambda item: -item.seconds))


def _traffic(
    found: Evaluation, name: str, operation: str, group: Group, size: int | None = None, rounds: int | None = None
) -> Traffic:
    """One exchange of a group with the link that holds it up."""
    cluster, seconds = found.job.cluster, found.step_time.terms[name]
    path, network = bottleneck(cluster, group), spread(cluster, group).nodes > 1
    where = describe(cluster, group)
    return Traffic(name, operation, size, rounds, seconds, path.link, path.bandwidth, where, network)


def _exchanges(found: Evaluation) -> Iterator[Traffic]:
    """What ranks exchange inside a layer and between stages."""
    layout = layout_of(found.plan)
    groups = {
        "tensor-parallel exchange": Group(layout.tensor),
        "sequence-parallel exchange": Group(layout.sequence, layout.tensor),
        "expert-parallel exchange": Group(layout.expert, layout.tensor),
        "pipeline exchange": Group(2, layout.ranks // layout.pipeline),
    }
    for name, group in groups.items():
        if name in found.step_time.terms and group.size > 1:
            yield _traffic(found, name, "exchange", group)
