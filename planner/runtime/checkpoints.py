"""Checkpoints the first layers of a Hugging Face model in segments, and leaves the others as they are.

transformers asks each layer's `_gradient_checkpointing_func` to run it while `gradient_checkpointing` is set (5.24,
modeling_layers.py). That is the seam: the first layers of a segment only note how they were called, the last one runs
them all inside one checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from planner.errors import InputError
from planner.runtime.marks import CHECKPOINTED, mark

if TYPE_CHECKING:
    import torch


def checkpoint_segments(
    model: torch.nn.Module, count: int, interval: int, offload: bool = False, selective: bool = False
) -> None:
    """Checkpoints `count` segments of `interval` layers from the first layer on, and no other layer.

    `offload` keeps in host memory what backward needs: the inputs of the segments, and of the other layers everything
    but their weights. `selective` keeps results of attention and of every second matrix product too. Raises InputError
    where the model has fewer layers, or layers that cannot be checkpointed.
    """
    layers = checkpointable_layers(model) if count and interval else _layers(model)
    if count * interval > len(layers):
        raise InputError(
            f"the plan checkpoints {count} × {interval} layers, and the model has {len(layers)}",
            path="checkpoint_count",
        )
    for layer in layers[count * interval :]:
        layer.gradient_checkpointing = offload
        layer._gradient_checkpointing_func = kept_on_the_host
    for first in range(0, count * interval, max(1, interval)):
        _join(layers[first : first + interval], offload, selective)


def checkpointable_layers(model: torch.nn.Module) -> list[Any]:
    """The model's layers in order. Raises InputError where there are none."""
    found = _layers(model)
    if not found:
        raise InputError(
            f"{type(model).__name__} has no layers that transformers can checkpoint", path="checkpoint_count",
            expected="a model of transformers 5 whose layers are GradientCheckpointingLayer",
        )  # fmt: skip
    return found


def _layers(model: torch.nn.Module) -> list[Any]:
    """Every checkpointable layer that is not inside another one."""
    from transformers.modeling_layers import GradientCheckpointingLayer

    found: list[Any] = []
    names: list[str] = []
    for name, module in model.named_modules():
        inside = any(name.startswith(f"{outer}.") for outer in names)
        if isinstance(module, GradientCheckpointingLayer) and not inside:
            found.append(module)
            names.append(name)
    return found


def _join(layers: list[Any], offload: bool, selective: bool) -> None:
    """One segment."""
    segment = Segment(len(layers), offload, selective)
    for position, layer in enumerate(layers):
        layer.gradient_checkpointing = True
        layer._gradient_checkpointing_func = segment.runner(position)


class Segment:
    """Consecutive layers that one checkpoint recomputes.

    `calls` holds how the layers before the last one were called in the forward pass that is running.
    """

    def __init__(self, size: int, offload: bool, selective: bool) -> None:
        self.size, self.offload = size, offload
        self.choice = {"context_fn": selective_contexts} if selective else {}
        self.calls: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []
        self.input: Any = None

    def runner(self, position: int) -> Callable[..., Any]:
        """What transformers calls in place of the layer at `position`."""

        def run(call: Callable[..., Any], hidden: Any, *rest: Any) -> Any:
            return self.step(position, call, hidden, rest)

        return run

    def step(self, position: int, call: Callable[..., Any], hidden: Any, rest: tuple[Any, ...]) -> Any:
        """The layer's output, or its input unchanged when a later layer of the segment runs it."""
        if position == 0:
            self.calls, self.input = [], hidden
        if len(self.calls) != position or not _same(hidden, self.input):
            raise InputError(
                "the model does more between two layers than hand the hidden states on",
                path="checkpoint_interval", hint="checkpoint with interval 1",
            )  # fmt: skip
        self.calls.append((call, rest))
        self.input = hidden
        return hidden if position < self.size - 1 else self.run()

    def run(self) -> Any:
        """The whole segment inside one checkpoint."""
        from torch.utils.checkpoint import checkpoint

        calls, hidden = tuple(self.calls), self.input
        self.calls, self.input = [], None
        with saved_on_the_host() if self.offload else nullcontext():
            return checkpoint(chain, calls, hidden, use_reentrant=False, **self.choice)


def selective_contexts() -> Any:
    """Contexts of one checkpoint that keeps results of attention and of every second matrix product.

    Source: github:pytorch/torchtitan@b5bcd76:torchtitan/distributed/activation_checkpoint.py, selective by operation.
    """
    import torch
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    aten = torch.ops.aten
    names = ("flash_attention", "efficient_attention", "cudnn_attention", "flash_attention_for_cpu")
    kept = {getattr(aten, f"_scaled_dot_product_{name}").default for name in names}
    products = {False: 0, True: 0}

    def policy(context: Any, operator: Any, *_: Any, **__: Any) -> Any:
        if operator is aten.mm.default:
            products[context.is_recompute] += 1
            keep = products[context.is_recompute] % 2 == 1
        else:
            keep = operator in kept
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def kept_on_the_host(call: Callable[..., Any], *given: Any) -> Any:
    """Runs a layer that is not checkpointed; what it saves waits in host memory."""
    with saved_on_the_host():
        return call(*given)


def saved_on_the_host() -> Any:
    """A context in which tensors saved for backward, weights left out, are copied to the host, pinned for a GPU."""
    import torch

    def pack(tensor: torch.Tensor) -> Any:
        weight = tensor if tensor._base is None else tensor._base
        if isinstance(weight, torch.nn.Parameter) or not tensor.is_floating_point():
            return tensor
        kept = torch.empty(tensor.size(), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        kept.copy_(tensor, non_blocking=tensor.is_cuda)
        return tensor.device, kept

    def unpack(packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        device, kept = packed
        found: torch.Tensor = kept.to(device, non_blocking=True)
        return found

    return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors hold the same data in the same shape; a runtime's hooks hand views on."""
    return bool(one.shape == other.shape and one.data_ptr() == other.data_ptr())


def chain(calls: tuple[tuple[Callable[..., Any], tuple[Any, ...]], ...], hidden: Any) -> Any:
    """The layers one after the other, marked for profilers; only the last one may return more than hidden states."""
    with mark(CHECKPOINTED):
        for call, rest in calls[:-1]:
            hidden = call(hidden, *rest)
            if isinstance(hidden, tuple):
                raise InputError(
                    "a layer inside the segment returns more than hidden states", path="checkpoint_interval",
                    hint="checkpoint with interval 1",
                )  # fmt: skip
        call, rest = calls[-1]
        return call(hidden, *rest)
