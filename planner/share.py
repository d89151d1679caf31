"""One rank's share of a model: the tensors, layers and activations of a pipeline stage under a layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate

from planner.architecture.activations import LayerActivations, ModelActivations
from planner.architecture.adapters import is_adapted
from planner.architecture.division import divided, divided_kind
from planner.architecture.shape import LayerKind, Tensor
from planner.blocks import PLAIN, Blocks
from planner.job import Job
from planner.layouts import WHOLE, chunks_under_way, stage_layers
from planner.plan import Layout, layout_of
from planner.speed.operations import NARROW_ROLES
from planner.terms import Values

TABLES = ("embedding", "positions")


@dataclass(frozen=True, eq=False)
class Share:
    """What one rank of `stage` holds under `layout`; counts are elements."""

    job: Job
    layout: Layout
    stage: str

    # ── layers ───────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kind of each layer of the stage, undivided, in order."""
        start, count = stage_layers(len(self.job.layer_kinds), self.layout, self.stage)
        return self.job.layer_kinds[start : start + count]

    @cached_property
    def kind_counts(self) -> tuple[tuple[LayerKind, int], ...]:
        """Distinct kinds of the stage, undivided, with the number of layers of each."""
        counts = Counter(map(id, self.kinds))
        return tuple((kind, counts[id(kind)]) for kind, _ in self.job.kind_counts if id(kind) in counts)

    @cached_property
    def held(self) -> tuple[LayerKind, ...]:
        """The layers of the stage as this rank holds them."""
        parts = kind_parts(self.job, self.layout.tensor, self.layout.expert)
        return tuple(parts[id(kind)] for kind in self.kinds)

    @property
    def exists(self) -> bool:
        """Whether the pipeline has such a stage."""
        return bool(self.kinds)

    @property
    def is_first(self) -> bool:
        """Whether the stage holds the embedding."""
        return self.exists and self.stage in (WHOLE, "first")

    @property
    def is_last(self) -> bool:
        """Whether the stage makes logits."""
        return self.exists and (self.stage in (WHOLE, "last") or self.layout.pipeline == 1)

    @cached_property
    def outside(self) -> tuple[Tensor, ...]:
        """Tensors outside the layers: the embedding on the first stage, final norm and head on the last.

        A tied embedding stands on both ends of a pipeline. Vision towers are with the first stage.
        """
        architecture = self.job.architecture
        towers = (
            t for group in architecture.layers if group.tower == "vision" for t in group.kind.tensors * group.count
        )
        found = [tensor for tensor in architecture.outside if self.is_first and tensor.role in TABLES]
        if self.is_last:
            tied = architecture.tied and not self.is_first
            last = (t for t in architecture.outside if t.role not in TABLES or (tied and t.role == "embedding"))
            found += last
        if self.is_first:
            found += towers
        return tuple(divided(tensor, self.layout.tensor, self.layout.expert) for tensor in found)

    # ── tensors ──────────────────────────────────────────────────────────────────────────────────────────────────

    @cached_property
    def counted(self) -> tuple[tuple[Tensor, int], ...]:
        """Every tensor of the share with how often it occurs: outside the layers first, then layer kind by kind."""
        kinds = {id(kind): kind for kind in self.held}
        counts = Counter(map(id, self.held))
        layers = ((tensor, counts[key]) for key, kind in kinds.items() for tensor in kind.tensors)
        return (*((tensor, 1) for tensor in self.outside), *layers)

    @cached_property
    def parameters(self) -> int:
        """Elements of all tensors."""
        return sum(tensor.elements * count for tensor, count in self.counted)

    @cached_property
    def trainable(self) -> int:
        """Elements that the optimizer updates."""
        return sum(tensor.elements * count for tensor, count in self.counted if tensor.trainable)

    def experts(self, trainable: bool = False) -> int:
        """Elements of experts, which expert-parallel ranks do not share; of those that are trained only."""
        found = ((t, count) for t, count in self.counted if t.role == "expert" and (t.trainable or not trainable))
        return sum(tensor.elements * count for tensor, count in found)

    @cached_property
    def multiplied(self) -> int:
        """Elements of the layers' matrices whose products run narrow where the job asks for it."""
        layers = self.counted[len(self.outside) :]
        return sum(t.elements * count for t, count in layers if len(t.shape) > 1 and t.role in NARROW_ROLES)

    @cached_property
    def sizes(self) -> tuple[tuple[int, int], ...]:
        """(elements, 1) of the trainable tensors in the order of the flat buffer."""
        ordered = (*self.outside, *(tensor for kind in self.held for tensor in kind.tensors))
        return tuple((tensor.elements, 1) for tensor in ordered if tensor.trainable)

    @cached_property
    def sizes_in_order(self) -> tuple[tuple[int, int], ...]:
        """As `sizes` in the order of the model code: tables, layers, then final norm and head."""
        tables = [tensor for tensor in self.outside if tensor.role in TABLES]
        ends = [tensor for tensor in self.outside if tensor.role not in TABLES]
        ordered = (*tables, *(tensor for kind in self.held for tensor in kind.tensors), *ends)
        return tuple((tensor.elements, 1) for tensor in ordered if tensor.trainable)

    @cached_property
    def head(self) -> int:
        """Elements of the matrix that makes logits (the input embedding where tied); 0 where the stage makes none."""
        architecture = self.job.architecture
        return -(-architecture.vocabulary // self.layout.tensor) * architecture.hidden if self.is_last else 0

    @cached_property
    def root(self) -> int:
        """Elements of the tensors outside the layers."""
        vision = sum(g.kind.parameters * g.count for g in self.job.architecture.layers if g.tower == "vision")
        return sum(tensor.elements for tensor in self.outside) - (vision if self.is_first else 0)

    @cached_property
    def trained_root(self) -> int:
        """Elements with gradients of the tensors outside the layers."""
        return sum(tensor.elements for tensor in self.outside if tensor.trainable)

    @cached_property
    def largest_layer(self) -> int:
        """Elements of the largest layer."""
        vision = [group.kind for group in self.job.architecture.layers if group.tower == "vision" and self.is_first]
        return max((kind.parameters for kind in (*self.held, *vision)), default=0)

    @cached_property
    def largest_trained_layer(self) -> int:
        """Elements with gradients in the layer that has the most of them."""
        return max((sum(t.elements for t in kind.tensors if t.trainable) for kind in self.held), default=0)

    @cached_property
    def largest_block(self) -> int:
        """Elements of the largest dense feed-forward block of a layer."""
        return max((sum(t.elements for t in kind.tensors if t.role == "mlp") for kind in self.held), default=0)

    @cached_property
    def largest_tensor(self) -> int:
        """Elements of the largest single tensor."""
        return max((tensor.elements for tensor, _ in self.counted), default=0)

    @cached_property
    def largest_trainable(self) -> int:
        """Elements of the largest tensor that takes a gradient."""
        return max((tensor.elements for tensor, _ in self.counted if tensor.trainable), default=0)

    @cached_property
    def usual_matrix(self) -> int:
        """Elements of a usual matrix of the largest layer: what is larger than a bucket is sent whole."""
        kind = max(self.held, key=lambda kind: kind.parameters)
        return kind.parameters // max(1, sum(len(tensor.shape) > 1 for tensor in kind.tensors))

    @property
    def trains_embedding(self) -> bool:
        """Whether some embedding of the share takes a gradient."""
        return any(tensor.trainable for tensor in self.outside if tensor.role == "embedding")

    @property
    def embedding(self) -> int:
        """Elements of the input embedding, whose gradient comes last; 0 where it takes none."""
        architecture = self.job.architecture
        rows = -(-architecture.vocabulary // self.layout.tensor)
        return rows * architecture.hidden if self.trains_embedding and self.is_first else 0

    @property
    def tied_gradient(self) -> int:
        """Elements of each of the two extra gradients that a tied embedding has at the end of backward; 0 if untied."""
        both = self.is_first and self.is_last
        return self.head if both and self.job.architecture.tied and self.trains_embedding else 0

    @cached_property
    def quantized(self) -> int:
        """Elements that a quantized base holds in 4 bits."""
        layers = self.counted[len(self.outside) :]
        return sum(t.elements * count for t, count in layers if is_adapted(t)) if self._is_quantized else 0

    @cached_property
    def largest_quantized(self) -> int:
        """Elements of the largest quantized tensor, which is made 16-bit while it is used."""
        found = (tensor.elements for tensor, _ in self.counted if is_adapted(tensor))
        return max(found, default=0) if self._is_quantized else 0

    @property
    def _is_quantized(self) -> bool:
        return self.job.training.method == "qlora"

    @cached_property
    def persistent(self) -> int:
        """Elements in tensors small enough for stage 3 to keep whole on every rank."""
        limit = self.job.persistence_threshold
        return sum(t.elements * count for t, count in self.counted if t.trainable and t.elements <= limit)

    @cached_property
    def recomputed(self) -> Mapping[str, int]:
        """Elements of a layer by the name of the measure that counts such layers."""
        parts, found = kind_parts(self.job, self.layout.tensor, self.layout.expert), self.job.recomputed_kinds.items()
        return {measure_name(name, self.stage): parts[id(kind)].parameters for name, kind in found}

    # ── activations ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def activations(self) -> ModelActivations:
        """The model's activations as a tensor-parallel rank has them."""
        return self.job.activations_under(self.layout.tensor, self.layout.whole_stream)

    def kept_layers(self, blocks: Blocks = PLAIN) -> tuple[LayerActivations, ...]:
        """What each layer of the stage keeps and holds, in order."""
        return kept_layers(self, blocks)

    @cached_property
    def counts_before(self) -> Mapping[int, tuple[int, ...]]:
        """For each kind, by identity, how many of the first 0, 1, 2 … layers of the stage are of it."""
        kinds = {id(kind) for kind in self.kinds}
        return {key: tuple(accumulate((id(kind) == key for kind in self.kinds), initial=0)) for key in kinds}

    def of(self, kind: LayerKind, blocks: Blocks = PLAIN) -> LayerActivations:
        """What one layer of a kind keeps and holds on a tensor-parallel rank."""
        return self.job.activations_of(kind, self.layout.tensor, self.layout.whole_stream, blocks)

    def chunks(self, micro_batches: int) -> int:
        """Chunks of the stage, of `layout.virtual_stages`, that are under way at once."""
        return chunks_under_way(self.layout, self.stage, micro_batches)

    def under_way(self, size: int, micro_batches: int) -> int:
        """What `size` bytes for all layers of the stage come to with every micro-batch under way, rounded up."""
        return -(-size * self.chunks(micro_batches) // self.layout.virtual_stages)

    def others_under_way(self, size: int, micro_batches: int) -> int:
        """As `under_way`, without the micro-batch whose backward ends."""
        others = self.chunks(micro_batches) - 1 if self.layout.pipeline > 1 else 0
        return -(-size * others // self.layout.virtual_stages)


def node_shards(job: Job, layout: Layout) -> int:
    """Ranks of one node among those that share one copy of the model states."""
    return min(layout.shards, max(1, job.cluster.gpus_per_node // layout.tensor))


def share_of(job: Job, values: Values, stage: str) -> Share:
    """The share of a stage under the layout among `values`."""
    return share(job, layout_of(values), stage)


@lru_cache(maxsize=16384)
def share(job: Job, layout: Layout, stage: str = WHOLE) -> Share:
    """The share of a stage, made once."""
    return Share(job, layout, stage)


@lru_cache(maxsize=16384)
def kept_layers(share: Share, blocks: Blocks) -> tuple[LayerActivations, ...]:
    """What each layer of a share keeps and holds, in order, made once."""
    return tuple(share.of(kind, blocks) for kind in share.kinds)


@lru_cache(maxsize=1024)
def kind_parts(job: Job, tensor_ranks: int, expert_ranks: int) -> Mapping[int, LayerKind]:
    """Each layer kind of a job as one rank holds it, by the identity of the whole kind."""
    return {id(kind): divided_kind(kind, tensor_ranks, expert_ranks) for kind, _ in job.kind_counts}


def measure_name(name: str, stage: str) -> str:
    """A measure's name for one stage."""
    return name if stage == WHOLE else f"{name}@{stage}"
