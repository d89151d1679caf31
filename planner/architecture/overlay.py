"""A model from the overlay that `planner trace` wrote: its architecture, and the traced figures of its layers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from planner.architecture.families import model_types
from planner.architecture.importer import architecture_from_config
from planner.architecture.overlay_file import OverlayFile, OverlayLayer, read_overlay
from planner.architecture.shape import Architecture, LayerGroup
from planner.architecture.traced import TracedAround, TracedFigures, TracedModel
from planner.architecture.traced_kinds import layer_kind, outside_tensors
from planner.errors import InputError
from planner.files import printable
from planner.reading import Document


def traced_model(path: str | os.PathLike[str]) -> tuple[Architecture, TracedModel]:
    """The model in an overlay file.

    Where the importer knows the family, the architecture is what it makes of the configuration; the traced parameters
    must be the same, layer by layer. Where it does not, the architecture is made of the traced tensors. Raises
    InputError.
    """
    overlay, document = read_overlay(path)
    known = overlay.family in model_types()
    architecture = _imported(overlay, document) if known else _from_tensors(overlay)
    return architecture, _figures(overlay, architecture, known)


# ── a family that the importer knows ─────────────────────────────────────────────────────────────────────────────────


def _imported(overlay: OverlayFile, document: Document) -> Architecture:
    """The importer's architecture. Raises InputError where it does not count what was traced."""
    try:
        architecture = architecture_from_config(overlay.config, name=_name(overlay.model), file=document.file)
    except InputError as error:
        place = ("config", *error.path.split(".")) if error.path else ("config",)
        raise document.error(place, error.message, error.expected, error.hint) from None
    _require_same_layers(overlay, architecture, document)
    if architecture.parameters != overlay.parameters:
        raise document.error(
            ("parameters",), f"{overlay.parameters:,} parameters were traced",
            f"{architecture.parameters:,}, as config describes the model", "trace the model again",
        )
    return architecture


def _require_same_layers(overlay: OverlayFile, architecture: Architecture, document: Document) -> None:
    own = [group.kind.parameters for group in _text(architecture) for _ in range(group.count)]
    places = sum(len(layer.places) for layer in overlay.layers)
    if places != len(own):
        raise document.error(
            ("layers",), f"{places} layers were traced", f"{len(own)}, as config describes the model",
            "trace the model again",
        )
    for index, layer in enumerate(overlay.layers):
        for place in layer.places:
            if own[place] != layer.parameters:
                raise document.error(
                    ("layers", index, "parameters"), f"layer {place} was traced with {layer.parameters:,} parameters",
                    f"{own[place]:,}, as config describes the model", "trace the model again",
                )


def _text(architecture: Architecture) -> list[LayerGroup]:
    return [group for group in architecture.layers if group.tower != "vision"]


def _name(model: str) -> str:
    """The name of what was traced: a catalog name, or the folder of a configuration."""
    path = Path(model)
    return model if path.suffix not in (".json", ".yaml", ".yml") else printable(path.parent.name or path.stem)


# ── a family that it does not know ───────────────────────────────────────────────────────────────────────────────────


def _from_tensors(overlay: OverlayFile) -> Architecture:
    kinds = {place: layer for layer in overlay.layers for place in layer.places}
    made = {layer.kind: layer_kind(layer, overlay.hidden) for layer in overlay.layers}
    runs = groupby(kinds[place].kind for place in sorted(kinds))
    return Architecture(
        name=_name(overlay.model), family=overlay.family, hidden=overlay.hidden, vocabulary=overlay.vocabulary,
        layers=tuple(LayerGroup(made[kind], len(list(run))) for kind, run in runs),
        outside=outside_tensors(overlay.outside.tensors, overlay.vocabulary),
        tied=overlay.tied, maximum_positions=overlay.positions,
    )


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _figures(overlay: OverlayFile, architecture: Architecture, known: bool) -> TracedModel:
    outside = overlay.outside
    return TracedModel(
        layers=tuple(_aligned(overlay, architecture)),
        around=TracedAround(
            tables_per_position=outside.table_bytes_per_position, tables=outside.table_bytes_per_token,
            embedded=outside.named_bytes_per_token, final=outside.final_bytes_per_token,
            final_forward=outside.final_forward_bytes_per_token,
            final_backward=outside.final_backward_bytes_per_token,
            loss_forward=outside.loss_forward_bytes_per_token, loss_backward=outside.loss_backward_bytes_per_token,
            head_flops=outside.matmul_flops_per_token,
        ),
        known=known, in_proportion=overlay.in_proportion, attention=overlay.attention,
        lengths=overlay.sequence_lengths,
        versions=", ".join(f"{name} {version}" for name, version in overlay.versions.items()),
    )


def _aligned(overlay: OverlayFile, architecture: Architecture) -> Iterator[TracedFigures]:
    """Figures of each group: of the traced kinds among all layers of its kind those of the one that stores most."""
    traced = {place: layer for layer in overlay.layers for place in layer.places}
    places: dict[int, list[OverlayLayer]] = {}
    groups, start = _text(architecture), 0
    first = [next(i for i, other in enumerate(groups) if other.kind == group.kind) for group in groups]
    for index, group in zip(first, groups, strict=True):
        places.setdefault(index, []).extend(traced[place] for place in range(start, start + group.count))
        start += group.count
    tokens = overlay.sequence_lengths[1]

    def stored(layer: OverlayLayer) -> float:
        return layer.stored_bytes_constant + tokens * layer.stored_bytes_per_token

    for index in first:
        yield _layer(max(places[index], key=stored))


def _layer(layer: OverlayLayer) -> TracedFigures:
    return TracedFigures(
        stored=layer.stored_bytes_per_token,
        stored_constant=layer.stored_bytes_constant,
        boundary=layer.boundary_bytes_per_token,
        forward_live=layer.forward_surplus_bytes_per_token,
        backward_live=layer.backward_surplus_bytes_per_token,
        checkpointed_forward_live=layer.checkpointed_forward_bytes_per_token,
        checkpointed_backward_live=layer.recomputed_bytes_per_token,
        matmul_flops=layer.matmul_flops_per_token,
        attention_flops=layer.attention_flops_per_token,
    )
