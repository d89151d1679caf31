"""What a trace found of a model, in place of the formulas: activations and FLOP of its layers, bf16, full training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil

from planner.architecture.activation_loss import loss_amounts
from planner.architecture.activations import LayerActivations, ModelActivations, activations
from planner.architecture.amount import ActivationSettings, Amount
from planner.architecture.flops import LayerFlops, ModelFlops
from planner.architecture.shape import Architecture
from planner.errors import InputError


@dataclass(frozen=True)
class TracedFigures:
    """One kind of layer: bytes per token and whatever the tokens, and FLOP per token; see `LayerActivations`."""

    stored: float
    stored_constant: float
    boundary: float
    forward_live: float
    backward_live: float
    checkpointed_forward_live: float
    checkpointed_backward_live: float
    matmul_flops: float
    attention_flops: float


@dataclass(frozen=True)
class TracedAround:
    """Outside the layers, in bytes per token, and per position where all sequences share it; see `ModelActivations`."""

    tables_per_position: float
    tables: float
    embedded: float
    final: float
    final_forward: float
    final_backward: float
    loss_forward: float
    loss_backward: float
    head_flops: float


@dataclass(frozen=True)
class TracedModel:
    """A traced model: `layers` aligned with the architecture's groups, vision towers left out.

    `known`: the importer knows the family, so that formulas say how figures divide over tensor-parallel ranks.
    `in_proportion`: bytes grow with tokens in proportion; otherwise they hold between the two `lengths` only.
    `attention` is `flash`, `sdpa` or `eager`: how the model code ran it. `versions` of the libraries that ran it.
    """

    layers: tuple[TracedFigures, ...]
    around: TracedAround
    known: bool
    in_proportion: bool
    attention: str
    lengths: tuple[int, int]
    versions: str

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What an answer that rests on these figures says of them."""
        short, long = self.lengths
        notes = [
            f"activations and FLOP of layers are those of the model code of {self.versions}, traced in bf16 with "
            f"{self.attention} attention at {short:,} and {long:,} tokens"
        ]
        if not self.known:
            notes.append("the family is known by its trace alone: no tensor parallelism, and attention that meets all")
        return tuple(notes)

    def require(self, settings: ActivationSettings) -> None:
        """Raises InputError, without a place, for settings under which the traced code does not run."""
        held = "eager" if not self.in_proportion else "flash"
        stated = {"precision": settings.precision, "kernels": settings.kernels, "method": settings.method}
        for name, known in (("precision", ("bf16", "fp16")), ("kernels", ("huggingface",)), ("method", ("full",))):
            if stated[name] not in known:
                raise InputError(
                    f"the model was traced with {name} {known[0]}, the job runs with {stated[name]}",
                    expected=f"{name} {' or '.join(known)}", hint="or the model by its config.json, without the trace",
                )
        if settings.attention != held and (self.attention != "eager" or not self.in_proportion):
            raise InputError(
                f"the model was traced with {self.attention} attention, the job runs {settings.attention}",
                expected=f"attention: {held}",
            )
        self._require_length(settings.sequence_length)

    def _require_length(self, sequence_length: int) -> None:
        short, long = self.lengths
        if not self.in_proportion and not short <= sequence_length <= long:
            raise InputError(
                f"the trace holds from {short:,} to {long:,} tokens, the job has {sequence_length:,}",
                expected=f"a trace at this length: planner trace MODEL --sequence-length {sequence_length}",
            )

    def activations(self, architecture: Architecture, settings: ActivationSettings) -> ModelActivations:
        """The traced activations, in bytes, on one of the settings' tensor-parallel ranks.

        Of a known family they are divided as its formulas divide; an unknown one is not divided. A loss other than
        the model code's own is that of the formula.
        """
        found = self._undivided(architecture, replace(settings, tensor_parallel=1))
        if not self.known:
            return found
        whole = activations(architecture, replace(settings, tensor_parallel=1))
        found = replace(found, layers=tuple(map(_selecting, found.layers, whole.layers)))
        if settings.tensor_parallel == 1:
            return found
        return _divided(found, whole, activations(architecture, settings))

    def _undivided(self, architecture: Architecture, settings: ActivationSettings) -> ModelActivations:
        around, length = self.around, settings.sequence_length
        forward, backward = _bytes(around.loss_forward), _bytes(around.loss_backward)
        if settings.loss != "standard":
            forward, backward = loss_amounts(architecture, settings)
        tables = Amount(ceil(around.tables_per_position * length)) + _bytes(around.tables)
        table = settings.element * architecture.vocabulary * architecture.hidden
        return ModelActivations(
            layers=tuple(_layer(layer, length) for layer in self.layers),
            outside=_bytes(around.final) + tables, tables=tables, embedded=_bytes(around.embedded),
            loss_forward=forward, loss_backward=backward,
            final_forward=_bytes(around.final_forward), final_backward=_bytes(around.final_backward),
            tied_gradient_extra=2 * table if architecture.tied else 0,
        )

    def flops(self, formula: ModelFlops, sequence_length: int) -> ModelFlops:
        """FLOP per token: products as traced, those between tokens in proportion to the sequence, or to the formula."""
        pairs = zip(self.layers, formula.layers, strict=True)
        return replace(
            formula, layers=tuple(self._layer_flops(layer, own, sequence_length) for layer, own in pairs),
            head_per_token=round(self.around.head_flops),
        )

    def _layer_flops(self, layer: TracedFigures, formula: LayerFlops, sequence_length: int) -> LayerFlops:
        if self.known:
            return LayerFlops(round(layer.matmul_flops), formula.attention_per_token)
        return LayerFlops(
            round(layer.matmul_flops), round(layer.attention_flops * sequence_length / self.lengths[1])
        )


