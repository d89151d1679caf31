"""A job that leaves decisions open, read: a job for each cluster and each combination of what it allows.

For those that cannot be had, a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.choosing.allowed import has_range, variants
from planner.choosing.allowed_choices import idle_choice
from planner.choosing.clusters import is_open, listed
from planner.choosing.variant import Allowance, Variant
from planner.document_builder import Path as Place
from planner.errors import InputError
from planner.job import Job
from planner.job_file import ClusterSettings, JobFile
from planner.lookup import Lookup, read_lookup
from planner.reading import Document, dotted, nearest, read_document, validated
from planner.resolve import read_pins, resolve_in

OBJECTIVES = ("step_time", "cost", "smallest")
ALIASES: Mapping[str, str] = {"cost_per_token": "cost", "tokens_per_second": "step_time"}
TIME_LIMIT = 120.0  # seconds over all candidates, where the job names no limit
MOST = 400  # candidates of one job
OWN = "own values"  # the name of the job as it stands, where only settings are left open
MOST_REASONS = 4  # told where no cluster can be planned


@dataclass(frozen=True, eq=False)
class Candidate:
    """One cluster: the `cluster` of a job file with this cluster alone, and the job on it or why it is left out.

    Where the job allows other training settings one cluster with one combination of them, `variant`.
    """

    name: str
    settings: Mapping[str, Any]
    job: Job | None
    reason: str = ""
    variant: Variant = Variant()

    @cached_property
    def changes(self) -> tuple[int, int]:
        """How many changes of numerics or convergence it makes, and how many of its values are not the job's own."""
        allowances = self.variant.allowances
        return sum(allowance.changes_training for allowance in allowances), len(allowances)

    @property
    def global_batch(self) -> int:
        """Sequences of one step, 0 where it is left out."""
        return self.job.training.global_batch if self.job is not None else 0

    @property
    def gpus(self) -> int:
        """GPUs in all nodes, 0 for a cluster that is left out."""
        return self.job.cluster.gpus if self.job is not None else 0

    @cached_property
    def price_per_hour(self) -> float | None:
        """US dollars for the whole cluster and hour; None where nobody states one."""
        price = None if self.job is None else self.job.cluster.gpu_price_per_hour
        return None if price is None or self.job is None else price * self.job.cluster.gpus

    @property
    def price_source(self) -> str | None:
        """Whose price it is: `job`, the catalog's `node`, or the catalog's `gpu` (its cheapest public node)."""
        if self.job is None or self.price_per_hour is None:
            return None
        if "gpu_price" in self.settings:
            return "job"
        return "gpu" if self.job.cluster.node.price_per_hour is None else "node"


@dataclass(frozen=True, eq=False)
class Choice:
    """What is to be chosen: the candidates in the order of the file, what counts (one of OBJECTIVES), the time for it.

    On each cluster the job's own training settings come first. `data`: what the file holds.
    """

    name: str
    objective: str
    time_limit: float
    candidates: tuple[Candidate, ...]
    data: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def allows(self) -> bool:
        """Whether training settings are left open."""
        return self.data.get("allow") is not None or has_range(self.data)

    @cached_property
    def batches_differ(self) -> bool:
        """Whether steps are of different numbers of tokens."""
        return len({candidate.global_batch for candidate in self.candidates if candidate.job is not None}) > 1

    @cached_property
    def offered(self) -> tuple[Allowance, ...]:
        """Everything that is allowed in place of the job's own values, each once."""
        every = (allowance for candidate in self.candidates for allowance in candidate.variant.allowances)
        return tuple({(allowance.setting, allowance.label): allowance for allowance in every}.values())

    @property
    def what(self) -> str:
        """What one candidate is: `cluster`, `variant` of the job, or `combination` of both."""
        if not self.allows:
            return "cluster"
        return "combination" if is_open(self.data.get("cluster")) else "variant"

    @property
    def where(self) -> str:
        """A plan is on a cluster and with settings."""
        return "on" if self.what == "cluster" else "with"


def leaves_open(data: object) -> bool:
    """Whether what a job file holds leaves the cluster open or training settings, a range of global batches too.

    Such a range counts for the objectives that are about time; for others the largest batch is planned.
    """
    if not isinstance(data, dict):
        return False
    objective = data.get("objective", OBJECTIVES[0])
    of_time = isinstance(objective, str) and objective in (*OBJECTIVES, *ALIASES)
    return is_open(data.get("cluster")) or data.get("allow") is not None or (of_time and has_range(data))


