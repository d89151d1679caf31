"""What a pass computes that makes modules of a layer again: the same products and passes as in forward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from planner.architecture.activation_feed_forward import routed_rows
from planner.architecture.modules import norms_apart
from planner.architecture.shape import LayerKind, Tensor
from planner.speed.operations import (
    Division,
    LayerOperations,
    MemoryPass,
    activation_pass,
    attention_passes,
    layer_products,
    norm_pass,
)


def module_operations(kind: LayerKind, hidden: int, division: Division, modules: tuple[str, ...]) -> LayerOperations:
    """The operations of some modules of a layer; see `planner.architecture.modules` for their names."""
    again = {tensor.name for tensor in kind.tensors if any(_multiplied(name, kind, tensor) for name in modules)}
    products = (product for product in layer_products(kind, hidden, division) if product.name in again)
    passes = (item for name in modules for item in PASSES[name](kind, hidden, division))
    return LayerOperations(tuple(products), (), tuple(item for item in passes if item.elements))


def _multiplied(module: str, kind: LayerKind, tensor: Tensor) -> bool:
    """Whether a module multiplies with a matrix."""
    experts = kind.feed_forward is not None and kind.feed_forward.experts > 0
    if module == "mla_up_proj":
        latent = kind.attention is not None and kind.attention.kind == "mla"
        queries = latent and not kind.attention.query_latent and "q_proj" in tensor.name  # type: ignore[union-attr]
        return latent and tensor.role == "attention" and ("_b_" in tensor.name or queries)
    return tensor.role == "mlp" and (module == "shared_experts" if experts else module == "mlp")


def _norms(kind: LayerKind, hidden: int, division: Division) -> Iterator[MemoryPass]:
    yield _norm(kind, hidden, division, sum(norms_apart(kind)))


def _norm(kind: LayerKind, hidden: int, division: Division, count: int) -> MemoryPass:
    stream = hidden / (division.tensor_parallel if division.sequence_parallel else 1)
    return MemoryPass(norm_pass(kind.norm), count * stream, calls=count)


def _expert_activations(kind: LayerKind, hidden: int, division: Division) -> Iterator[MemoryPass]:
    block = kind.feed_forward
    if block is not None and block.experts:
        yield activation_pass(block, routed_rows(block) * block.width / division.tensor_parallel)


def _latent_projections(kind: LayerKind, hidden: int, division: Division) -> Iterator[MemoryPass]:
    if kind.attention is not None and kind.attention.kind == "mla":
        yield from attention_passes(kind.attention, division.tensor_parallel)


def _shared_experts(kind: LayerKind, hidden: int, division: Division) -> Iterator[MemoryPass]:
    block = kind.feed_forward
    if block is not None and block.shared_width:
        yield activation_pass(block, block.shared_width / division.tensor_parallel)


def _dense_block(kind: LayerKind, hidden: int, division: Division) -> Iterator[MemoryPass]:
    block = kind.feed_forward
    if block is not None and not block.experts:
        yield _norm(kind, hidden, division, 1)
        yield activation_pass(block, block.width / division.tensor_parallel)


PASSES: Mapping[str, Callable[[LayerKind, int, Division], Iterator[MemoryPass]]] = {
    "layernorm": _norms,
    "moe_act": _expert_activations,
    "mla_up_proj": _latent_projections,
    "shared_experts": _shared_experts,
    "mlp": _dense_block,
}
