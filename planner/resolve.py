"""From a job file to a job: every name looked up, every default stated, nothing left to read."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from planner import hardware_catalog
from planner.aims import limits_of, objective_of
from planner.architecture.activations import ActivationSettings
from planner.architecture.adapters import Adapters, with_adapters
from planner.architecture.amount import ALL_LINEAR
from planner.architecture.catalog_models import catalog_model
from planner.architecture.flops import model_flops
from planner.architecture.importer import architecture_from_config
from planner.architecture.overlay import traced_model
from planner.architecture.shape import Architecture
from planner.architecture.size import architecture_from_size
from planner.architecture.traced import TracedModel
from planner.calibrate.overlay import calibrated
from planner.choice_values import read_values
from planner.cluster import Cluster
from planner.errors import InputError
from planner.files import printable
from planner.hardware import Gpu, Node, Nvme
from planner.hardware_catalog import Hardware
from planner.job import Job, Training
from planner.job_file import ClusterSettings, JobFile, ModelSize, TrainingSettings, read_job_file
from planner.layouts import DEGREE_NAMES, degree_name
from planner.lookup import Lookup, read_lookup
from planner.plan import Plan, Value
from planner.reading import Document, nearest, read_document
from planner.space import job_space
from planner.speed.seconds import NARROW
from planner.technique_check import check_techniques
from planner.techniques import RuntimeEntry, Techniques, read_runtime
from planner.units import GIB, format_bytes, shown

Found = TypeVar("Found")
# Host memory of a machine that nobody described: what such workstations and servers carry per GPU at least.
ASSUMED_HOST_MEMORY_PER_GPU = 64 * GIB
# From 10 GB/s a GPU on, networks are built with a port for each GPU and remote direct memory access.
FAST_PORT = 10e9
# A network this many times slower than that of the catalog's node with the same GPU is of another kind.
MUCH_SLOWER = 2
# One socket of four DDR4-3200 channels: 4 × 25.6 GB/s.
ASSUMED_HOST_BANDWIDTH = 102.4e9


def read_job(path: str | os.PathLike[str], catalogs: Iterable[Path] = ()) -> Job:
    """The job that a file describes. Raises InputError with file, line and column of the first mistake."""
    job_file, document = read_job_file(path)
    return resolve(job_file, document, printable(Path(path).stem), catalogs)


def resolve(job_file: JobFile, document: Document, name: str, catalogs: Iterable[Path] = ()) -> Job:
    """The job of a validated file; names are looked up in the shipped catalogs and in `catalogs`."""
    return resolve_in(read_lookup(catalogs), job_file, document, name)


def resolve_in(lookup: Lookup, job_file: JobFile, document: Document, name: str) -> Job:
    """The job of a validated file. Raises InputError with the place of a name that is not found."""
    architecture, traced = _placed(document, ("model",), lambda: _model(job_file, document))
    base, adapter = architecture, job_file.training.adapter
    if adapter is not None:
        decomposed = job_file.training.method_name == "dora"
        architecture = with_adapters(
            base, Adapters(adapter.rank, tuple(adapter.targets), decomposed, adapter.train_embeddings)
        )
    cluster, notes = _cluster(job_file.cluster, document, lookup.hardware)
    runtime = _placed(document, ("training", "runtime"), lambda: read_runtime(job_file.training.runtime))
    training = _training(job_file.training, document, runtime)
    casts = runtime.autocast and training.precision.master_bytes > 0 and adapter is None
    settings = ActivationSettings(
        sequence_length=training.sequence_length,
        precision="autocast" if casts else training.precision.dtype,
        attention=training.attention,
        loss=training.loss,
        kernels=training.kernels,
        method=training.method,
        lora_rank=adapter.rank if adapter else 0,
        lora_targets=tuple(adapter.targets) if adapter else ALL_LINEAR,
        narrow_inputs=training.kernels == "megatron" and training.precision.peak in NARROW,
        adapter_bytes=training.precision.compute_bytes,  # the engine casts adapters to the precision of compute
    )
    if training.precision.peak not in cluster.gpu.peak:
        raise document.error(
            ("training", "precision") if "precision" in document.data["training"] else ("training",),
            f"{cluster.gpu.key} has no {training.precision.peak}",
            "one of " + ", ".join(key for key in ("fp32", "fp16", "bf16", "fp8") if key in cluster.gpu.peak),
        )
    flops = model_flops(architecture, training.sequence_length)
    if traced is not None:
        _placed(document, ("training",), partial(traced.require, settings))
        flops = traced.flops(flops, training.sequence_length)
        notes = [*traced.assumptions, *notes]
    job = Job(
        name=name,
        architecture=architecture,
        cluster=cluster,
        training=training,
        runtime=runtime,
        techniques=lookup.techniques,
        settings=settings,
        flops=flops,
        traced=traced,
        choices=_choices(job_file, document, lookup.techniques),
        frozen_models=_frozen_models(job_file.training, document, base.parameters),
        **objective_of(job_file, document, cluster),
        limits=limits_of(job_file.limits, cluster),
        time_limit=job_file.time_limit,
        assumptions=tuple(
            dict.fromkeys([*architecture.assumptions, *notes, *_training_notes(job_file.training, architecture)])
        ),
    )
    if lookup.extended:
        check_techniques(job)
    return calibrated(job, lookup.overlays)


def _placed(document: Document, path: tuple[str | int, ...], read: Callable[[], Found]) -> Found:
    """What `read` returns; its InputError without a place gets that of `path`."""
    try:
        return read()
    except InputError as error:
        if error.file:
            raise
        raise document.error(path, error.message, error.expected, error.hint) from None


def _model(job_file: JobFile, document: Document) -> tuple[Architecture, TracedModel | None]:
    """The model, with what its own code does where an overlay beside the job file says so."""
    if job_file.model_path is None or job_file.model_path.lower().endswith(".json"):
        return _architecture(job_file, document), None
    return traced_model(Path(document.file).parent / job_file.model_path)


def _architecture(job_file: JobFile, document: Document) -> Architecture:
    """The model by catalog name, from a config.json beside the job file, or from its size."""
    if isinstance(job_file.model, ModelSize):
        size = job_file.model
        return architecture_from_size(size.parameters, size.layers, size.hidden, size.vocabulary, size.heads)
    if job_file.model_path is None:
        return catalog_model(job_file.model)
    path = Path(document.file).parent / job_file.model_path
    config = read_document(path)
    try:
        return architecture_from_config(config.data, name=printable(path.parent.name or path.stem), file=str(path))
    except InputError as error:
        place = tuple(error.path.split(".")) if error.path else ()
        raise config.error(place, error.message, error.expected, error.hint) from None


def _frozen_models(settings: TrainingSettings, document: Document, own: int) -> int:
    """Parameters of the models that only run forward; `same` is another copy of the trained one."""
    found = 0
    for index, name in enumerate(settings.frozen_models):
        place = ("training", "frozen_models", index)
        found += own if name == "same" else _placed(document, place, partial(catalog_model, name)).parameters
    return found


def _cluster(settings: ClusterSettings, document: Document, hardware: Hardware) -> tuple[Cluster, list[str]]:
    """The cluster with the user's overrides, and what had to be assumed about it."""
    if settings.node is not None:
        key = settings.node
        node = _placed(document, ("cluster", "node"), lambda: hardware.node(key))
        gpu = hardware.gpu(node.gpu)
    else:
        gpu_key = str(settings.gpu)
        gpu = _placed(document, ("cluster", "gpu"), lambda: hardware.gpu(gpu_key))
        node = plain_node(gpu, settings, hardware.nodes.values())
    node, notes = _overridden(node, settings)
    if settings.gpu_memory is not None:
        gpu = replace(gpu, usable_memory=settings.gpu_memory)
    if settings.gpu_price is not None:
        gpu = replace(gpu, price_per_hour=settings.gpu_price)
        node = node.overridden(price_per_hour=None)
    cluster = _placed(document, ("cluster",), lambda: Cluster(gpu, node, settings.nodes, hardware.links))
    return cluster, [*gpu.assumptions, *node.assumptions, *notes]


