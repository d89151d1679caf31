"""The file `job.yaml`: its shape, its defaults, and its values in base units; names are looked up elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from planner.fields import (
    Bandwidth,
    Bytes,
    BytesOrPortion,
    Name,
    Portion,
    Price,
    Record,
    Seconds,
    SecondsOrNumber,
    counted,
    numbered,
)
from planner.objective import OBJECTIVES
from planner.reading import Document, read_document, validated
from planner.units import Mistake, misfit, nearest, shown

Scalar = bool | int | float | str

_TEXT, _MAPPING, _LIST = "<text>", "<mapping>", "<list>"
_MODEL_EXPECTED = "a catalog name, a path to a config.json, or {parameters: 7e9, layers: 32}"
_METHODS = ("lora", "qlora", "dora")
_METHOD_EXPECTED = "full, {lora: {rank: 16}}, {qlora: {rank: 16}} or {dora: {rank: 16}}"
_BATCH_EXPECTED = "a whole number, or {min: 32, max: 128}"
_BATCHES_EXPECTED = "a list of whole numbers, or {min: 32, max: 128}"
_VALUES_EXPECTED = "one value or a list of values"
_OBJECTIVE_EXPECTED = "one objective, [step_time, memory] or {first: step_time, within: 1 %, then: memory}"

Target = Literal["q", "k", "v", "o", "gate", "up", "down"]
SmallCount = Annotated[int, counted(10**6)]
BatchSize = Annotated[int, counted(10**9)]


def _shape(value: object) -> str:
    return _MAPPING if isinstance(value, (dict, BaseModel)) else _TEXT


def _model_source(value: object) -> object:
    if isinstance(value, (str, dict)):
        return value
    raise Mistake(misfit(value), _MODEL_EXPECTED)


def _batch(value: object) -> object:
    if isinstance(value, (list, tuple)) or value is None:
        raise Mistake(misfit(value), _BATCH_EXPECTED)
    return value


def _method(value: object) -> object:
    if value == "full" or isinstance(value, dict):
        return value
    if isinstance(value, str):
        name = value.lower()
        hint = f"write {{{name}: {{rank: 16}}}}" if name in _METHODS else nearest(value, ["full"])
        raise Mistake(f"{shown(value)} is not valid", _METHOD_EXPECTED, hint)
    raise Mistake(misfit(value), _METHOD_EXPECTED)


def _list_or_mapping(value: object) -> str:
    return _MAPPING if isinstance(value, (dict, BaseModel)) else _LIST


def _batches(value: object) -> object:
    if isinstance(value, (list, tuple, dict)):
        return value
    raise Mistake(misfit(value), _BATCHES_EXPECTED)


def _values(value: object) -> tuple[Scalar, ...]:
    """One value or a list of values as a tuple; empty lists, repeated values and nested values are mistakes."""
    if not isinstance(value, (list, tuple)):
        return (_scalar(value),)
    if not value:
        raise Mistake("the list is empty", _VALUES_EXPECTED)
    values = tuple(_scalar(item, (index,)) for index, item in enumerate(value))
    for index, item in enumerate(values):
        if any(item == other and type(item) is type(other) for other in values[:index]):
            raise Mistake(f"{shown(item)} stands twice", "each value once", at=(index,))
    return values


def _scalar(value: object, at: tuple[int, ...] = ()) -> Scalar:
    if isinstance(value, (bool, int, float, str)):
        return value
    hint = "for the technique none, write the word none" if value is None else ""
    raise Mistake(misfit(value), "a value" if at else _VALUES_EXPECTED, hint, at)


class ModelSize(Record):
    """A model known by its size only; what is absent is estimated."""

    parameters: Annotated[int, counted(10**16)] = Field(description="number of parameters, such as 7e9 or 7B")
    layers: Annotated[int, counted(100_000)] = Field(description="number of transformer layers")
    hidden: Annotated[int, counted(10**7)] | None = Field(None, description="width of the residual stream")
    intermediate: Annotated[int, counted(10**8)] | None = Field(None, description="width of the feed-forward block")
    heads: SmallCount | None = Field(None, description="number of attention heads")
    key_value_heads: SmallCount | None = Field(None, description="number of key and value heads, heads if absent")
    vocabulary: BatchSize | None = Field(None, description="number of tokens in the vocabulary")


class NvmeOverride(Record):
    """Local NVMe of one node."""

    capacity: Bytes = Field(description="size of the NVMe of one node, such as 3.84 TB")
    read: Bandwidth = Field(description="read bandwidth of one node, such as 6 GB/s")
    write: Bandwidth = Field(description="write bandwidth of one node, such as 3 GB/s")


class ClusterSettings(Record):
    """The machines: a node of the catalog, or a GPU of the catalog and how many of them share a node."""

    node: Name | None = Field(None, description="name of a node in the catalog, such as dgx-a100-80gb")
    gpu: Name | None = Field(None, description="name of a GPU in the catalog, in place of node")
    gpus_per_node: Annotated[int, counted(4096)] | None = Field(None, description="GPUs in one node, with gpu")
    nodes: SmallCount = Field(1, description="number of nodes")
    host_memory: Bytes | None = Field(None, description="memory of one host, such as 1 TiB")
    host_memory_bandwidth: Bandwidth | None = Field(None, description="host memory bandwidth, such as 400 GB/s")
    nvme: NvmeOverride | None = Field(None, description="local NVMe of one node")
    interconnect: Bandwidth | None = Field(
        None, description="one-way bandwidth of all network ports of one node together, such as 200 Gbit/s"
    )
    gpu_memory: Bytes | None = Field(None, description="usable memory of one GPU, such as 79.1 GiB")
    gpu_price: Price | None = Field(None, description="price of one GPU, such as 2.50 USD/hour")

    @model_validator(mode="after")
    def _names_one_machine(self) -> ClusterSettings:
        if self.node is None and self.gpu is None:
            raise Mistake("no machine is named", "node: NAME, or gpu: NAME with gpus_per_node: NUMBER")
        if self.node is not None and self.gpu is not None:
            raise Mistake("node and gpu exclude each other", "one of the two", at=("gpu",))
        if self.gpu is not None and self.gpus_per_node is None:
            raise Mistake("missing key 'gpus_per_node'", "GPUs in one node, with gpu", at=("gpus_per_node",))
        if self.node is not None and self.gpus_per_node is not None:
            raise Mistake("the node says how many GPUs it has", "gpus_per_node with gpu only", at=("gpus_per_node",))
        return self


class BatchRange(Record):
    """Bounds of the global batch, for an update frequency that may vary."""

    min: BatchSize = Field(description="fewest sequences for one optimizer update")
    max: BatchSize = Field(description="most sequences for one optimizer update")

    @model_validator(mode="after")
    def _in_order(self) -> BatchRange:
        if self.min > self.max:
            raise Mistake(f"min {self.min} is above max {self.max}", "min of at most max", at=("min",))
        return self


class Adapter(Record):
    """Low-rank adapters on the linear layers."""

    rank: Annotated[int, counted(65_536)] = Field(description="rank of the adapters")
    targets: tuple[Target, ...] = Field(
        ("q", "k", "v", "o", "gate", "up", "down"),
        description="projections that carry an adapter, out of q, k, v, o, gate, up and down; all if absent",
    )
    train_embeddings: bool = Field(False, description="whether embeddings and output projection are trained whole too")


class AdapterMethod(Record):
    """Training of adapters only: on 16-bit weights (lora), on 4-bit weights (qlora), on decomposed ones (dora)."""

    lora: Adapter | None = Field(None, description="adapters on frozen 16-bit weights")
    qlora: Adapter | None = Field(None, description="adapters on frozen 4-bit weights")
    dora: Adapter | None = Field(None, description="adapters on frozen 16-bit weights, with a trained magnitude")

    @model_validator(mode="after")
    def _is_one_method(self) -> AdapterMethod:
        if sum(getattr(self, name) is not None for name in _METHODS) != 1:
            raise Mistake("one method is needed", _METHOD_EXPECTED)
        return self

    @property
    def name(self) -> str:
        """`lora`, `qlora` or `dora`."""
        return next(name for name in _METHODS if getattr(self, name) is not None)

    @property
    def adapter(self) -> Adapter:
        """The method's adapter."""
        return getattr(self, self.name)  # type: ignore[no-any-return]  # one of three fields of this type


