"""Bytes and kernels of memory-bound passes, from `catalogs/efficiency/kernels.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from planner.speed.catalog import efficiency
from planner.speed.operations import LayerOperations

# The kernels of a job by how they write the passes that a kernel library replaces, and all others.
VARIANTS: Mapping[str, tuple[str, str]] = {
    "huggingface": ("eager", "eager"),
    "liger": ("fused", "eager"),
    "megatron": ("fused", "fused"),
    "compiled": ("compiled", "compiled"),
}
REPLACED = ("norm_rms", "norm_written_out", "norm_layer_norm", "rotary", "gated", "activation_written_out")


@dataclass(frozen=True)
class Traffic:
    """Device memory traffic of a layer's pass: bytes for each token, in order and in another order, and for all.

    `kernels` that move them.
    """

    per_token: float
    gathered_per_token: float
    constant: float
    kernels: float


def pass_cost(name: str, kernels: str, direction: str) -> tuple[float, float]:
    """Bytes per element and kernels of a pass of the catalog."""
    return _pass_costs()[name, kernels, direction]


@lru_cache(maxsize=1)
def _pass_costs() -> Mapping[tuple[str, str, str], tuple[float, float]]:
    """Bytes and kernels by pass, kernels of the job and direction."""
    return {
        (name, kernels, direction): tuple(entry[variants[0 if name in REPLACED else 1]][direction])
        for name, entry in efficiency("kernels")["passes"].items()
        for kernels, variants in VARIANTS.items()
        for direction in ("forward", "backward")
    }


@lru_cache(maxsize=64)
def loss_cost(loss: str, direction: str) -> tuple[float, float]:
    """Bytes per token and vocabulary entry, and kernels, of a loss."""
    size, count = efficiency("kernels")["losses"][loss][direction]
    return float(size), float(count)


def layer_traffic(
    work: LayerOperations,
    direction: str,
    kernels: str,
    narrow: bool = False,
    weight_casts: bool = False,
    accumulated_bytes: float = 0.0,
    dequantized: bool = False,
    row_scaled: bool = False,
) -> Traffic:
    """Traffic of one pass of a layer; see `Setting` in `planner.speed.seconds` for the arguments."""
    costs = [(item, *pass_cost(item.name, kernels, direction)) for item in work.passes]
    weights, casts = _weight_traffic(work, direction, kernels, weight_casts, accumulated_bytes)
    opened, openings = _dequantized_traffic(work, direction, kernels) if dequantized else (0.0, 0.0)
    none = (0.0, 0.0, 0.0)
    copied, copied_weights, copies = _narrow_traffic(work, direction, kernels, row_scaled) if narrow else none
    return Traffic(
        per_token=sum(size * item.elements for item, size, _ in costs if not item.gathers) + copied,
        gathered_per_token=sum(size * item.elements for item, size, _ in costs if item.gathers),
        constant=weights + opened + copied_weights,
        kernels=sum(item.calls * count for item, _, count in costs) + casts + openings + copies,
    )


def _weight_traffic(
    work: LayerOperations, direction: str, kernels: str, weight_casts: bool, accumulated_bytes: float
) -> tuple[float, float]:
    """Bytes and kernels of autocast's copies of the weights and of adding gradients up."""
    size, count = pass_cost("weight_cast", kernels, direction) if weight_casts else (0.0, 0.0)
    total = size * sum(item.weight for item in work.products)
    if direction == "backward":
        total += accumulated_bytes * sum(item.weight for item in work.products if item.trained)
    return total, count * len(work.products)


def _dequantized_traffic(work: LayerOperations, direction: str, kernels: str) -> tuple[float, float]:
    """Bytes and kernels of 16-bit copies of the frozen weights that are held in 4 bits."""
    size, count = pass_cost("dequantize", kernels, direction)
    frozen = [item for item in work.products if item.narrow and not item.trained]
    return size * sum(item.weight for item in frozen), count * len(frozen)


def _narrow_traffic(
    work: LayerOperations, direction: str, kernels: str, row_scaled: bool
) -> tuple[float, float, float]:
    """Bytes per token, bytes of weights, and kernels of making narrow copies; in backward of the outputs' gradients.

    Products that read the same input share its copy, but where the model code runs as it is written.
    """
    kind = "row" if row_scaled else "narrow"
    size, count = pass_cost(f"{kind}_input", kernels, direction)
    weight_size, weight_count = pass_cost(f"{kind}_weight", kernels, direction)
    items = [item for item in work.products if item.narrow]
    copied = [
        item.share * (item.columns if direction == "backward" else item.inner)
        for item in items
        if direction == "backward" or item.reads_input_first or kernels == "huggingface"
    ]
    weights = sum(item.weight for item in items)
    return size * sum(copied), weight_size * weights, count * len(copied) + weight_count * len(items)
