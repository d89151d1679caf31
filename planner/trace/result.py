"""What a trace found. Pure data; figures are bytes, FLOP and counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod


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
    """One kind of layer: `count` layers, the first of them at `first`, and what one layer costs.

    `stored_constant + stored_per_token * tokens` bytes are kept for backward with nothing recomputed. `boundary`:
    bytes per token of the layer's output, which is what a checkpoint keeps. `forward_working`: bytes per token that the
    layer makes and has alive at its most while it runs forward. FLOP are forward and per token; `attention_flops`,
    those between tokens, at `Trace.sequence_lengths[-1]`.
    """

    kind: str
    first: int
    count: int
    tensors: tuple[TracedTensor, ...]
    stored_per_token: float
    stored_constant: float
    boundary: float
    forward_working: float
    matmul_flops: float
    attention_flops: float

    @property
    def parameters(self) -> int:
        """Number of parameters of one layer."""
        return sum(tensor.elements for tensor in self.tensors)


@dataclass(frozen=True)
class TracedOutside:
    """What stands outside the layers: embeddings, final norm, head and loss; as for a layer."""

    tensors: tuple[TracedTensor, ...]
    stored_per_token: float
    stored_constant: float
    matmul_flops: float


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
    notes: tuple[str, ...] = ()

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
