"""Runs a model forward and backward once on tokens without contents, and counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any

from planner.trace.flash import AttentionFlops
from planner.trace.libraries import library
from planner.trace.storages import Saved, Storages, tensors_in, watching

_ATTENTION_OPERATORS = ("attention",)
_GROUPED = (("aten", "_grouped_mm"), ("transformers", "grouped_mm_fallback"))
"""Products of tokens with the weights of the experts that they are routed to, which torch does not count."""


@dataclass(frozen=True)
class Run:
    """What one run took, in bytes and FLOP; `working` and `boundaries` by layer in place.

    `forward_peaks`: up to the end of the layers, and in the loss. `backward_peaks`: in the loss, in the layers, and
    after them.
    """

    stored: int
    forward_peaks: tuple[int, ...]
    backward_peaks: tuple[int, ...]
    matmul_flops: float
    attention_flops: float
    working: tuple[int, ...]
    boundaries: tuple[int, ...]


@dataclass
class _Windows:
    """Events at which layers start and end, and the bytes of what they hand on.

    `gradients`: events at which the gradient of the first layer's input, and of every layer's output, is there.
    """

    storages: Storages
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)

    def enter(self, module: Any, arguments: Any, named: Any) -> None:
        if not self.starts:
            self._watch((arguments, named))
        self.starts.append(self.storages.now)

    def leave(self, module: Any, arguments: Any, output: Any) -> None:
        first = next(tensors_in(output, library("torch").Tensor))
        self.ends.append(self.storages.now)
        self.outputs.append(first.numel() * first.element_size())
        self._watch(output)

    def _watch(self, value: Any) -> None:
        """Notes the event at which the gradient of the first tensor that has one is there."""
        tensors = (tensor for tensor in tensors_in(value, library("torch").Tensor) if tensor.requires_grad)
        for tensor in islice(tensors, 1):
            tensor.register_hook(lambda _: self.gradients.append(self.storages.now))

    def working(self) -> tuple[int, ...]:
        """Most bytes alive in each layer, less those alive when it starts."""
        peak = self.storages.peak
        return tuple(peak(a, b) - peak(a, a) for a, b in zip(self.starts, self.ends, strict=True))

    def peaks(self, start: int, end: int, marks: list[int]) -> tuple[int, ...]:
        """Most bytes alive from event `start` to event `end`, in the parts that `marks` cut it into."""
        cuts = [start, *marks, end]
        return tuple(self.storages.peak(a, b) for a, b in pairwise(cuts))


def measured(model: Any, layers: Any, tokens: int) -> Run:
    """One pass forward and backward over one sequence of `tokens` tokens, with the loss. Needs fake tensors on."""
    torch = library("torch")
    counter = library("torch.utils.flop_counter").FlopCounterMode(display=False, custom_mapping=_grouped())
    known = _known(model)
    storages, saved = Storages(known), Saved(known)
    windows = _Windows(storages)
    ids = torch.zeros((1, tokens), dtype=torch.long)
    AttentionFlops.total = 0
    with _hooked(model, layers, windows), watching(storages):
        with counter, torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        saved.release()
        middle, matmul, between = storages.now, *_flops(counter)
        loss.backward()
    return Run(
        stored=saved.total, forward_peaks=windows.peaks(0, middle, windows.ends[-1:]),
        backward_peaks=windows.peaks(middle, storages.now, [min(windows.gradients), max(windows.gradients)]),
        matmul_flops=matmul, attention_flops=between, working=windows.working(),
        boundaries=tuple(windows.outputs),
    )


def _known(model: Any) -> set[int]:
    """Storages of parameters and buffers."""
    return {tensor.untyped_storage()._cdata for tensors in (model.parameters(), model.buffers()) for tensor in tensors}


def _flops(counter: Any) -> tuple[float, float]:
    """FLOP of matrix products with weights, and between tokens, whichever kernel does the latter."""
    counts = {str(operator): count for operator, count in counter.get_flop_counts().get("Global", {}).items()}
    kernels = sum(count for name, count in counts.items() if any(part in name for part in _ATTENTION_OPERATORS))
    return float(sum(counts.values()) - kernels), float(kernels + AttentionFlops.total)


@contextmanager
def _hooked(model: Any, layers: Any, windows: _Windows) -> Iterator[None]:
    """Hooks on layers and on gradients while a run lasts."""
    handles = [layer.register_forward_pre_hook(windows.enter, with_kwargs=True) for layer in set(layers)]
    handles += [layer.register_forward_hook(windows.leave) for layer in set(layers)]
    strike = windows.storages.strike_gradient
    handles += [parameter.register_post_accumulate_grad_hook(strike) for parameter in model.parameters()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _grouped() -> dict[Any, Any]:
    """FLOP of grouped products, by operator, of those that are there."""
    def flops(tokens: Any, weights: Any, *_: Any, **__: Any) -> int:
        return 2 * int(tokens[0]) * int(tokens[1]) * int(weights[-1])

    namespaces = ((getattr(library("torch").ops, space), name) for space, name in _GROUPED)
    return {getattr(space, name): flops for space, name in namespaces if hasattr(space, name)}
