"""Training settings that a job leaves open: its own ones first, then every combination of what it allows instead.

`planner.choosing.preference` says which of them is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

from planner import hardware_catalog
from planner.choosing.allowed_choices import choice_options
from planner.choosing.variant import Allowance, Changes, Variant
from planner.document_builder import Path
from planner.errors import InputError
from planner.hardware_catalog import Hardware
from planner.job_file import Adapter, AdapterMethod, AllowSettings, BatchRange, JobFile
from planner.lookup import Lookup
from planner.reading import Document, nearest
from planner.resolve import KERNELS
from planner.space import divisors
from planner.techniques import read_runtime
from planner.units import shown

MOST_BATCHES = 8  # of one range
MOST = 400  # variants of one job on one cluster
CHANGES: Mapping[str, Changes] = {
    "optimizer": "numerics", "precision": "numerics", "method": "numerics", "global_batch": "convergence",
    "attention": "installation", "kernels": "installation",
}  # fmt: skip


def has_range(data: Mapping[str, Any]) -> bool:
    """Whether the job's own global batch is a range."""
    training = data.get("training")
    batch = training.get("global_batch") if isinstance(training, dict) else None
    return isinstance(batch, dict) and batch.get("min") != batch.get("max")


def variants(document: Document, job_file: JobFile, lookup: Lookup) -> list[Variant]:
    """The job's own values, then every combination of what is allowed; the last setting varies fastest.

    Raises InputError for names that the catalog does not know, with their places.
    """
    allowed = job_file.allow or AllowSettings()  # type: ignore[call-arg]  # every field has a default
    options = [
        [Variant(), *_named(document, job_file, allowed, setting)] for setting in CHANGES if setting != "global_batch"
    ]
    options += choice_options(document, allowed.choices, lookup.techniques)
    options.append(_batches(document, job_file, allowed, lookup.hardware))
    count = prod(map(len, options))
    if count > MOST:
        raise document.error(("allow",), f"{count:,} combinations are allowed", f"at most {MOST}")
    return [_joined(chosen) for chosen in product(*options)]


def _joined(chosen: tuple[Variant, ...]) -> Variant:
    """One combination of one option of each setting."""
    training = {name: value for option in chosen for name, value in option.training.items()}
    choices = {name: value for option in chosen for name, value in option.choices.items()}
    allowances = tuple(allowance for option in chosen for allowance in option.allowances)
    return Variant(training, allowances, ", ".join(option.label for option in chosen if option.label), choices)


def _named(document: Document, job_file: JobFile, allowed: AllowSettings, setting: str) -> Iterator[Variant]:
    """The values of a list that are not the job's own, each once."""
    values = getattr(allowed, setting)
    if not values:
        return
    own = getattr(job_file.training, setting)
    if setting == "kernels" and own is None:
        own = read_runtime(job_file.training.runtime).kernels
    seen = [own]
    for index, value in enumerate(values):
        at = ("allow", setting, index)
        KNOWN.get(setting, _anything)(document, at, value)
        if value not in seen:
            seen.append(value)
            yield _option(setting, document.data["allow"][setting][index], LABELS[setting](value), LABELS[setting](own))


def _option(setting: str, value: Any, label: str, own: str) -> Variant:
    """One value of one setting in place of the job's own."""
    return Variant({setting: value}, (Allowance(setting, value, label, own, CHANGES[setting]),), label)


def _anything(document: Document, at: Path, value: object) -> None:
    """Nothing is asked of values that the schema has listed."""


def _known_optimizer(document: Document, at: Path, name: str) -> None:
    """InputError for an optimizer that the catalog does not have."""
    try:
        hardware_catalog.optimizer(name)
    except InputError as error:
        raise document.error(at, error.message, error.expected, error.hint) from None


def _known_kernels(document: Document, at: Path, name: str) -> None:
    """InputError for kernels that nobody knows."""
    if name not in KERNELS:
        message = f"unknown kernels {shown(name)}"
        raise document.error(at, message, "one of " + ", ".join(KERNELS), nearest(name, KERNELS))


def _method_label(method: str | AdapterMethod) -> str:
    """Such as `full`, `lora 16`, `qlora 8 on q and v`."""
    if isinstance(method, str):
        return method
    adapter, every = method.adapter, Adapter.model_fields["targets"].default
    targets = "" if adapter.targets == every else " on " + " and ".join(adapter.targets)
    return f"{method.name} {adapter.rank}{targets}" + (" with embeddings" if adapter.train_embeddings else "")


KNOWN: Mapping[str, Callable[[Document, Path, Any], None]] = {"optimizer": _known_optimizer, "kernels": _known_kernels}
LABELS: Mapping[str, Callable[[Any], str]] = {
    "optimizer": str,
    "precision": str,
    "method": _method_label,
    "attention": lambda name: f"{name} attention",
    "kernels": lambda name: f"{name} kernels",
}


# ── global batches ───────────────────────────────────────────────────────────────────────────────────────────────────


def _batches(document: Document, job_file: JobFile, allowed: AllowSettings, hardware: Hardware) -> list[Variant]:
    """The job's own batch and those allowed; of a range of its own the largest first, and none counts as a change."""
    gpus, own = _gpus(job_file, hardware), job_file.training.global_batch
    if isinstance(own, BatchRange):
        if allowed.global_batch is not None:
            message = "training.global_batch is a range already"
            raise document.error(("allow", "global_batch"), message, "one of the two", key=True)
        largest_first = reversed(batches_between(own.min, own.max, gpus))
        return [Variant({"global_batch": size}, (), f"batch {size}") for size in largest_first]
    wanted = allowed.global_batch
    if wanted is None:
        return [Variant()]
    sizes = batches_between(wanted.min, wanted.max, gpus) if isinstance(wanted, BatchRange) else wanted
    others = (size for size in dict.fromkeys(sizes) if size != own)
    return [
        Variant(label=f"batch {own}"),
        *(_option("global_batch", size, f"batch {size}", f"batch {own}") for size in others),
    ]


def _gpus(job_file: JobFile, hardware: Hardware) -> int:
    """GPUs in all nodes; 1 for a node that no catalog has."""
    cluster = job_file.cluster
    node = hardware.nodes.get(cluster.node) if cluster.node is not None else None
    return cluster.nodes * (cluster.gpus_per_node or (node.gpus if node is not None else 1))


def batches_between(low: int, high: int, gpus: int) -> tuple[int, ...]:
    """Global batches to try in a range, rising: those that ranks share evenly, and `high` itself.

    They are a divisor of the number of GPUs times a power of two, so that each of that many data-parallel ranks has as
    many sequences as others; of more than MOST_BATCHES every so many are taken, the smallest and `high` included.
    """
    found = {high}
    for size in divisors(gpus):
        while size <= high:
            if size >= low:
                found.add(size)
            size *= 2
    sizes = sorted(found)
    if len(sizes) <= MOST_BATCHES:
        return tuple(sizes)
    last = MOST_BATCHES - 1
    return tuple(sizes[index * (len(sizes) - 1) // last] for index in range(MOST_BATCHES))
