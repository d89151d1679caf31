"""Runs feed-forward blocks over parts of their tokens, one part after the other, and once more in backward."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

from planner.errors import InputError

if TYPE_CHECKING:
    import torch

MATRICES = ("gate_proj", "up_proj", "down_proj")


def tile_feed_forward(model: torch.nn.Module, tiles: int) -> None:
    """Replaces the forward pass of every dense block by DeepSpeed's TiledMLP; one tile is the block's own.

    Raises InputError for a model without blocks of gate_proj, up_proj and down_proj, and where DeepSpeed is missing.
    """
    blocks = [module for module in model.modules() if all(hasattr(module, name) for name in MATRICES)]
    for block in blocks:
        block.__dict__.pop("forward", None)
    if tiles == 1:
        return
    if not blocks:
        raise InputError(
            f"{type(model).__name__} has no feed-forward blocks that can be tiled", path="mlp_tiles",
            expected="a model of transformers whose blocks have " + ", ".join(MATRICES),
        )  # fmt: skip
    tiled_block = _tiled_block()
    for block in blocks:
        block.forward = MethodType(_forward(tiled_block, type(block).forward, tiles), block)


def _forward(tiled_block: Any, plain: Any, tiles: int) -> Any:
    """A forward pass in tiles, none of them empty: the last one tells DeepSpeed that the gradients are whole."""

    def forward(self: Any, states: torch.Tensor) -> torch.Tensor:
        rows = states.reshape(-1, states.shape[-1])
        each = -(-len(rows) // tiles)
        weights = [getattr(self, name).weight for name in MATRICES]
        done: torch.Tensor = tiled_block.apply(plain, self, rows, -(-len(rows) // each), weights)
        return done.view(states.shape)

    return forward


def _tiled_block() -> Any:
    """DeepSpeed's function. Raises InputError where it is not installed."""
    try:
        from deepspeed.runtime.sequence_parallel.ulysses_sp import TiledMLP
    except ImportError:
        raise InputError("tiles need deepspeed, which is not installed", path="mlp_tiles") from None
    return TiledMLP
