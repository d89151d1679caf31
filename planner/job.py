"""A job, resolved: model, cluster, training settings, techniques, and nothing left to look up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from planner.architecture.activations import LayerActivations, ModelActivations
from planner.architecture.adapters import is_adapted, quantized_parameters
from planner.architecture.flops import LayerFlops, ModelFlops
from planner.architecture.shape import Architecture, LayerKind, Tensor
from planner.cluster import Cluster
from planner.numerics import Optimizer, Precision
from planner.plan import Value, layout_of, whole
from planner.terms import Values

if TYPE_CHECKING:
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
    gradient_clipping: float = 1.0


@dataclass(frozen=True, eq=False)
class Job:
    """What the user wants, in base units. `choices` pins a choice to one value or narrows it to a few."""

    name: str
    architecture: Architecture
    cluster: Cluster
    training: Training
    runtime: RuntimeEntry
    techniques: Techniques
    activations: ModelActivations
    flops: ModelFlops
    choices: Mapping[str, tuple[Value, ...]]
    objective: str = "step_time"
    time_limit: float = 10.0
    assumptions: tuple[str, ...] = ()

    # ── the model ────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def tensors(self) -> tuple[tuple[Tensor, int], ...]:
        """Every parameter tensor with how often it occurs: outside the layers first, then the layers in order."""
        outside = tuple((tensor, 1) for tensor in self.architecture.outside)
        layers = tuple((tensor, 1) for group in self.architecture.layers for tensor in group.kind.tensors * group.count)
        return outside + layers

    @cached_property
    def tensor_sizes(self) -> tuple[tuple[int, int], ...]:
        """(elements, count) of the trainable tensors in the order of the flat buffer."""
        return tuple((tensor.elements, count) for tensor, count in self.tensors if tensor.trainable)

    @cached_property
    def trainable_parameters(self) -> int:
        """Parameters that the optimizer updates."""
        return sum(size * count for size, count in self.tensor_sizes)

    @property
    def frozen_parameters(self) -> int:
        """Parameters that stay as they are."""
        return self.architecture.parameters - self.trainable_parameters

    @cached_property
    def head_parameters(self) -> int:
        """Elements of the matrix that makes logits (the input embedding where tied)."""
        return self.architecture.vocabulary * self.architecture.hidden

    @cached_property
    def root_parameters(self) -> int:
        """Elements of the tensors outside the layers."""
        return sum(tensor.elements for tensor in self.architecture.outside)

    @cached_property
    def largest_trained_layer(self) -> int:
        """Elements with gradients in the layer that has the most of them."""
        return max(sum(t.elements for t in kind.tensors if t.trainable) for kind, _ in self.kind_counts)

    @property
    def embedding_parameters(self) -> int:
        """Elements of the input embedding, whose gradient comes last; 0 where it takes none."""
        return self.architecture.vocabulary * self.architecture.hidden if self.trains_embedding else 0

    @cached_property
    def trains_embedding(self) -> bool:
        """Whether some embedding takes a gradient."""
        return any(tensor.trainable for tensor in self.architecture.outside if tensor.role == "embedding")

    @cached_property
    def largest_trainable(self) -> int:
        """Elements of the largest tensor that takes a gradient."""
        return max((size for size, _ in self.tensor_sizes), default=0)

    @cached_property
    def quantized_parameters(self) -> int:
        """Parameters that a quantized base holds in 4 bits."""
        return quantized_parameters(self.architecture) if self.training.method == "qlora" else 0

    @cached_property
    def largest_quantized(self) -> int:
        """Elements of the largest quantized tensor, which is made 16-bit while it is used."""
        if self.training.method != "qlora":
            return 0
        return max((tensor.elements for tensor, _ in self.tensors if is_adapted(tensor)), default=0)

    def trainable_share(self, kind: LayerKind) -> float:
        """Share of a layer's weight matrices that takes gradients."""
        matrices = [tensor for tensor in kind.tensors if len(tensor.shape) > 1]
        total = sum(tensor.elements for tensor in matrices)
        return sum(tensor.elements for tensor in matrices if tensor.trainable) / total if total else 1.0

    @property
    def tied_gradient_elements(self) -> int:
        """Elements of each of the two extra gradients a tied embedding has at the end of backward; 0 if untied."""
        return self.head_parameters if self.architecture.tied and self.trains_embedding else 0

    @cached_property
    def persistent_parameters(self) -> int:
        """Elements in tensors small enough for stage 3 to keep whole on every rank."""
        limit = self.persistence_threshold
        return sum(size * count for size, count in self.tensor_sizes if size <= limit)

    @cached_property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer that can be checkpointed, in order."""
        return tuple(
            group.kind for group in self.architecture.layers if group.tower != "vision" for _ in range(group.count)
        )

    @cached_property
    def recomputed_kinds(self) -> Mapping[str, LayerKind]:
        """Distinct layer kinds by the name of the measure that counts their recomputed layers."""
        kinds = tuple(dict.fromkeys(self.layer_kinds))
        return {
            "recomputed_layers" if not index else f"recomputed_layers_{index + 1}": k for index, k in enumerate(kinds)
        }

    @cached_property
    def kind_counts(self) -> tuple[tuple[LayerKind, int], ...]:
        """Distinct layer kinds with the number of layers of each."""
        return tuple((kind, self.layer_kinds.count(kind)) for kind in self.recomputed_kinds.values())

    @cached_property
    def _by_kind(self) -> Mapping[int, tuple[LayerActivations, LayerFlops]]:
        """Activations and FLOP counts by the identity of the layer kind."""
        text = (group for group in self.architecture.layers if group.tower != "vision")
        found = list(zip(text, self.activations.layers, self.flops.layers, strict=True))
        return {
            id(kind): next((stored, flops) for group, stored, flops in found if group.kind == kind)
            for kind in self.layer_kinds
        }

    def activations_of(self, kind: LayerKind) -> LayerActivations:
        """What one layer of a kind keeps and holds."""
        return self._by_kind[id(kind)][0]

    def flops_of(self, kind: LayerKind) -> LayerFlops:
        """FLOP counts of one layer of a kind."""
        return self._by_kind[id(kind)][1]

    @cached_property
    def kind_activations(self) -> tuple[LayerActivations, ...]:
        """What one layer of each distinct kind keeps and holds."""
        return tuple(self.activations_of(kind) for kind, _ in self.kind_counts)

    @cached_property
    def model_flops_per_token(self) -> float:
        """FLOPs of one token's forward and backward: causal attention, nothing recomputed, backward twice forward."""
        layers = sum(
            count * (self.flops_of(kind).matmul_per_token + self.flops_of(kind).attention_per_token)
            for kind, count in self.kind_counts
        )
        return 3.0 * (layers + self.flops.head_per_token)

    # ── buffers, sized to the model ─────────────────────────────────────────────────────────────────────────────

    @property
    def reduce_bucket_size(self) -> int:
        """Elements of the gradient bucket: one layer, at most 50 million (100 MB in 16 bit saturates every link)."""
        return min(50_000_000, self.architecture.largest_layer)

    @property
    def prefetch_bucket_size(self) -> int:
        """Elements gathered ahead in stage 3: one layer, at most 50 million."""
        return min(50_000_000, self.architecture.largest_layer)

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
            "communication": Fraction(precision.compute_bytes),
            "master": Fraction(4),
            "optimizer_state": Fraction(str(self.training.optimizer.state_bytes_per_parameter)),
            "storage": Fraction(self.storage_bytes),
            "reduce": Fraction(self.storage_bytes),
            "torch_state": Fraction(str(self.training.optimizer.state_bytes_per_parameter))
            * (Fraction(self.storage_bytes, 4) if not self.training.optimizer.fixed_state_bytes else 1),
            "optimizer_temporary": Fraction(str(self.training.optimizer.temporary_bytes_per_parameter)),
            "optimizer_largest": Fraction(str(self.training.optimizer.temporary_bytes_of_largest)),
            "optimizer_traffic": Fraction(str(self.training.optimizer.step_bytes_per_parameter))
            + (precision.compute_bytes if precision.master_bytes else 0),
        }

    @property
    def storage_bytes(self) -> int:
        """Bytes per parameter of what a runtime without separate master weights keeps: fp32 unless all is 16-bit."""
        return self.training.precision.master_bytes or self.training.precision.compute_bytes

    def dtype_bytes(self, dtype: str) -> Fraction:
        """Bytes of one element of `dtype`."""
        return Fraction(DTYPE_BYTES[dtype])

    @cached_property
    def facts(self) -> Mapping[str, Value]:
        """Facts of the job that conditions of effects may test; choices are not among them."""
        return {
            "precision": self.training.precision.dtype,
            "optimizer": self.training.optimizer.key,
            "method": self.training.method,
            "gpus": self.cluster.gpus,
            "nodes": self.cluster.nodes,
        }

    def derived(self, name: str, values: Values) -> Value:
        """A choice's value, or a value that follows from choices."""
        if name == "gradient_accumulation":
            return self.micro_batches(values)
        if name == "data_parallel":
            return layout_of(values).data
        return values[name]

    def micro_batches(self, values: Values) -> int:
        """Micro-batches per optimizer step and rank; rounded up where the batch does not divide."""
        at_once = whole(values, "micro_batch") * layout_of(values).data
        return max(1, -(-self.training.global_batch // at_once))

    def ranks_per_node(self, values: Values) -> int:
        """Ranks that share one node's host memory."""
        return self.cluster.gpus_per_node

    def with_choices(self, choices: Mapping[str, tuple[Value, ...]]) -> Job:
        """The same job with some choices pinned or narrowed further."""
        return replace(self, choices={**self.choices, **choices})
