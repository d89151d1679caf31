"""Low-rank adapters on a model whose own weights stay as they are.

Every linear layer inside the text layers gets two matrices of the rank's width, as PEFT's `all-linear` does: the output
projection, embeddings, norms and stacked experts get none (peft 0.21.2 tuners/lora; transformers 5.24 keeps the head
out). Source of the method: Hu et al. 2021, arXiv:2106.09685; quantized base: Dettmers et al. 2023, arXiv:2305.14314.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from planner.architecture.shape import Architecture, LayerGroup, LayerKind, Tensor

ADAPTED_ROLES = ("attention", "mlp")


def with_adapters(architecture: Architecture, rank: int) -> Architecture:
    """The same model with everything frozen and adapters of `rank` on its linear layers."""
    groups = tuple(_group(group, rank) for group in architecture.layers)
    return replace(architecture, layers=groups, outside=tuple(map(_frozen, architecture.outside)))


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


def _group(group: LayerGroup, rank: int) -> LayerGroup:
    """The group frozen, with adapters where it belongs to the text model."""
    kind = group.kind
    adapters = () if group.tower == "vision" else tuple(_adapters(kind, rank))
    return replace(group, kind=replace(kind, tensors=(*map(_frozen, kind.tensors), *adapters)))


def _adapters(kind: LayerKind, rank: int) -> Iterable[Tensor]:
    """The two matrices of each adapted weight (outputs × inputs): rank × inputs and outputs × rank."""
    for tensor in kind.tensors:
        if is_adapted(tensor):
            outputs, inputs = tensor.shape
            yield Tensor(f"{tensor.name}.lora_A", (rank, inputs), "adapter")
            yield Tensor(f"{tensor.name}.lora_B", (outputs, rank), "adapter")
