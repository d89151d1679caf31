"""Parameter tensors of the smallest parts: linear maps and norms."""

from __future__ import annotations

from planner.architecture.facts import Facts
from planner.architecture.shape import Tensor


def linear(name: str, outputs: int, inputs: int, role: str, bias: bool = False, rows_in: bool = False) -> list[Tensor]:
    """Weight `[outputs, inputs]` (`[inputs, outputs]` with `rows_in`) and, with `bias`, `[outputs]`."""
    shape = (inputs, outputs) if rows_in else (outputs, inputs)
    tensors = [Tensor(f"{name}.weight", shape, role)]
    return [*tensors, Tensor(f"{name}.bias", (outputs,), role)] if bias else tensors


def norm(facts: Facts, name: str, width: int) -> list[Tensor]:
    """Tensors of one norm of the model's kind: weight, bias for a LayerNorm with one, nothing when not affine."""
    if not facts.flag("norm_affine", True):
        return []
    weight = Tensor(f"{name}.weight", (width,), "norm")
    return [weight, Tensor(f"{name}.bias", (width,), "norm")] if has_norm_bias(facts) else [weight]


def has_norm_bias(facts: Facts) -> bool:
    """Whether the model's norms have a bias: by default native LayerNorms do, others do not."""
    return facts.flag("norm_bias", facts.word("norm", "rms") == "layer_norm")