def file_leaves_open(path: Path) -> bool:
    """Whether a job file leaves its cluster or training settings open. Raises InputError for a file that is none."""
    return leaves_open(read_document(path).data)


def leaves_cluster_open(path: Path) -> bool:
    """Whether a job file lists clusters to choose from, or any GPU. Raises InputError for a file that is none."""
    data = read_document(path).data
    return isinstance(data, dict) and is_open(data.get("cluster"))


def read_choice(
    path: Path, catalogs: Iterable[Path] = (), pins: Iterable[str] = (), time_limit: float | None = None
) -> Choice:
    """The choice that a job file describes. Raises InputError, also where none of the candidates can be planned."""
    return choice_of(read_document(path), path.stem, catalogs, pins, time_limit)


def choice_of(
    document: Document, name: str, catalogs: Iterable[Path] = (), pins: Iterable[str] = (),
    time_limit: float | None = None,
) -> Choice:  # fmt: skip
    """The choice of a document that was read; see `read_choice`."""
    several = is_open(document.data.get("cluster"))
    objective = _objective(document, several)
    reader = _Reader(document, name, read_lookup(catalogs), tuple(pins))
    alone: tuple[Place, Any] = (("cluster",), document.data.get("cluster"))
    places: Iterable[tuple[Place, Any]] = listed(document, reader.lookup.hardware) if several else (alone,)
    found: list[Candidate] = []
    for at, settings in places:
        found += reader.candidates(at, settings)
        if len(found) > MOST:
            raise document.error(("allow",), "too many combinations of clusters and what is allowed", f"at most {MOST}")
    if objective == "cost" and several:
        found = list(map(_priced, found))
    elif objective == "cost" and found[0].price_per_hour is None:
        objective = "step_time"  # on one cluster the cost grows with the time, whatever the price
    if all(candidate.job is None for candidate in found):
        reasons = "; ".join(f"{candidate.name}: {candidate.reason}" for candidate in found[:MOST_REASONS])
        what, key = ("clusters", "cluster") if several else ("variants", "training")
        raise document.error((key,), f"none of the {what} can be planned: {reasons}")
    limit = reader.time_limit if time_limit is None else time_limit
    return Choice(name, objective, limit, tuple(_distinct(found)), document.data)


def _objective(document: Document, several: bool) -> str:
    """What the job minimises over its candidates."""
    named = document.data.get("objective", OBJECTIVES[0])
    objective = ALIASES.get(named, named) if isinstance(named, str) else named
    known = OBJECTIVES if several else OBJECTIVES[:2]
    if objective not in known:
        message = f"{named!r} does not choose a cluster" if several else f"{named!r} does not choose what is allowed"
        expected = "one of " + ", ".join(known) + (", where the cluster is left open" if several else "")
        raise document.error(("objective",), message, expected, nearest(str(named), known))
    return str(objective)


@dataclass
class _Reader:
    """Reads the candidates of one document; `time_limit` is the file's, once a candidate was read."""

    document: Document
    name: str
    lookup: Lookup
    pins: tuple[str, ...]
    time_limit: float = TIME_LIMIT

    def candidates(self, at: Place, settings: Any) -> Iterator[Candidate]:
        """The candidates on one cluster: the job's own settings first, others only where the cluster can be.

        Raises InputError for mistakes in the rest of the job, and for names in `allow` that nobody knows.
        """
        job_file = _job_file(self.document, at, settings)
        if "time_limit" in self.document.data:
            self.time_limit = job_file.time_limit
        label = f"{job_file.cluster.nodes} × {_machine(job_file.cluster)}"
        for number, variant in enumerate(variants(self.document, job_file, self.lookup)):
            named = _named(label, variant) if is_open(self.document.data.get("cluster")) else variant.label or OWN
            try:
                job = self._job(at, settings, variant)
            except InputError as error:
                if number == 0 and not _of_the_cluster(error):
                    raise _placed(error, at) from None
                yield Candidate(named, settings, None, error.message, variant)
                if number == 0 and error.path.split(".")[0] == "cluster":
                    return
            else:
                yield Candidate(named, settings, self._pinned(job), variant=variant)

    def _job(self, at: Place, settings: Any, variant: Variant) -> Job:
        """The job on one cluster with one combination of what is allowed. Raises InputError."""
        document = self.document
        if variant.training:
            training = {**document.data["training"], **variant.training}
            document = replace(document, data={**document.data, "training": training})
        if variant.choices:
            choices = {**document.data.get("choices", {}), **variant.choices}
            document = replace(document, data={**document.data, "choices": choices})
        job_file = _job_file(document, at, settings)
        job = resolve_in(self.lookup, job_file, _moved(document, at, document.data), self.name)
        if reason := idle_choice(job, variant):
            raise InputError(reason, path="allow.choices")
        return job

    def _pinned(self, job: Job) -> Job:
        """The job with the choices that were pinned beside the file."""
        values = {key: (value,) for key, value in read_pins(job, self.pins).items()}
        return job.with_choices(values) if values else job


