"""What a model keeps alive for a micro-batch: per layer stored, kept at a checkpoint, and needed while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from planner.architecture.activation_sites import Site, layer_sites
from planner.architecture.amount import ActivationSettings, Amount, total
from planner.architecture.shape import Architecture, LayerKind

__all__ = ["ActivationSettings", "Amount", "LayerActivations", "ModelActivations", "activations"]

LABELS = 8
"""Bytes per token of the shifted int64 labels that the loss keeps."""


@dataclass(frozen=True)
class LayerActivations:
    """One layer's activations.

    `stored`: kept for backward with nothing recomputed. `boundary`: kept at a checkpoint, the layer's input.
    `forward_live`, `backward_live`: beyond everything stored while a kept layer runs. `checkpointed_forward_live`:
    while a checkpointed layer runs forward. `checkpointed_backward_live`: a recomputed layer's stored set and its
    backward's surplus together.
    """

    stored: Amount
    boundary: Amount
    forward_live: Amount
    checkpointed_forward_live: Amount
    backward_live: Amount
    checkpointed_backward_live: Amount


@dataclass(frozen=True)
class ModelActivations:
    """A model's activations: `layers` aligned with the architecture's groups, vision towers left out.

    `outside`: final norm, rotary tables and labels. `loss_forward`, `loss_backward`: the most that logits and loss
    hold in forward and in backward. `tied_gradient_extra`: bytes of the further gradients of a tied embedding.
    """

    layers: tuple[LayerActivations, ...]
    outside: Amount
    loss_forward: Amount
    loss_backward: Amount
    tied_gradient_extra: int


def activations(architecture: Architecture, settings: ActivationSettings) -> ModelActivations:
    """Activations of `architecture` under `settings`, in bytes."""
    kinds = [group.kind for group in architecture.layers if group.tower != "vision"]
    forward, backward = _loss(architecture, settings)
    table = settings.element * architecture.vocabulary * architecture.hidden
    return ModelActivations(
        layers=tuple(_layer(kind, architecture.hidden, settings) for kind in kinds),
        outside=_outside(architecture, kinds[-1], settings),
        loss_forward=forward,
        loss_backward=backward,
        tied_gradient_extra=2 * table if architecture.tied else 0,
    )


def _layer(kind: LayerKind, hidden: int, settings: ActivationSettings) -> LayerActivations:
    """One layer's sites folded into what the ledger needs."""
    sites = layer_sites(kind, hidden, settings)
    stored = total([site.stored for site in sites])
    boundary = Amount(0, settings.stream * hidden)
    return LayerActivations(
        stored=stored,
        boundary=boundary,
        forward_live=_beyond(sites, stored, "forward"),
        checkpointed_forward_live=Amount(0, max(site.work.alone for site in sites)),
        backward_live=_beyond(sites, stored, "backward"),
        checkpointed_backward_live=_beyond(sites, Amount(), "recomputed"),
    )


def _beyond(sites: tuple[Site, ...], stored: Amount, work: str) -> Amount:
    """The most that any site needs, all stored up to it included, beyond `stored`; never below nothing."""
    most, before = 0, Amount()
    for site in sites:
        before = before + site.stored
        most = max(most, before.per_token - stored.per_token + getattr(site.work, work))
    return Amount(0 if stored.per_token else before.constant, most)


def _outside(architecture: Architecture, last: LayerKind, settings: ActivationSettings) -> Amount:
    """Final norm with its output, rotary tables once per position, and labels."""
    hidden = architecture.hidden
    norm = {"layer_norm": 4, "rms_fp32": 10}.get(last.norm, 8) * hidden + 4
    rotary = last.attention.rotary_dim if last.attention else 0
    return Amount(4 * rotary * settings.sequence_length, norm + LABELS)


def _loss(architecture: Architecture, settings: ActivationSettings) -> tuple[Amount, Amount]:
    """The most that logits and loss hold in forward and in backward (transformers 5.24 loss; Liger by its source)."""
    rows, hidden, element = architecture.vocabulary, architecture.hidden, settings.element
    softcap = element * rows if architecture.logit_softcap else 0
    if settings.loss == "standard":
        held = element * rows if settings.outputs_held else 0
        forward = (8 if element == 4 else 10) * rows + softcap
        return Amount(0, forward), Amount(0, 12 * rows + held + softcap)
    if settings.loss == "chunked":
        chunk = settings.loss_chunk_tokens
        return Amount(8 * rows * chunk, 0), Amount(12 * rows * chunk + element * rows * hidden, element * hidden)
    fused = Amount(8 * rows * hidden, element * hidden)
    return fused, Amount(element * rows * hidden, element * hidden)
