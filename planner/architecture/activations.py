"""What a model keeps alive for a micro-batch: per layer stored, kept at a checkpoint, and needed while it runs."""

from __future__ import annotations

from dataclasses import dataclass

from planner.architecture.activation_loss import idle_logits, loss_amounts
from planner.architecture.activation_norm import final_norm_work, norm_stored, reads_stream, stream_kept
from planner.architecture.activation_selective import selective_amounts
from planner.architecture.activation_sites import Site, layer_sites
from planner.architecture.amount import ActivationSettings, Amount, total
from planner.architecture.shape import Architecture, LayerKind

__all__ = ["ActivationSettings", "Amount", "LayerActivations", "ModelActivations", "activations"]

LABELS = 8
"""Bytes per token of the shifted int64 labels that the loss keeps."""
POSITIONS = 8
"""Bytes per token of the int64 row numbers that a learned position table keeps."""


@dataclass(frozen=True)
class LayerActivations:
    """One layer's activations.

    `stored`: kept for backward with nothing recomputed. `boundary`: kept at a checkpoint, the layer's input; `cached`:
    until the end of forward besides, autocast's copies of the weights.
    `forward_live`, `backward_live`: beyond everything stored while a kept layer runs. `checkpointed_forward_live`:
    while a checkpointed layer runs forward. `checkpointed_backward_live`: a recomputed layer's stored set and its
    backward's surplus together, without its checkpoint. `selective`: what a checkpoint keeps besides under selective
    recomputation, `selective_shared` the part of it that `checkpointed_backward_live` counts too.
    """

    stored: Amount
    boundary: Amount
    forward_live: Amount
    checkpointed_forward_live: Amount
    backward_live: Amount
    checkpointed_backward_live: Amount
    cached: Amount = Amount()
    selective: Amount = Amount()
    selective_shared: Amount = Amount()


@dataclass(frozen=True)
class ModelActivations:
    """A model's activations: `layers` aligned with the architecture's groups, vision towers left out.

    `outside`: final norm, labels and `tables`, which stay until the first layer's backward: the rotary tables and the
    input of a norm over the embeddings.
    `biases`: relative positions that all layers of a tower add to their scores, alive while the layers run forward, and
    until backward where a layer is recomputed.
    `embedded`: embeddings of words and positions, which the model code still names while the layers run forward.
    `loss_forward`, `loss_backward`: the most that logits and loss hold in forward and in backward.
    `final_forward`, `final_backward`: what the final norm needs beyond everything stored, `outside` included.
    `idle_logits`: what the allocator keeps of logits that are freed, and nothing made later fits into.
    `tied_gradient_extra`: bytes of the further gradients of a tied embedding.
    """

    layers: tuple[LayerActivations, ...]
    outside: Amount
    loss_forward: Amount
    loss_backward: Amount
    tied_gradient_extra: int
    tables: Amount = Amount()
    biases: Amount = Amount()
    embedded: Amount = Amount()
    final_forward: Amount = Amount()
    final_backward: Amount = Amount()
    idle_logits: Amount = Amount()

    @property
    def final(self) -> Amount:
        """`outside` without `tables`: what goes before the last layer's backward."""
        return self.outside - self.tables


def activations(architecture: Architecture, settings: ActivationSettings) -> ModelActivations:
    """Activations of `architecture` under `settings`, in bytes."""
    kinds = [group.kind for group in architecture.layers if group.tower != "vision"]
    hidden, last = architecture.hidden, kinds[-1]
    forward, backward = loss_amounts(architecture, settings)
    outside, tables = _outside(architecture, last, settings), _tables(kinds, settings)
    tables += _embedding_norm(architecture, settings) + _encoder_norm(architecture, settings)
    final = final_norm_work(last.norm, last.norm_offset, settings)
    table = settings.element * architecture.vocabulary * hidden
    gathered = Amount(0, settings.element * hidden if settings.stream_parts > 1 else 0)  # the head's input
    return ModelActivations(
        layers=tuple(_layer(kind, hidden, settings) for kind in kinds),
        outside=outside.divided(settings.stream_parts) + tables,
        loss_forward=forward.divided(settings.tensor_parallel) + gathered,
        loss_backward=backward.divided(settings.tensor_parallel) + gathered.scaled(2),
        tied_gradient_extra=2 * table if architecture.tied and not settings.frozen else 0,
        tables=tables,
        biases=_biases(architecture, settings),
        embedded=_embedded(architecture, settings),
        final_forward=Amount(0, max(final[0] * hidden - outside.per_token, 0)),
        final_backward=Amount(0, max(final[1] * hidden - outside.per_token, 0)),
        idle_logits=idle_logits(architecture, settings).divided(settings.tensor_parallel),
    )