def _bytes(per_token: float) -> Amount:
    """Whole bytes per token, rounded up; the hundredths are those of a few bytes for a whole run."""
    return Amount(0, ceil(round(per_token, 2)))


def _layer(layer: TracedFigures, length: int) -> LayerActivations:
    """A layer; a line that starts below zero is held at the sequence's own length."""
    stored = Amount(ceil(layer.stored_constant)) + _bytes(layer.stored)
    if layer.stored_constant < 0:
        stored = _bytes(layer.stored + layer.stored_constant / length)
    boundary = _bytes(layer.boundary)
    beside = stored - boundary
    return LayerActivations(
        stored=stored, boundary=boundary,
        forward_live=_bytes(layer.forward_live), backward_live=_bytes(layer.backward_live),
        checkpointed_forward_live=_bytes(layer.checkpointed_forward_live),
        checkpointed_backward_live=_bytes(layer.checkpointed_backward_live),
        selective=beside, selective_shared=beside,
    )


def _selecting(layer: LayerActivations, formula: LayerActivations) -> LayerActivations:
    """The layer with what the formula keeps under selective recomputation, which no trace runs."""
    return replace(layer, selective=formula.selective, selective_shared=formula.selective_shared)


_LAYER_AMOUNTS = (
    "stored", "boundary", "forward_live", "backward_live", "checkpointed_forward_live", "checkpointed_backward_live",
)  # fmt: skip
_MODEL_AMOUNTS = ("tables", "embedded", "loss_forward", "loss_backward", "final_forward", "final_backward")


def _divided(found: ModelActivations, whole: ModelActivations, part: ModelActivations) -> ModelActivations:
    """One rank's part: every amount in the proportion in which the formula's is divided."""
    layers = tuple(
        replace(layer, selective=own.selective, selective_shared=own.selective_shared,
                **_in_proportion(_LAYER_AMOUNTS, layer, undivided, own))
        for layer, undivided, own in zip(found.layers, whole.layers, part.layers, strict=True)
    )
    amounts = _in_proportion(_MODEL_AMOUNTS, found, whole, part)
    outside = _share(found.final, whole.final, part.final) + amounts["tables"]
    return ModelActivations(layers, outside, tied_gradient_extra=found.tied_gradient_extra, **amounts)


def _in_proportion(names: tuple[str, ...], found: object, whole: object, part: object) -> dict[str, Amount]:
    return {name: _share(getattr(found, name), getattr(whole, name), getattr(part, name)) for name in names}


def _share(found: Amount, whole: Amount, part: Amount) -> Amount:
    """The share of `found` that `part` is of `whole`, rounded up; all of it where the formula has nothing."""
    def of(size: int, undivided: int, own: int) -> int:
        return -(-size * own // undivided) if undivided > 0 else size

    return Amount(
        of(found.constant, whole.constant, part.constant), of(found.per_token, whole.per_token, part.per_token)
    )