PrecisionName = Literal["fp32", "fp16", "bf16", "pure-bf16", "fp8"]
AttentionName = Literal["flash", "sdpa", "eager"]
Method = Annotated[
    Annotated[Literal["full"], Tag(_TEXT)] | Annotated[AdapterMethod, Tag(_MAPPING)],
    Discriminator(_shape),
    BeforeValidator(_method),
]


class TrainingSettings(Record):
    """How the model is trained."""

    sequence_length: BatchSize = Field(description="tokens in one sequence")
    global_batch: Annotated[
        Annotated[BatchSize, Tag(_TEXT)] | Annotated[BatchRange, Tag(_MAPPING)],
        Discriminator(_shape),
        BeforeValidator(_batch),
    ] = Field(description="sequences for one optimizer update, or {min: 32, max: 128}")
    precision: PrecisionName = Field("bf16", description="number format of the computation")
    optimizer: Name = Field("adamw", description="name of an optimizer in the catalog")
    method: Method = Field("full", description=f"what is trained: {_METHOD_EXPECTED}")
    runtime: Name = Field("deepspeed", description="name of a runtime in the catalog: deepspeed, fsdp2 or megatron")
    frozen_models: tuple[Name, ...] = Field(
        (),
        description="models that only run forward beside the trained one (reference, reward): catalog names, or `same`",
    )
    attention: AttentionName = Field("flash", description="attention implementation")
    loss: Name | None = Field(None, description="standard, chunked, fused or kernel; planned if absent")
    kernels: Name | None = Field(None, description="huggingface, liger, compiled or megatron; else the runtime's")
    deterministic: bool = Field(False, description="only kernels that give the same bits every time")
    tensor_overlap: bool = Field(
        False, description="tensor-parallel exchange in pieces beside its products: asynchronous TP, userbuffers"
    )
    fp8_scaling: Literal["tensor", "row"] = Field(
        "tensor", description="what shares a scale in fp8: a whole tensor, or each row of it"
    )
    gradient_clipping: Annotated[float, numbered(1e6, positive=False)] = Field(
        1.0, description="largest norm of the gradient; 0 turns clipping off"
    )

    @property
    def method_name(self) -> str:
        """`full`, `lora`, `qlora` or `dora`."""
        return self.method if isinstance(self.method, str) else self.method.name

    @property
    def adapter(self) -> Adapter | None:
        """The adapters; None when the whole model is trained."""
        return None if isinstance(self.method, str) else self.method.adapter

    @property
    def batch_bounds(self) -> tuple[int, int]:
        """Fewest and most sequences for one optimizer update."""
        batch = self.global_batch
        return (batch.min, batch.max) if isinstance(batch, BatchRange) else (batch, batch)