def _layer(kind: LayerKind, hidden: int, settings: ActivationSettings) -> LayerActivations:
    """One layer's sites folded into what the ledger needs."""
    sites = layer_sites(kind, hidden, settings)
    copies = weight_copies(kind, settings)
    stored = total([site.stored for site in sites]) + copies
    boundary = Amount(0, settings.stream * hidden).divided(settings.stream_parts)
    shared = boundary if stream_kept(kind, settings) else Amount()
    selective, selective_shared = selective_amounts(kind, hidden, settings)
    return LayerActivations(
        stored=stored,
        boundary=boundary,
        forward_live=Amount(0, _beyond(sites, "forward")),
        checkpointed_forward_live=Amount(0, max(site.work.alone for site in sites)),
        backward_live=Amount(0, _beyond(sites, "backward")),
        checkpointed_backward_live=stored + Amount(0, _beyond(sites, "recomputed")) - shared,
        cached=copies,
        selective=selective,
        selective_shared=selective_shared,
    )


def weight_copies(kind: LayerKind, settings: ActivationSettings) -> Amount:
    """16-bit copies that autocast caches of a layer's matrices, until backward or the end of a recomputed forward.

    Of weights that take a gradient only (torch 2.13 aten/src/ATen/autocast_mode.cpp, cached_cast).
    """
    if settings.precision != "autocast" or settings.frozen:
        return Amount()
    matrices = sum(2 * tensor.elements for tensor in kind.tensors if len(tensor.shape) > 1)
    return Amount(matrices).divided(settings.tensor_parallel)


def _beyond(sites: tuple[Site, ...], work: str) -> int:
    """The most that any site needs, all stored up to it included, beyond the layer's stored set; 0 or more."""
    most, after = 0, sum(site.stored.per_token for site in sites)
    for site in sites:
        after -= site.stored.per_token
        most = max(most, getattr(site.work, work) - after)
    return most


def _outside(architecture: Architecture, last: LayerKind, settings: ActivationSettings) -> Amount:
    """Final norm with the output that the head reads, labels, positions, and a narrow embedding's projections."""
    hidden, element = architecture.hidden, settings.element
    bare = reads_stream(last) and last.norm == "layer_norm"
    norm = Amount() if bare else norm_stored(last.norm, last.norm_offset, hidden, settings, keeps_stream=True)
    read = 0 if settings.frozen else element * hidden
    positions = POSITIONS if any(tensor.role == "positions" for tensor in architecture.outside) else 0
    width = next((tensor.shape[-1] for tensor in architecture.outside if tensor.role == "embedding"), hidden)
    narrow = 2 * element * width if width != hidden else 0
    return norm + Amount(0, read + LABELS + positions + narrow)


def _encoder_norm(architecture: Architecture, settings: ActivationSettings) -> Amount:
    """What an encoder's own final norm and its readers keep while the decoder runs."""
    kind, hidden = architecture.layers[0].kind, architecture.hidden
    if not {"encoder", "decoder"} <= {group.tower for group in architecture.layers} or reads_stream(kind):
        return Amount()
    norm = norm_stored(kind.norm, kind.norm_offset, hidden, settings, keeps_stream=True)
    return norm + Amount(0, settings.element * hidden)


def _embedded(architecture: Architecture, settings: ActivationSettings) -> Amount:
    """Decoders with a table of positions keep both terms of their sum; encoders make it in a module of its own."""
    table = any(tensor.role == "positions" for tensor in architecture.outside)
    attention = architecture.layers[-1].kind.attention
    if not table or attention is None or not attention.causal or attention.rotary_dim:
        return Amount()
    return Amount(0, 2 * settings.stream * architecture.hidden)


def _biases(architecture: Architecture, settings: ActivationSettings) -> Amount:
    """One bias per head for each pair of positions: one in an encoder, in a decoder one for each of its attentions."""
    kinds = [group.kind for group in architecture.layers]
    biased = [kind for kind in kinds if any("relative_attention_bias" in tensor.name for tensor in kind.tensors)]
    towers = list({kind.cross_attention is not None: kind for kind in biased if kind.attention}.values())
    scores = [kind.attention.heads * (2 if kind.cross_attention else 1) for kind in towers if kind.attention]
    return Amount(settings.element * sum(scores) * settings.sequence_length**2)


def _tables(kinds: list[LayerKind], settings: ActivationSettings) -> Amount:
    """Cosines and sines that all layers share, one row per position."""
    attentions = [kind.attention for kind in kinds if kind.attention is not None]
    shared = max((block.rotary_dim for block in attentions if not block.rotary_interleaved), default=0)
    return Amount(2 * settings.stream * shared * settings.sequence_length)


def _embedding_norm(architecture: Architecture, settings: ActivationSettings) -> Amount:
    """The input that a norm over the embeddings keeps until the end of backward."""
    normed = any(tensor.role == "norm" and "embed" in tensor.name for tensor in architecture.outside)
    return Amount(0, settings.stream * architecture.hidden) if normed else Amount()
