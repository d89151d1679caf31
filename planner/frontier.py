"""The exact frontier of a job: plans of which none is at least as good as another in both axes, proven by the solver.

A sweep over the same forms finds the plans; one question to the solver then proves that no plan lies below them, and
the evaluator's figures must be the sweep's, byte for byte and microsecond for microsecond.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from planner.compile import Question, below
from planner.errors import InputError, InternalError, NoPlan
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.objective import cost, cost_unit
from planner.points import enumerate_points
from planner.search import solve
from planner.specification import specify
from planner.sweep import TIME, Corner, Progress, plan_of, sweep
from planner.units import shown

PROOF_SECONDS = 8.0  # the solver's longest time for the proof
MOST_NODES = 4  # how many times the job's nodes the axis of GPUs goes up to


@dataclass(frozen=True)
class Axis:
    """One axis: less is better. `coordinate` is what the sweep reads for it, empty where the cluster decides it."""

    name: str
    label: str
    coordinate: str
    value: Callable[[Evaluation], float]
    unit: Callable[[Job], str]


@dataclass(frozen=True)
class FrontierProof:
    """What is proven over how many configurations: no plan is better than the points by more than `tolerance`.

    `confirmed`: the solver proved it too, on its own model, within its time.
    """

    tolerance: float
    configurations: int
    solver_seconds: float
    confirmed: bool


@dataclass(frozen=True, eq=False)
class Frontier:
    """The points by the first axis, rising; the first is leanest there, the last is best in the second axis."""

    job: Job
    axes: tuple[Axis, Axis]
    points: tuple[Evaluation, ...]
    proof: FrontierProof

    def values(self, point: Evaluation) -> tuple[float, float]:
        """A point's place on the two axes."""
        first, second = self.axes
        return first.value(point), second.value(point)


def token_seconds(evaluation: Evaluation) -> float:
    """Seconds for 10^6 tokens on the whole cluster."""
    return 1e6 / (evaluation.tokens_per_second_per_gpu * evaluation.job.cluster.gpus)


AXES = (
    Axis("memory", "GPU memory", "gpu", lambda found: found.peak_bytes, lambda _: "bytes"),
    Axis("host_memory", "host memory", "host", lambda found: found.ledger["host"].peak.total, lambda _: "bytes"),
    Axis("step_time", "step time", TIME, lambda found: found.step_time.seconds, lambda _: "seconds"),
    Axis("token_time", "time per 10^6 tokens", TIME, token_seconds, lambda _: "seconds"),
    Axis("cost", "cost", TIME, lambda found: cost(found, 1e9), lambda job: f"{cost_unit(job)} per 10^9 tokens"),
    Axis("gpus", "GPUs", "", lambda found: found.job.cluster.gpus, lambda _: "GPUs"),
)
NAMES = tuple(axis.name for axis in AXES)


def read_axes(text: str) -> tuple[Axis, Axis]:
    """Two axes by name, separated by a comma. Raises InputError."""
    names = [name.strip() for name in text.split(",")]
    found = [axis for name in names for axis in AXES if axis.name == name]
    if len(found) != 2 or len(names) != 2:
        raise InputError(f"{shown(text)} is no pair of axes", path="--axes", expected="two of " + ", ".join(NAMES))
    first, second = found
    if first.coordinate == second.coordinate:
        raise InputError(
            f"{first.name} and {second.name} rise and fall together on one cluster", path="--axes",
            expected="two different axes of " + ", ".join(NAMES),
        )  # fmt: skip
    return first, second


def frontier(
    job: Job, axes: tuple[Axis, Axis] | None = None, tolerance: float = 0.0, progress: Progress | None = None
) -> Frontier:
    """The frontier of `job`; a point is left out where another is as good in one axis and within `tolerance` (a
    share) in the other. Both ends are always there. Raises NoPlan with a proof where nothing fits.
    """
    first, second = axes or read_axes("memory,step_time")
    if not first.coordinate or not second.coordinate:
        return _over_clusters(job, (first, second), progress)
    specification = specify(job)
    points = enumerate_points(specification)
    capacities = specification.capacities
    corners = sweep(points, (first.coordinate, second.coordinate), capacities, progress)
    if not corners:
        raise _no_plan(job)
    coordinates = (first.coordinate, second.coordinate)
    question = Question("rank", capacities, min(job.time_limit, PROOF_SECONDS))
    answer = below(points, question, coordinates, [(corner.first, corner.second) for corner in corners])
    if answer.plan is not None:
        raise InternalError(f"the solver finds a plan below the frontier: {answer.plan}")
    proof = FrontierProof(tolerance, specification.space.size, answer.seconds, answer.status == "infeasible")
    kept = _thinned(corners, tolerance)
    found = tuple(_checked(evaluate(job, plan_of(points, corner)), corner, coordinates) for corner in kept)
    return Frontier(job, (first, second), found, proof)