_SCALAR_SCHEMA = {"type": ["string", "number", "boolean"]}
ChoiceValues = Annotated[
    tuple[Scalar, ...],
    BeforeValidator(_values),
    WithJsonSchema({"anyOf": [_SCALAR_SCHEMA, {"type": "array", "items": _SCALAR_SCHEMA, "minItems": 1}]}),
]


class AllowSettings(Record):
    """What planner solve may take in place of the job's own training settings; nothing else is ever taken."""

    optimizer: tuple[Name, ...] = Field((), description="names of optimizers in the catalog; they change numerics")
    precision: tuple[PrecisionName, ...] = Field((), description="number formats; they change numerics")
    method: tuple[Method, ...] = Field((), description=f"each {_METHOD_EXPECTED}; they change numerics")
    attention: tuple[AttentionName, ...] = Field((), description="attention implementations that are installed")
    kernels: tuple[Name, ...] = Field((), description="huggingface, liger, compiled or megatron where installed")
    global_batch: (
        Annotated[
            Annotated[tuple[BatchSize, ...], Tag(_LIST)] | Annotated[BatchRange, Tag(_MAPPING)],
            Discriminator(_list_or_mapping),
            BeforeValidator(_batches),
        ]
        | None
    ) = Field(None, description="sequences for one optimizer update: a list, or {min: 32, max: 128}")
    choices: Mapping[Name, ChoiceValues] = Field(
        default_factory=dict, description="values of choices that are planned only where a job names them"
    )