def plain_node(gpu: Gpu, settings: ClusterSettings, nodes: Collection[Node]) -> Node:
    """A machine of which only the GPUs are known: as the smallest of `nodes` with that GPU, else assumed."""
    count = int(settings.gpus_per_node or 1)
    switched = (gpu.scale_up_gpus or 0) > 2 and count > 1
    topology = "single" if count == 1 else "switch" if switched else "pcie"
    known = min(
        (node for node in nodes if node.gpu == gpu.key),
        key=lambda node: (abs(node.gpus - count), node.host_memory),
        default=None,
    )
    host = known.host_memory // known.gpus * count if known else ASSUMED_HOST_MEMORY_PER_GPU * count
    bandwidth = known.host_memory_bandwidth if known else ASSUMED_HOST_BANDWIDTH
    notes = []
    if settings.host_memory is None:
        like = f", as {known.key} has per GPU" if known else ", 64 GiB for each GPU"
        notes.append(f"host memory of a node is assumed to be {format_bytes(host)}{like}; state cluster.host_memory")
    network = usual_network(gpu.key, count, nodes) or known
    if network and network.nics and settings.nodes > 1 and settings.interconnect is None:
        rate = f"{network.nics} x {network.nic_bandwidth * 8 / 1e9:.0f} Gbit/s"
        notes.append(f"the network of a node is assumed to be {rate}, as {network.key} has; state cluster.interconnect")
    return Node(
        key=f"{count}x-{gpu.key}",
        gpu=gpu.key,
        gpus=count,
        topology=topology,
        host_memory=host,
        host_memory_bandwidth=bandwidth,
        host_link=gpu.host_link,
        scale_up_link=gpu.scale_up_link if switched else None,
        nics=network.nics if network else 0,
        nic_link=network.nic_link if network else None,
        nic_bandwidth=network.nic_bandwidth if network else 0.0,
        assumptions=tuple(notes),
    )