def _named(cluster: str, variant: Variant) -> str:
    """The name of a cluster with a combination of settings."""
    return f"{cluster} with {variant.label}" if variant.label else cluster


def _job_file(document: Document, at: Place, settings: Any) -> JobFile:
    """The job file with one cluster and an objective that counts on it; mistakes are where the file has them."""
    whole = dict(document.data)
    if is_open(whole.get("cluster")):
        whole |= {"cluster": dict(settings), "objective": "step_time"}
    try:
        return validated(JobFile, _moved(document, at, whole))
    except InputError as error:
        raise _placed(error, at) from None


def _placed(error: InputError, at: Place) -> InputError:
    """A mistake in the cluster by its place in the list."""
    inside = error.path.split(".")[0] == "cluster"
    return replace(error, path=dotted(at) + error.path.removeprefix("cluster")) if inside else error


def _moved(document: Document, at: Place, data: Mapping[str, Any]) -> Document:
    """The document with other data, and the places of one cluster of the list where a job file has its cluster."""
    marks, keys = (
        {**places, **{("cluster", *place[len(at) :]): mark for place, mark in places.items() if place[: len(at)] == at}}
        for places in (document.marks, document.key_marks)
    )
    return replace(document, data=data, marks=marks, key_marks=keys)


def _of_the_cluster(error: InputError) -> bool:
    """Whether a mistake is about what a cluster can do (a network, a precision), and not about the job or a name."""
    place = error.path.split(".")[0]
    return (
        place == "cluster" or place == "training" and " has no " in error.message
    ) and "unknown" not in error.message


def _machine(cluster: ClusterSettings) -> str:
    """The name of the node, also of one that only its GPUs describe."""
    return cluster.node if cluster.node is not None else f"{cluster.gpus_per_node}x-{cluster.gpu}"


def _priced(candidate: Candidate) -> Candidate:
    """The candidate, left out where the objective needs a price and there is none."""
    if candidate.job is None or candidate.price_per_hour is not None:
        return candidate
    reason = f"no price is known for {candidate.job.cluster.gpu.key}; state gpu_price"
    return replace(candidate, job=None, reason=reason)


def _distinct(found: list[Candidate]) -> Iterable[Candidate]:
    """The candidates; those whose names repeat are told apart by a number."""
    seen: dict[str, int] = {}
    for candidate in found:
        seen[candidate.name] = seen.get(candidate.name, 0) + 1
        again = seen[candidate.name]
        yield candidate if again == 1 else replace(candidate, name=f"{candidate.name} ({again})")


def job_text(choice: Choice, candidate: Candidate, path: Path) -> str:
    """The job on one of its clusters as a file; a model beside the job file at `path` is named by its whole path."""
    import yaml

    data = {name: value for name, value in choice.data.items() if name != "allow"}
    data["cluster"] = dict(candidate.settings)
    data["training"] = {**data["training"], **candidate.variant.training}
    if candidate.variant.choices:
        data["choices"] = {**data.get("choices", {}), **candidate.variant.choices}
    if data.get("objective") == "smallest":
        del data["objective"]
    model = data["model"]
    if isinstance(model, str) and model.lower().endswith((".json", ".yaml", ".yml")):
        data["model"] = str((path.parent / model).resolve())
    return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