class LimitSettings(Record):
    """What the plan may take at most, beside what the machines hold."""

    step_time_at_most: Seconds | None = Field(None, description="longest optimizer step, such as 2 s")
    memory_headroom: BytesOrPortion | None = Field(
        None, description="memory of one GPU that stays free beside the allocator's margin, such as 5 GiB or 5 %"
    )
    host_memory_at_most: Bytes | None = Field(
        None, description="host memory of one node that the job may take, such as 400 GiB"
    )


ObjectiveName = Literal["step_time", "tokens_per_second", "memory", "cost_per_token", "cost"]


class ObjectivePair(Record):
    """Two objectives: of all plans whose first one is within a share of the best, the one with the best second one."""

    first: ObjectiveName = Field(description="the objective that counts first")
    within: Portion = Field(Fraction(0), description="share that the first one may be above its best, such as 1 %")
    then: ObjectiveName = Field(description="the objective among those plans")

    @model_validator(mode="after")
    def _differ(self) -> ObjectivePair:
        if OBJECTIVES[self.first].coordinate == OBJECTIVES[self.then].coordinate:
            message = f"{self.first} and {self.then} rise and fall together on one cluster"
            raise Mistake(message, "memory as one of the two", at=("then",))
        return self


def _objective(value: object) -> object:
    """A list of two as a pair without tolerance."""
    if isinstance(value, (list, tuple)):
        if len(value) != 2:
            raise Mistake(f"the list has {len(value)} entries", _OBJECTIVE_EXPECTED)
        return {"first": value[0], "then": value[1]}
    return value


class JobFile(Record):
    """A training job: model, cluster, training settings, allowed choices, objective."""

    model: Annotated[
        Annotated[Name, Tag(_TEXT)] | Annotated[ModelSize, Tag(_MAPPING)],
        Discriminator(_shape),
        BeforeValidator(_model_source),
    ] = Field(description=_MODEL_EXPECTED)
    cluster: ClusterSettings = Field(description="the machines: {node: NAME}, or {gpu: NAME, gpus_per_node: NUMBER}")
    training: TrainingSettings = Field(description="how the model is trained")
    choices: Mapping[Name, ChoiceValues] = Field(
        default_factory=dict, description="choices pinned to one value or narrowed to a list; the rest is planned"
    )
    allow: AllowSettings | None = Field(
        None, description="training settings that planner solve may take in place of the job's own"
    )
    limits: LimitSettings | None = Field(None, description="what the plan may take at most")
    objective: Annotated[
        Annotated[ObjectiveName, Tag(_TEXT)] | Annotated[ObjectivePair, Tag(_MAPPING)],
        Discriminator(_shape),
        BeforeValidator(_objective),
    ] = Field("step_time", description=f"what the plan is best in: {_OBJECTIVE_EXPECTED}")
    time_limit: SecondsOrNumber = Field(60.0, description="longest search, in seconds or with a unit")

    @property
    def model_path(self) -> str | None:
        """The path of a config.json or of an overlay as written; None when the model is a name or a size."""
        files = (".json", ".yaml", ".yml")
        return self.model if isinstance(self.model, str) and self.model.lower().endswith(files) else None


def read_job_file(path: str | os.PathLike[str], *, text: str | None = None) -> tuple[JobFile, Document]:
    """The job in a file with its document, for the places of its values. Raises InputError."""
    document = read_document(path, text=text)
    _refuse_several(document)
    return validated(JobFile, document), document


def _refuse_several(document: Document) -> None:
    """InputError for a file of several jobs, or whose cluster or training is left open: two commands take those."""
    data = document.data if isinstance(document.data, dict) else {}
    cluster = data.get("cluster")
    if "sweep" in data:
        raise document.error(
            ("sweep",), "the file describes several jobs", "one job", "planner sweep solves all of them", key=True
        )
    if isinstance(cluster, dict) and ("choose" in cluster or cluster.get("gpu") == "any"):
        raise document.error(
            ("cluster",), "the cluster is left open", "one cluster", "planner solve chooses one; --out writes its job"
        )
    if data.get("allow") is not None:
        raise document.error(
            ("allow",), "training settings are left open", "one job",
            "planner solve settles them; --out writes its job", key=True,
        )  # fmt: skip


def job_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of job files, with a description for every field."""
    schema = JobFile.model_json_schema(mode="validation")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
