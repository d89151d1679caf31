"""Peaks of the activations over the moments of one micro-batch: the whole model kept, or every layer recomputed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from planner.architecture.activations import LayerActivations, ModelActivations
from planner.architecture.amount import Amount, total
from planner.architecture.shape import Architecture


@dataclass(frozen=True)
class ActivationPeaks:
    """Bytes of activations alive at most while the layers run forward, in the loss, and in both backward parts."""

    forward_layers: int
    forward_loss: int
    backward_loss: int
    backward_layers: int

    @property
    def highest(self) -> int:
        """The largest of them."""
        return max(self.forward_layers, self.forward_loss, self.backward_loss, self.backward_layers)


def activation_peaks(
    architecture: Architecture, found: ModelActivations, tokens: int, checkpointed: bool, selective: bool = False
) -> ActivationPeaks:
    """Peaks for a micro-batch of `tokens` tokens, gradients and weights apart.

    `checkpointed`: every layer keeps its input and is recomputed alone in backward; otherwise every layer is kept.
    `selective`: checkpointed layers keep what selective recomputation keeps.
    """
    if selective:
        found = replace(found, layers=tuple(map(_selective, found.layers)))
    counts = [group.count for group in architecture.layers if group.tower != "vision"]
    kept = [layer.boundary if checkpointed else layer.stored for layer in found.layers]
    standing = total([amount.scaled(count) for amount, count in zip(kept, counts, strict=True)])
    copies = total([layer.cached.scaled(count) for layer, count in zip(found.layers, counts, strict=True)])
    standing += found.biases if checkpointed else Amount()
    forward, full = standing + (copies if checkpointed else Amount()), standing + found.outside
    final = forward + found.outside
    return ActivationPeaks(
        forward_layers=max(_forward(found, forward, tokens, checkpointed), (final + found.final_forward).at(tokens)),
        forward_loss=(final + found.loss_forward).at(tokens),
        backward_loss=(full + found.loss_backward).at(tokens),
        backward_layers=max(_backward(found, standing, tokens, checkpointed), (full + found.final_backward).at(tokens)),
    )


def _selective(layer: LayerActivations) -> LayerActivations:
    """The layer with what selective recomputation keeps at its checkpoint."""
    live = layer.checkpointed_backward_live - layer.selective_shared
    return replace(layer, boundary=layer.boundary + layer.selective, checkpointed_backward_live=live)


def _forward(found: ModelActivations, standing: Amount, tokens: int, checkpointed: bool) -> int:
    def live(layer: LayerActivations) -> Amount:
        return layer.checkpointed_forward_live if checkpointed else layer.forward_live

    named = found.embedded + (Amount() if checkpointed else found.biases)
    return (standing + found.tables + named).at(tokens) + max(live(layer).at(tokens) for layer in found.layers)


def _backward(found: ModelActivations, standing: Amount, tokens: int, checkpointed: bool) -> int:
    """Kept layers go from the last one, whose surplus stands on all of them; recomputed ones on their checkpoints."""
    if not checkpointed:
        return (standing + found.tables + found.layers[-1].backward_live).at(tokens)
    most = max(layer.checkpointed_backward_live.at(tokens) for layer in found.layers)
    return (standing + found.tables).at(tokens) + most
