"""Low-rank adapters on a model whose own weights stay as they are.

Every linear layer inside the text layers gets two matrices of the rank's width, as PEFT's `all-linear` does: the output
projection, embeddings, norms and stacked experts get none (peft 0.21.2 tuners/lora; transformers 5.24 keeps the head
out). Source of the method: Hu et al. 2021, arXiv:2106.09685; quantized base: Dettmers et al. 2023, arXiv:2305.14314.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from planner.architecture.amount import ALL_LINEAR
from planner.architecture.shape import Architecture, LayerGroup, LayerKind, Tensor

ADAPTED_ROLES = ("attention", "mlp")


# What a target names, by the last part of the weight's name in the model code; fused matrices count as all they hold.
FUSED = ("qkv_proj", "query_key_value", "c_attn", "Wqkv", "wqkv")
TARGETS: Mapping[str, tuple[str, ...]] = {
    "q": ("q_proj", "q_a_proj", "q_b_proj", "query", "wq", *FUSED),
    "k": ("k_proj", "kv_a_proj_with_mqa", "kv_b_proj", "key", "wk", *FUSED),
    "v": ("v_proj", "kv_a_proj_with_mqa", "kv_b_proj", "value", "wv", *FUSED),
    "o": ("o_proj", "out_proj", "dense", "wo", "c_proj", "out"),
    "gate": ("gate_proj", "gate_up_proj", "w1", "wi_0"),
    "up": ("up_proj", "gate_up_proj", "w3", "wi_1", "c_fc", "dense_h_to_4h", "fc1", "wi"),
    "down": ("down_proj", "w2", "c_proj", "dense_4h_to_h", "fc2", "wo"),
}


@dataclass(frozen=True)
class Adapters:
    """Low-rank adapters: their rank, the projections that carry one (see TARGETS), and whether weights are decomposed.

    `decomposed` adds a magnitude for each output (Liu et al. 2024, DoRA, arXiv:2402.09353 section 4.1).
    `train_embeddings`: embeddings and output projection are trained whole (PEFT modules_to_save).
    """

    rank: int
    targets: tuple[str, ...] = ALL_LINEAR
    decomposed: bool = False
    train_embeddings: bool = False


def with_adapters(architecture: Architecture, adapters: Adapters) -> Architecture:
    """The same model with everything frozen and adapters on the linear layers that are targets."""
    groups = tuple(_group(group, adapters) for group in architecture.layers)
    outside = tuple(t if adapters.train_embeddings and _is_table(t) else _frozen(t) for t in architecture.outside)
    return replace(architecture, layers=groups, outside=outside)


def _is_table(tensor: Tensor) -> bool:
    """Whether a tensor is the input embedding or the output projection."""
    return tensor.role in ("embedding", "head")


def is_target(tensor: Tensor, targets: tuple[str, ...]) -> bool:
    """Whether an adapted weight belongs to one of the named projections."""
    if set(targets) >= set(ALL_LINEAR):
        return is_adapted(tensor)
    last = tensor.name.removesuffix(".weight").rpartition(".")[2]
    named = (last in TARGETS[target] and _same_block(tensor, target) for target in targets)
    return is_adapted(tensor) and any(named)


def _same_block(tensor: Tensor, target: str) -> bool:
    """Whether the tensor is in the block that the target means: some names stand in attention and feed-forward."""
    return (tensor.role == "attention") == (target in ("q", "k", "v", "o"))


def is_adapted(tensor: Tensor) -> bool:
    """Whether a tensor is the weight of a linear layer that gets an adapter."""
    return tensor.role in ADAPTED_ROLES and len(tensor.shape) == 2


def quantized_parameters(architecture: Architecture) -> int:
    """Parameters that a 4-bit base holds in 4 bits: the weights of the adapted linear layers."""
    groups = (group for group in architecture.layers if group.tower != "vision")
    return sum(t.elements * group.count for group in groups for t in group.kind.tensors if is_adapted(t))


def _frozen(tensor: Tensor) -> Tensor:
    """The tensor without a gradient."""
    return replace(tensor, trainable=False)


def _group(group: LayerGroup, adapters: Adapters) -> LayerGroup:
    """The group frozen, with adapters where it belongs to the text model."""
    kind = group.kind
    added = () if group.tower == "vision" else tuple(_adapters(kind, adapters))
    return replace(group, kind=replace(kind, tensors=(*map(_frozen, kind.tensors), *added)))


def _adapters(kind: LayerKind, adapters: Adapters) -> Iterable[Tensor]:
    """The two matrices of each adapted weight (outputs × inputs): rank × inputs and outputs × rank; a magnitude."""
    for tensor in kind.tensors:
        if is_target(tensor, adapters.targets):
            outputs, inputs = tensor.shape
            yield Tensor(f"{tensor.name}.lora_A", (adapters.rank, inputs), "adapter")
            yield Tensor(f"{tensor.name}.lora_B", (outputs, adapters.rank), "adapter")
            if adapters.decomposed:
                yield Tensor(f"{tensor.name}.lora_magnitude", (outputs,), "adapter")