def _no_plan(job: Job) -> NoPlan:
    """The failure with its conflict, as the search proves it."""
    try:
        solve(job)
    except NoPlan as failure:
        return failure
    raise InternalError("the solver finds a plan where the sweep finds none")


def _thinned(corners: Sequence[Corner], tolerance: float) -> list[Corner]:
    """The corners from the best second coordinate back, without those that a kept one is within tolerance of."""
    kept: list[Corner] = []
    for corner in reversed(corners):
        near = kept and kept[-1].first <= (1 + tolerance) * corner.first
        if not near or corner is corners[0]:
            kept.append(corner)
    return kept[::-1]


def _checked(found: Evaluation, corner: Corner, coordinates: tuple[str, str]) -> Evaluation:
    """The evaluation, whose figures are the corner's and which breaks nothing, or it is a bug of ours."""
    figures = tuple(
        found.step_time.microseconds if name == TIME else found.ledger[name].peak.total for name in coordinates
    )
    if figures != (corner.first, corner.second) or found.violations:
        raise InternalError(f"the frontier's {(corner.first, corner.second)} differs from the evaluated {figures}")
    return found


def _over_clusters(job: Job, axes: tuple[Axis, Axis], progress: Progress | None) -> Frontier:
    """The best plan of every cluster size in the other axis, those kept that no smaller cluster is as good as."""
    other = axes[0] if axes[0].coordinate else axes[1]
    beside = next(axis for axis in AXES if axis.coordinate not in ("", other.coordinate))
    clusters = tuple(cluster_sizes(job))
    found: list[Evaluation] = []
    proofs: list[FrontierProof] = []
    for index, sized in enumerate(clusters):
        try:
            best = frontier(sized, (other, beside), tolerance=inf)  # the ends are enough
        except NoPlan:
            continue
        finally:
            if progress is not None:
                progress(index + 1, len(clusters))
        proofs.append(best.proof)
        if not found or other.value(best.points[0]) < other.value(found[-1]):
            found.append(best.points[0])
    if not found:
        raise _no_plan(job)
    ordered = sorted(found, key=axes[0].value)
    return Frontier(job, axes, tuple(ordered), _together(proofs))


def _together(proofs: Sequence[FrontierProof]) -> FrontierProof:
    """What several complete proofs prove in all."""
    seconds = sum(proof.solver_seconds for proof in proofs)
    return FrontierProof(0.0, sum(proof.configurations for proof in proofs), seconds, all(p.confirmed for p in proofs))


def cluster_sizes(job: Job) -> Iterator[Job]:
    """The job on fewer and more of its nodes by factors of two, and on fewer GPUs of one node where no node is named.

    Only clusters that can exist: without a network there is one node.
    """
    cluster = job.cluster
    plain = cluster.node.key == f"{cluster.node.gpus}x-{cluster.gpu.key}"
    if plain:
        yield from (_with_gpus(job, count) for count in _powers(cluster.node.gpus) if count < cluster.node.gpus)
    networked = cluster.node.nics and cluster.node.nic_link
    most = MOST_NODES * cluster.nodes if networked else 1
    for count in sorted({*_powers(most), cluster.nodes}):
        yield replace(job, cluster=replace(cluster, nodes=count))


def _powers(most: int) -> list[int]:
    """Powers of two up to `most`."""
    return [2**exponent for exponent in range(most.bit_length()) if 2**exponent <= most]


def _with_gpus(job: Job, count: int) -> Job:
    """The job on one node with fewer GPUs; host memory goes with them."""
    node = job.cluster.node
    share: Mapping[str, object] = {
        "key": f"{count}x-{node.gpu}",
        "gpus": count,
        "host_memory": node.host_memory * count // node.gpus,
        "topology": node.topology if count > 1 else "single",
        "scale_up_link": node.scale_up_link if count > 1 else None,
    }
    return replace(job, cluster=replace(job.cluster, nodes=1, node=node.overridden(**share)))
