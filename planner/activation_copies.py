"""Time of copying offloaded activations to host memory during forward and back during backward, beside the layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from planner.cluster import host_link_seconds
from planner.exchange import Repeats
from planner.job import Job
from planner.layouts import stages
from planner.memory import checkpoint_amount
from planner.plan import whole
from planner.share import measure_name, share_of
from planner.terms import TimeTerm, Values

SCOPE = ("layout", "micro_batch", "recompute_policy", "activation_offload")
DIRECTIONS = {"forward": "from_gpu", "backward": "to_gpu", "last_backward": "to_gpu"}


def copy_terms(
    job: Job, windows: dict[str, Repeats], microseconds: Callable[[float], int], outlook: str
) -> Iterable[TimeTerm]:
    """One term for each window: a kept layer moves all that it keeps, a checkpointed one its checkpoint.

    Of a pipeline's stages the first is counted; the others have as many layers or one less.
    """
    if "cpu" in job.offloads_activations:
        for window, repeats in windows.items():
            yield _window(job, window, repeats, microseconds, outlook)


def _window(job: Job, window: str, repeats: Repeats, microseconds: Callable[[float], int], outlook: str) -> TimeTerm:
    """The copies of one window, each layer's apart."""
    stage, direction = stages(job)[0], DIRECTIONS[window]
    layers = {measure_name(name, stage): kind for name, kind in job.recomputed_kinds.items()}
    checkpoints = measure_name("checkpoints", stage)

    def once(values: Values, size: int) -> int:
        seconds = host_link_seconds(job.cluster, size, direction, job.ranks_per_node(values), outlook)
        return microseconds(repeats(job, values) * seconds)

    def body(values: Values) -> int:
        share, count = share_of(job, values, stage), job.tokens(values)
        if values["activation_offload"] != "cpu" or not share.exists:
            return 0
        dropped = ((kind, -whole(values, name)) for name, kind in layers.items())
        kept = sum(n * once(values, share.of(kind).stored.at(count)) for kind, n in (*share.kind_counts, *dropped))
        largest = max(checkpoint_amount(share.of(kind), values).at(count) for kind, _ in share.kind_counts)
        return kept + once(values, largest) * whole(values, checkpoints)

    name = "activations to the host and back"
    return TimeTerm(name, SCOPE, (*layers, checkpoints), body, window, "host_link")
