"""What a trace found. Pure data; figures are bytes, FLOP and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any


@dataclass(frozen=True)
class TracedTensor:
    """One parameter tensor, `count` times over: once outside the layers, once in every layer of its kind inside."""

    name: str
    shape: tuple[int, ...]
    count: int = 1

    @property
    def elements(self) -> int:
        """Number of parameters of one of them."""
        return prod(self.shape)


@dataclass(frozen=True)
class TracedLayer:
    """One kind of layer: the places of its layers, and what one layer costs.

    `stored_constant + stored_per_token * tokens` bytes are kept for backward with nothing recomputed. The rest are
    bytes per token. `boundary`: the layer's output, which is what a checkpoint keeps. `forward_working`: made by the
    layer and alive at its most while it runs forward. `forward_surplus` and `backward_surplus`: alive then beyond
    everything that the layers store. `checkpointed_forward` and `recomputed`: alive beyond the checkpoints while a
    checkpointed layer runs forward, and while it is made again and runs backward. FLOP are forward and per token;
    `attention_flops`, those between tokens, at `Trace.sequence_lengths[-1]`.
    """

    kind: str
    places: tuple[int, ...]
    tensors: tuple[TracedTensor, ...]
    stored_per_token: float
    stored_constant: float
    boundary: float
    forward_working: float
    forward_surplus: float
    backward_surplus: float
    checkpointed_forward: float
    recomputed: float
    matmul_flops: float
    attention_flops: float

    @property
    def first(self) -> int:
        """The place of the first layer of this kind."""
        return self.places[0]

    @property
    def count(self) -> int:
        """Number of layers of this kind."""
        return len(self.places)

    @property
    def parameters(self) -> int:
        """Number of parameters of one layer."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True)
class TracedOutside:
    """What stands outside the layers: embeddings, final norm, head and loss; as for a layer.

    `tables_per_position`: bytes that all layers read, for each token of a sequence, whatever the number of sequences;
    `tables_per_token`: the same, made for each sequence. The rest are bytes per token. `final`: stored by the final
    norm and for the output projection. `named`: alive while the layers run forward. `final_forward`,
    `final_backward`, `loss_forward` and `loss_backward`: alive beyond everything stored up to the output projection.
    """

    tensors: tuple[TracedTensor, ...]
    stored_per_token: float
    stored_constant: float
    matmul_flops: float
    tables_per_position: float
    tables_per_token: float
    named: float
    final: float
    final_forward: float
    final_backward: float
    loss_forward: float
    loss_backward: float


@dataclass(frozen=True)
class TracedFacts:
    """The model itself: its configuration as read, the width of its stream, and its table of tokens."""

    config: Mapping[str, Any]
    hidden: int
    vocabulary: int
    positions: int
    tied: bool
    stateful: bool


@dataclass(frozen=True)
class Trace:
    """A model as its code runs it, in training mode with 16-bit weights and a batch of one sequence.

    `parameters`: of the whole model, tied tensors once. `forward_peak`, `backward_peak`: bytes of activations alive at
    most, weights and their gradients left out, nothing recomputed, at `sequence_lengths[-1]` tokens. `attention` is
    `flash`, `sdpa` or `eager`: how the model code ran it. `versions` of the libraries that ran, by name.
    """

    model: str
    family: str
    parameters: int
    layers: tuple[TracedLayer, ...]
    outside: TracedOutside
    forward_peak: int
    backward_peak: int
    sequence_lengths: tuple[int, int]
    attention: str
    versions: Mapping[str, str]
    facts: TracedFacts
    notes: tuple[str, ...] = ()

    @property
    def in_proportion(self) -> bool:
        """Whether bytes grow with the tokens in proportion, however long a sequence is."""
        return self.attention != "eager" or self.facts.stateful

    @property
    def layer_count(self) -> int:
        """Number of layers."""
        return sum(layer.count for layer in self.layers)

    @property
    def tensors(self) -> tuple[TracedTensor, ...]:
        """Every parameter tensor; those of layers with the number of layers of their kind."""
        inside = [TracedTensor(f"{layer.kind}.{tensor.name}", tensor.shape, layer.count)
                  for layer in self.layers for tensor in layer.tensors]
        return (*self.outside.tensors, *inside)