def usual_network(gpu: str, count: int, nodes: Iterable[Node]) -> Node | None:
    """One of `nodes` with `count` of a GPU whose network most such nodes have by its bandwidth; None without any."""
    alike = [node for node in nodes if node.gpu == gpu and node.gpus == count and node.nics]
    votes = Counter(node.nics * node.nic_bandwidth for node in alike)
    return max(alike, key=lambda node: votes[node.nics * node.nic_bandwidth], default=None)


def _overridden(node: Node, settings: ClusterSettings) -> tuple[Node, list[str]]:
    """The node with the user's own values in place of the catalog's."""
    changes: dict[str, object] = {}
    if settings.host_memory is not None:
        changes["host_memory"] = settings.host_memory
    if settings.host_memory_bandwidth is not None:
        changes["host_memory_bandwidth"] = settings.host_memory_bandwidth
    if settings.nvme is not None:
        changes["nvme"] = Nvme(settings.nvme.capacity, settings.nvme.read, settings.nvme.write)
    notes = []
    if settings.interconnect is not None:
        fast = settings.interconnect / node.gpus >= FAST_PORT
        ports = node.nics or (node.gpus if fast else 1)
        changes |= {"nics": ports, "nic_bandwidth": settings.interconnect / ports}
        usual = node.nics * node.nic_bandwidth
        if node.nic_link is None or (settings.gpu is not None and settings.interconnect < usual / MUCH_SLOWER):
            changes["nic_link"] = "roce-400" if fast else "ethernet-100gbe"
            kind = "RoCE with a port for each GPU" if fast else "Ethernet"
            notes.append(f"the network is assumed to behave like {kind} at the stated bandwidth")
    return (node.overridden(**changes) if changes else node), notes


