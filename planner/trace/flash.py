"""Attention as a flash kernel keeps it, for transformers' models: inputs, output and one fp32 number per row.

No mask is made, whatever the window: a flash kernel takes the window as an argument (Dao 2023, arXiv:2307.08691
section 3.1: backward reads Q, K, V, O and the row-wise log-sum-exp).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from planner.trace.libraries import library

NAME = "planner_kernel"
"""Without the word flash, which transformers takes for a package to load."""


class AttentionFlops:
    """FLOP between tokens since it was last cleared; what `register_flash` registers adds to it."""

    total = 0.0


@cache
def register_flash() -> None:
    """Makes `NAME` an attention implementation that transformers' models can be built with."""
    function = _function()

    def attend(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, **settings: Any) -> Any:
        window = settings.get("sliding_window") or query.shape[2]
        AttentionFlops.total += _flops(query, value, min(window, query.shape[2]))
        return function.apply(query, key, value), None

    library("transformers").AttentionInterface.register(NAME, attend)
    library("transformers").AttentionMaskInterface.register(NAME, lambda *arguments, **settings: None)


@contextmanager
def flash_kernel() -> Iterator[None]:
    """While it lasts, code that calls torch's scaled_dot_product_attention itself gets the flash kernel as well."""
    functional, function = library("torch.nn.functional"), _function()
    original = functional.scaled_dot_product_attention

    def attend(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        AttentionFlops.total += _flops(query, value, query.shape[2])
        return function.apply(query, key, value).transpose(1, 2)

    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = original


def _flops(query: Any, value: Any, window: int) -> float:
    """2 FLOP for each element of scores and weighted sum; a token meets W - W²/2S others on average."""
    batch, heads, length, width = query.shape
    met = window - window * window / (2 * length)
    return float(2 * batch * heads * length * met * (width + value.shape[-1]))


@cache
def _function() -> Any:
    torch = library("torch")

    class Flash(torch.autograd.Function):  # type: ignore[name-defined, misc]
        """Shapes and stored tensors of a flash kernel; the contents are nobody's."""

        @staticmethod
        def forward(context: Any, query: Any, key: Any, value: Any) -> Any:
            batch, heads, length, _ = query.shape
            output = query.new_empty((batch, length, heads, value.shape[-1]))
            rows = torch.empty((batch, heads, length), dtype=torch.float32, device=query.device)
            context.save_for_backward(query, key, value, output, rows)
            return output

        @staticmethod
        def backward(context: Any, *gradients: Any) -> Any:
            query, key, value, _, _ = context.saved_tensors
            return torch.empty_like(query), torch.empty_like(key), torch.empty_like(value)

    return Flash
