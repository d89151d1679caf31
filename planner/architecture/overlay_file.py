"""The file `overlay.yaml` that `planner trace` writes: its shape, and its figures in bytes, FLOP and counts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, Literal

from pydantic import Field

from planner.document_builder import Path
from planner.fields import Name, Record, counted, numbered
from planner.reading import Document, read_document, validated

Figure = Annotated[float, numbered(1e18, positive=False)]
Size = Annotated[int, counted(10**12)]
ZeroOrMore = Annotated[int, counted(10**18, least=0)]


class OverlayTensor(Record):
    """One parameter tensor."""

    name: Name
    shape: tuple[Size, ...]


class OverlayLayer(Record):
    """One kind of layer and the places of its layers, counted from 0; see `planner.trace.result.TracedLayer`."""

    kind: Name
    first: ZeroOrMore
    count: Size
    places: tuple[ZeroOrMore, ...] = Field(min_length=1)
    parameters: ZeroOrMore
    stored_bytes_per_token: Figure
    stored_bytes_constant: float
    boundary_bytes_per_token: Figure
    forward_working_bytes_per_token: Figure
    forward_surplus_bytes_per_token: Figure
    backward_surplus_bytes_per_token: Figure
    checkpointed_forward_bytes_per_token: Figure
    recomputed_bytes_per_token: Figure
    matmul_flops_per_token: Figure
    attention_flops_per_token: Figure
    tensors: tuple[OverlayTensor, ...]


class OverlayOutside(Record):
    """What stands outside the layers; see `planner.trace.result.TracedOutside`."""

    parameters: ZeroOrMore
    stored_bytes_per_token: Figure
    stored_bytes_constant: float
    table_bytes_per_position: Figure
    table_bytes_per_token: Figure
    named_bytes_per_token: Figure
    final_bytes_per_token: Figure
    final_forward_bytes_per_token: Figure
    final_backward_bytes_per_token: Figure
    loss_forward_bytes_per_token: Figure
    loss_backward_bytes_per_token: Figure
    matmul_flops_per_token: Figure
    tensors: tuple[OverlayTensor, ...] = Field(min_length=1)


class OverlayFile(Record):
    """A traced model. `overlay` is the version of the format; `config` is the model's own configuration."""

    overlay: Literal[1]
    model: Name
    family: Name
    config: Mapping[str, Any]
    hidden: Size
    vocabulary: Size
    positions: ZeroOrMore
    tied: bool
    in_proportion: bool
    parameters: Size
    layers: tuple[OverlayLayer, ...] = Field(min_length=1)
    outside: OverlayOutside
    forward_peak_bytes: ZeroOrMore
    backward_peak_bytes: ZeroOrMore
    sequence_lengths: tuple[Size, Size]
    attention: Literal["flash", "sdpa", "eager"]
    versions: Mapping[str, str]
    notes: tuple[str, ...] = ()


def read_overlay(path: str | os.PathLike[str]) -> tuple[OverlayFile, Document]:
    """The traced model in a file, with its document.

    Raises InputError for whatever is wrong with the file, and where counts in it contradict each other.
    """
    document = read_document(path)
    found = validated(OverlayFile, document)
    _require_every_place(found, document)
    _require_own_counts(found, document)
    return found, document


def _require_every_place(found: OverlayFile, document: Document) -> None:
    """Every layer from the first to the last stands in one kind."""
    places = [place for layer in found.layers for place in layer.places]
    if sorted(places) != list(range(len(places))):
        raise document.error(
            ("layers",), f"the {len(places)} places are not those of {len(places)} layers", "each place from 0 on once"
        )


def _require_own_counts(found: OverlayFile, document: Document) -> None:
    """Parameters are those of the tensors, kind by kind and over all."""
    parts: list[tuple[Path, OverlayLayer | OverlayOutside]] = [(("outside",), found.outside)]
    parts += [(("layers", index), layer) for index, layer in enumerate(found.layers)]
    for path, part in parts:
        own = elements(part.tensors)
        if own != part.parameters:
            raise document.error((*path, "parameters"), f"the tensors have {own:,} parameters", f"{own}")
    whole = found.outside.parameters + sum(layer.parameters * len(layer.places) for layer in found.layers)
    if whole != found.parameters:
        raise document.error(("parameters",), f"layers and outside have {whole:,} parameters", f"{whole}")


def elements(tensors: tuple[OverlayTensor, ...]) -> int:
    """Parameters of tensors together."""
    return sum(prod(tensor.shape) for tensor in tensors)