def _training(settings: TrainingSettings, document: Document, runtime: RuntimeEntry) -> Training:
    """The training settings with precision and optimizer looked up."""
    optimizer = _placed(document, ("training", "optimizer"), lambda: hardware_catalog.optimizer(settings.optimizer))
    for key, known in (("loss", LOSSES), ("kernels", KERNELS)):
        value = getattr(settings, key)
        if value is not None and value not in known:
            raise document.error(
                ("training", key), f"unknown {key} {shown(value)}", "one of " + ", ".join(known), nearest(value, known)
            )
    kernels = settings.kernels or runtime.kernels
    if settings.fp8_scaling == "row" and kernels == "megatron":
        message = "Transformer Engine has no scale for each row"
        raise document.error(("training", "fp8_scaling"), message, "tensor", "kernels: compiled, as torchao runs it")
    return Training(
        sequence_length=settings.sequence_length,
        global_batch=settings.batch_bounds[1],
        precision=hardware_catalog.precision(settings.precision),
        optimizer=optimizer,
        method=settings.method_name,
        attention=settings.attention,
        loss=settings.loss or "standard",
        kernels=kernels,
        tensor_overlap=settings.tensor_overlap,
        deterministic=settings.deterministic,
        fp8_scaling=settings.fp8_scaling,
        gradient_clipping=settings.gradient_clipping,
    )


LOSSES = ("standard", "chunked", "fused", "kernel")
KERNELS = ("huggingface", "liger", "megatron", "compiled")


def _training_notes(settings: TrainingSettings, architecture: Architecture) -> list[str]:
    """What the job leaves open and the planner settles."""
    notes = []
    low, high = settings.batch_bounds
    if low != high:
        notes.append(f"the global batch is planned at its largest, {high}: fewest updates, least communication")
    positions = architecture.maximum_positions
    if positions and settings.sequence_length > positions:
        notes.append(f"sequence_length {settings.sequence_length} is beyond the model's {positions} positions")
    return notes


def _choices(job_file: JobFile, document: Document, techniques: Techniques) -> dict[str, tuple[Value, ...]]:
    """The user's pins and lists, checked against the technique catalog."""
    named = job_file.choices
    known = (*techniques.choices, *DEGREE_NAMES)
    for name in named:
        if name not in known:
            raise document.error(
                ("choices", name), f"unknown choice {shown(name)}", "one of " + ", ".join(known), nearest(name, known),
                key=True,
            )  # fmt: skip
    read = {name: read_values(document, name, values, techniques) for name, values in named.items()}
    _check_degrees(document, named, read_runtime(job_file.training.runtime))
    found = {name: tuple(value for value in values if isinstance(value, (int, str))) for name, values in read.items()}
    loss = job_file.training.loss
    return {**found, **({"loss": (loss,)} if loss is not None and "loss" not in found else {})}


def _check_degrees(document: Document, named: Iterable[str], runtime: RuntimeEntry) -> None:
    """InputError for a kind of parallelism that the runtime does not have."""
    known = [degree_name(degree) for degree in (*runtime.degrees, *runtime.degrees_on_request)]
    for name in named:
        if name in DEGREE_NAMES and name not in known:
            expected = "one of " + ", ".join(known) if known else "no degree beside data parallelism"
            raise document.error(("choices", name), f"{runtime.runtime} has no {name}", expected, key=True)


def read_pins(job: Job, pins: Iterable[str]) -> dict[str, Value]:
    """`CHOICE=VALUE` texts as values of the job's choices. Raises InputError for a name or value that is none."""
    found: dict[str, Value] = {}
    for pin in pins:
        name, equals, text = pin.partition("=")
        if not equals:
            raise InputError(f"{shown(pin)} is no CHOICE=VALUE", path="--set", expected="such as zero_stage=2")
        known = (*job.techniques.choices, *DEGREE_NAMES)
        if name not in known:
            raise InputError(
                f"unknown choice {shown(name)}",
                path="--set",
                expected="one of " + ", ".join(known),
                hint=nearest(name, known),
            )
        value: object = int(text) if text.isdecimal() and len(text) < 16 else text
        document = Document(file="", data={}, marks={}, key_marks={})
        (value,) = read_values(document, name, (value,), job.techniques)
        _check_degrees(document, (name,), job.runtime)
        found[name] = cast("Value", value)
    return found


def plain_plan(job: Job) -> Plan:
    """Every choice at its plainest: the job's single pins, else the catalog's default."""
    values: dict[str, Value] = {}
    for choice in job_space(job).choices:
        default = job.techniques.choices[choice.name].default
        values[choice.name] = default if default in choice.values and len(choice.values) > 1 else choice.values[0]
    return Plan(values)
