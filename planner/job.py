"""A job, resolved: model, cluster, training settings, techniques, and nothing left to look up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from math import gcd
from typing import TYPE_CHECKING

from planner.architecture.activations import ActivationSettings, LayerActivations, ModelActivations, activations
from planner.architecture.flops import LayerFlops, ModelFlops
from planner.architecture.shape import Architecture, LayerKind
from planner.architecture.traced import TracedModel
from planner.blocks import BLOCK_CHOICES, PLAIN, Blocks, ways
from planner.cluster import Cluster
from planner.numerics import Optimizer, Precision
from planner.plan import LAYOUT_FACTS, Value, layout_of, whole
from planner.sizes import ELEMENTS
from planner.terms import Values

if TYPE_CHECKING:
    from planner.effects import When
    from planner.techniques import RuntimeEntry, Techniques

DTYPE_BYTES: Mapping[str, int] = {"fp32": 4, "fp16": 2, "bf16": 2}


@dataclass(frozen=True)
class Training:
    """The training settings of a job: lengths in tokens, batch in sequences per optimizer step."""

    sequence_length: int
    global_batch: int
    precision: Precision
    optimizer: Optimizer
    method: str = "full"
    attention: str = "flash"
    loss: str = "standard"
    kernels: str = "huggingface"
    tensor_overlap: bool = False
    deterministic: bool = False
    fp8_scaling: str = "tensor"
    gradient_clipping: float = 1.0


@dataclass(frozen=True)
class Limits:
    """What the user allows at most, beside what the machines hold; None: no such limit.

    `step_time_at_most` in microseconds; `memory_headroom` are bytes of one GPU that stay free beside the allocator's
    margin; `host_memory_at_most` are bytes of one node.
    """

    step_time_at_most: int | None = None
    memory_headroom: int = 0
    host_memory_at_most: int | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """What the user wants, in base units. `choices` pins a choice to one value or narrows it to a few.

    `frozen_models` counts the parameters of models that only run forward beside the trained one (reference, reward).
    `traced`: what the model's own code keeps and computes, in place of the formulas. Of all plans within a share
    `within` of the best value of `objective` the best is that with the best value of `then`, where that is named.
    """

    name: str
    architecture: Architecture
    cluster: Cluster
    training: Training
    runtime: RuntimeEntry
    techniques: Techniques
    settings: ActivationSettings
    flops: ModelFlops
    choices: Mapping[str, tuple[Value, ...]]
    objective: str = "step_time"
    then: str = ""
    within: Fraction = Fraction(0)
    limits: Limits = Limits()
    time_limit: float = 60.0
    frozen_models: int = 0
    traced: TracedModel | None = None
    assumptions: tuple[str, ...] = ()

    # ── the model ────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def trainable_parameters(self) -> int:
        """Parameters of the whole model that the optimizer updates."""
        architecture = self.architecture
        layers = ((tensor, group.count) for group in architecture.layers for tensor in group.kind.tensors)
        counted = [(tensor, 1) for tensor in architecture.outside] + list(layers)
        return sum(tensor.elements * count for tensor, count in counted if tensor.trainable)

    @property
    def head_parameters(self) -> int:
        """Elements of the matrix that makes logits (the input embedding where tied)."""
        return self.architecture.vocabulary * self.architecture.hidden

    @cached_property
    def trains_head(self) -> bool:
        """Whether the matrix that makes logits takes a gradient."""
        return any(tensor.trainable for tensor in self.architecture.outside if tensor.role in ("embedding", "head"))

    @cached_property
    def heads(self) -> int:
        """Query heads that tensor parallelism can divide: the most that divide every layer's; 1 without attention."""
        blocks = [kind.attention for kind, _ in self.kind_counts if kind.attention is not None]
        return gcd(*(block.heads for block in blocks)) if blocks else 1

    @cached_property
    def experts(self) -> int:
        """Experts that expert parallelism can divide; 1 for a dense model."""
        blocks = [kind.feed_forward for kind, _ in self.kind_counts if kind.feed_forward is not None]
        return gcd(*(block.experts for block in blocks if block.experts)) or 1

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer that can be checkpointed, in order; equal kinds are one object."""
        seen: dict[LayerKind, LayerKind] = {}
        text = (group for group in self.architecture.layers if group.tower != "vision")
        return tuple(kind for g in text for kind in [seen.setdefault(g.kind, g.kind)] * g.count)

    @cached_property
    def recomputed_kinds(self) -> Mapping[str, LayerKind]:
        """Distinct layer kinds by the name of the measure that counts their recomputed layers."""
        kinds = {id(kind): kind for kind in self.layer_kinds}.values()
        return {
            "recomputed_layers" if not index else f"recomputed_layers_{index + 1}": k for index, k in enumerate(kinds)
        }

    @cached_property
    def kind_counts(self) -> tuple[tuple[LayerKind, int], ...]:
        """Distinct layer kinds with the number of layers of each."""
        counts = Counter(map(id, self.layer_kinds))
        return tuple((kind, counts[id(kind)]) for kind in self.recomputed_kinds.values())

    @cached_property
    def _groups(self) -> Mapping[int, int]:
        """Position, among the groups outside vision towers, of the first group of each layer kind, by its identity."""
        text = [group for group in self.architecture.layers if group.tower != "vision"]
        return {
            id(kind): next(index for index, group in enumerate(text) if group.kind == kind) for kind in self.layer_kinds
        }

    @cached_property
    def activations(self) -> ModelActivations:
        """What the model keeps and holds, undivided."""
        return self.activations_under(1, False)

    def activations_under(
        self, tensor_ranks: int, whole_stream: bool, loss: str = "", blocks: Blocks = PLAIN
    ) -> ModelActivations:
        """What one of `tensor_ranks` ranks keeps and holds; see `Layout.whole_stream`. `loss`, `blocks`: choices."""
        return _activations(self, tensor_ranks, whole_stream, loss or self.settings.loss, blocks)

    @cached_property
    def losses(self) -> tuple[str, ...]:
        """The losses that the job leaves open: the one it names, or what its runtime can do without further ado."""
        named = self.choices.get("loss")
        if named is not None:
            return tuple(map(str, named))
        entry, known = self.techniques.choices["loss"], self.runtime.choices.get("loss")
        free = (str(name) for name, value in entry.values.items() if not value.on_request)
        return tuple(name for name in free if known is None or name in known)

    def activations_of(
        self, kind: LayerKind, tensor_ranks: int = 1, whole_stream: bool = False, blocks: Blocks = PLAIN
    ) -> LayerActivations:
        """What one layer of a kind keeps and holds on one of `tensor_ranks` ranks."""
        return self.activations_under(tensor_ranks, whole_stream, blocks=blocks).layers[self._groups[id(kind)]]

    @cached_property
    def feed_forward(self) -> str:
        """`gated` where every layer has a dense block of gate_proj, up_proj and down_proj as transformers runs it.

        Else `other`: experts, fused or other matrices, replaced kernels, or what only a trace tells of.
        """
        plain = self.traced is None and self.training.kernels == "huggingface"
        return "gated" if plain and all(map(_is_plainly_gated, self.recomputed_kinds.values())) else "other"

    @cached_property
    def block_ways(self) -> tuple[Blocks, ...]:
        """How blocks may run: what the job names, or what does anything for it."""
        tiles, modules = map(self._acting, BLOCK_CHOICES)
        return ways((value for value in tiles if isinstance(value, int)), modules)

    def _acting(self, choice: str) -> tuple[Value, ...]:
        """The values of a listed choice that the job names, or that do anything for it."""
        entry = self.techniques.choices[choice]
        free = (value for value, technique in entry.values.items() if self.unmet(technique.where) is None)
        return self.choices.get(choice, tuple(free))

    @cached_property
    def _blocks_exist(self) -> Mapping[str, bool]:
        """Which blocks Megatron's model code has of those that it can make again."""
        blocks = [kind.feed_forward for kind in self.layer_kinds if kind.feed_forward is not None]
        found = {
            "experts": any(block.experts for block in blocks),
            "shared_experts": any(block.experts and block.shared_width for block in blocks),
            "latent_attention": any(kind.attention and kind.attention.kind == "mla" for kind in self.layer_kinds),
        }
        own = self.training.kernels == "megatron" and self.traced is None
        return {name: own and exists for name, exists in found.items()}

    def flops_of(self, kind: LayerKind) -> LayerFlops:
        """FLOP counts of one layer of a kind."""
        return self.flops.layers[self._groups[id(kind)]]

    @cached_property
    def model_flops_per_token(self) -> float:
        """FLOPs of one token's forward and backward: causal attention, nothing recomputed, backward twice forward."""
        layers = sum(
            count * (self.flops_of(kind).matmul_per_token + self.flops_of(kind).attention_per_token)
            for kind, count in self.kind_counts
        )
        return 3.0 * (layers + self.flops.head_per_token)

    # ── buffers, sized to the model: what choices of a size are unless the job names another ────────────────────

    @property
    def reduce_bucket_size(self) -> int:
        """Elements of the gradient bucket: one layer, at most 50 million (100 MB in 16 bit saturates every link)."""
        return min(50_000_000, self.architecture.largest_layer)

    @property
    def prefetch_bucket_size(self) -> int:
        """Elements gathered ahead in stage 3: one layer, at most 50 million."""
        return min(50_000_000, self.architecture.largest_layer)

    @property
    def reuse_distance(self) -> int:
        """Elements within which stage 3 keeps a gathered parameter for its next use: one layer, at most 1e9.

        A layer's recomputation and its backward then share one gather, unless the layer is larger than DeepSpeed's
        default (deepspeed 0.19.8 runtime/zero/config.py, stage3_max_reuse_distance).
        """
        return min(1_000_000_000, self.architecture.largest_layer)

    @property
    def live_parameters(self) -> int:
        """Elements up to which stage 3 gathers ahead: what is kept for its next use, the bucket, and the head."""
        return self.reuse_distance + self.prefetch_bucket_size + self.head_parameters

    @property
    def persistence_threshold(self) -> int:
        """Tensors up to this many elements stay whole in stage 3: ten times the hidden width keeps norms and biases."""
        return 10 * self.architecture.hidden

    @property
    def sub_group_size(self) -> int:
        """Elements of the partition that one optimizer call updates in stage 3: bounds the temporaries of the step."""
        return 100_000_000

    @property
    def swap_buffer_size(self) -> int:
        """Elements of one NVMe parameter buffer: holds the largest tensor."""
        return max(100_000_000, self.architecture.largest_tensor)

    # ── numbers and names that effects refer to ─────────────────────────────────────────────────────────────────

    @cached_property
    def widths(self) -> Mapping[str, Fraction]:
        """Bytes per element of the named widths."""
        precision = self.training.precision
        return {
            "compute": Fraction(precision.compute_bytes),
            "gather": Fraction(precision.compute_bytes),
            "communication": Fraction(precision.compute_bytes),
            "master": Fraction(4),
            "optimizer_state": Fraction(str(self.training.optimizer.state_bytes_per_parameter)),
            "storage": Fraction(self.storage_bytes),
            "reduce": Fraction(self.storage_bytes),
            "torch_state": Fraction(str(self.training.optimizer.state_bytes_per_parameter))
            * (Fraction(self.trained_bytes, 4) if not self.training.optimizer.fixed_state_bytes else 1),
            "optimizer_temporary": Fraction(str(self.training.optimizer.temporary_bytes_per_parameter))
            * Fraction(self.trained_bytes, 4),
            "optimizer_largest": Fraction(str(self.training.optimizer.temporary_bytes_of_largest)),
            "optimizer_traffic": Fraction(str(self.training.optimizer.step_bytes_per_parameter))
            + (precision.compute_bytes if precision.master_bytes else 0),
        }

    @property
    def storage_bytes(self) -> int:
        """Bytes per parameter of what a runtime without separate master weights keeps: fp32 unless all is 16-bit.

        A frozen base is loaded in 16 bits, whatever its adapters are kept in.
        """
        return self.training.precision.compute_bytes if self.frozen_base else self.trained_bytes

    @property
    def trained_bytes(self) -> int:
        """Bytes per trained parameter in such a runtime."""
        return self.training.precision.master_bytes or self.training.precision.compute_bytes

    @property
    def frozen_base(self) -> bool:
        """Whether only adapters on a frozen base are trained."""
        return self.training.method != "full"

    @property
    def casts(self) -> bool:
        """Whether weights are kept in fp32 and cast for every product."""
        return self.runtime.autocast and self.training.precision.master_bytes > 0 and not self.frozen_base

    def dtype_bytes(self, dtype: str) -> Fraction:
        """Bytes of one element of `dtype`."""
        return Fraction(DTYPE_BYTES[dtype])

    @cached_property
    def facts(self) -> Mapping[str, Value]:
        """Facts of the job that conditions of effects may test; choices are not among them."""
        return {
            "runtime": self.runtime.runtime,
            "precision": self.training.precision.dtype,
            "optimizer": self.training.optimizer.key,
            "method": self.training.method,
            "gpus": self.cluster.gpus,
            "nodes": self.cluster.nodes,
            "paged": "yes" if self.training.optimizer.paged else "no",
            "clipping": "norm" if self.training.gradient_clipping else "none",
            "feed_forward": self.feed_forward,
            "sequence_length": self.training.sequence_length,
            "kernels": self.training.kernels,
            "products": self.training.precision.peak,
            **{name: "yes" if exists else "no" for name, exists in self._blocks_exist.items()},
        }

    def unmet(self, where: When) -> str | None:
        """The first fact that the job has not as a technique asks for it; None where it has all."""
        return next((name for name, test in where.items() if not test.admits(self.facts[name])), None)

    def derived(self, name: str, values: Values) -> Value:
        """A choice's value, or a value that follows from choices."""
        if name == "gradient_accumulation":
            return self.micro_batches(values)
        if name in LAYOUT_FACTS:
            return int(getattr(layout_of(values), LAYOUT_FACTS[name]))
        return values[name]

    def micro_batches(self, values: Values) -> int:
        """Micro-batches per optimizer step and rank; rounded up where the batch does not divide."""
        at_once = whole(values, "micro_batch") * layout_of(values).data
        return max(1, -(-self.training.global_batch // at_once))

    @cached_property
    def settled(self) -> frozenset[str]:
        """Choices of which one value is left, and that the job does not name: nothing to plan or to tell."""
        return frozenset(name for name in self.techniques.choices if name not in self.choices and self._single(name))

    def _single(self, name: str) -> bool:
        """Whether the runtime and the facts of the job leave one value of a choice that is listed or a size."""
        entry, known = self.techniques.choices[name], self.runtime.choices.get(name)
        if known is not None and len(known) == 1:
            return True
        if entry.domain == ELEMENTS:
            return True
        free = [one for one in entry.values.values() if not (one.on_request or one.changes_numerics)]
        return bool(entry.values) and sum(self.unmet(one.where) is None for one in free) == 1

    @cached_property
    def offloads_activations(self) -> tuple[Value, ...]:
        """Where activations may wait: what the runtime has and the job does not rule out."""
        return self.choices.get("activation_offload", self.runtime.choices.get("activation_offload", ("none", "cpu")))

    def tokens(self, values: Values) -> int:
        """Tokens of one micro-batch on one rank; context-parallel ranks have a part of each sequence."""
        part = -(-self.training.sequence_length // layout_of(values).sequence)
        return whole(values, "micro_batch") * part

    def ranks_per_node(self, values: Values) -> int:
        """Ranks that share one node's host memory."""
        return self.cluster.gpus_per_node

    def with_choices(self, choices: Mapping[str, tuple[Value, ...]]) -> Job:
        """The same job with some choices pinned or narrowed further."""
        return replace(self, choices={**self.choices, **choices})


def _is_plainly_gated(kind: LayerKind) -> bool:
    """Whether a layer has a dense feed-forward block of three matrices by their usual names."""
    named = {tensor.name.split(".")[-2] for tensor in kind.tensors if tensor.role == "mlp" and "." in tensor.name}
    block = kind.feed_forward
    return block is not None and not block.experts and named == {"gate_proj", "up_proj", "down_proj"}


@lru_cache(maxsize=1024)
def _activations(job: Job, tensor_ranks: int, whole_stream: bool, loss: str, blocks: Blocks) -> ModelActivations:
    """The activations of a job's model on one tensor-parallel rank, made once."""
    settings = replace(
        job.settings, tensor_parallel=tensor_ranks, sequence_parallel=not whole_stream, loss=loss,
        mlp_tiles=blocks.tiles, modules=blocks.modules,
    )  # fmt: skip
    if job.traced is not None:
        return job.traced.activations(job.architecture, settings)
    return activations(job.architecture, settings)
