"""Runs a model forward and backward once on tokens without contents, and counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice, pairwise
from typing import Any

from planner.trace.flash import AttentionFlops
from planner.trace.libraries import library
from planner.trace.storages import Saved, Storages, tensors_in, watching

_ATTENTION_OPERATORS = ("attention",)
_GROUPED = (("aten", "_grouped_mm"), ("transformers", "grouped_mm_fallback"))
"""Products of tokens with the weights of the experts that they are routed to, which torch does not count."""


@dataclass(frozen=True)
class LayerRun:
    """What one layer in place took, in bytes.

    `entered`: alive when it starts. `forward`, `backward`: the most alive while it runs forward and backward.
    `boundary`: its output.
    """

    entered: int
    forward: int
    backward: int
    boundary: int


@dataclass(frozen=True)
class HeadRun:
    """What the final norm, the output projection and the loss took, in bytes.

    `entered`: alive when the output projection starts. `final_forward` and `final_backward`: the most alive from the
    layers to there and back; `loss_forward` and `loss_backward`: from there on and back to there.
    """

    entered: int
    final_forward: int
    loss_forward: int
    loss_backward: int
    final_backward: int


@dataclass(frozen=True)
class Run:
    """What one run took, in bytes and FLOP; `layers` by place.

    `tables`: made before the layers and kept for backward; `named`: made before them, and alive until they end.
    `forward_peaks`: up to the end of the layers, and in the loss. `backward_peaks`: in the loss, in the layers, and
    after them.
    """

    stored: int
    tables: int
    named: int
    forward_peaks: tuple[int, ...]
    backward_peaks: tuple[int, ...]
    matmul_flops: float
    attention_flops: float
    layers: tuple[LayerRun, ...]
    head: HeadRun


@dataclass
class _Windows:
    """Events at which layers start and end, and the bytes of what they hand on.

    `gradients`: events at which the gradient of every layer's output, last first, and of the first one's input is
    there. `first_input`: number of the storage that goes into the first layer. `head`: events at which the output
    projection starts, and at which its input's gradient is there.
    """

    storages: Storages
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    gradients: list[int] = field(default_factory=list)
    first_input: int = 0
    head: list[int] = field(default_factory=list)

    def enter(self, module: Any, arguments: Any, named: Any) -> None:
        if not self.starts:
            for tensor in self._watch((arguments, named), self.gradients):
                self.first_input = self.storages.number(tensor)
        self.starts.append(self.storages.now)

    def leave(self, module: Any, arguments: Any, output: Any) -> None:
        first = next(tensors_in(output, library("torch").Tensor))
        self.ends.append(self.storages.now)
        self.outputs.append(first.numel() * first.element_size())
        self._watch(output, self.gradients)

    def project(self, module: Any, arguments: Any) -> None:
        """The output projection starts."""
        if not self.head:
            self.head.append(self.storages.now)
            self._watch(arguments, self.head)

    def _watch(self, value: Any, marks: list[int]) -> list[Any]:
        """Notes the event at which the gradient of the first tensor that has one is there; that tensor."""
        tensors = (tensor for tensor in tensors_in(value, library("torch").Tensor) if tensor.requires_grad)
        watched = list(islice(tensors, 1))
        for tensor in watched:
            tensor.register_hook(lambda _: marks.append(self.storages.now))
        return watched

    def layers(self) -> tuple[LayerRun, ...]:
        """Every layer in place; where gradients do not come by once a layer, backward is that of all of them."""
        count, peak = len(self.starts), self.storages.peak
        marks = list(pairwise(self.gradients)) if len(self.gradients) == count + 1 else []
        ways = marks[::-1] or [(min(self.gradients), max(self.gradients))] * count
        return tuple(
            LayerRun(peak(start, start), peak(start, end), peak(*way), output)
            for start, end, way, output in zip(self.starts, self.ends, ways, self.outputs, strict=True)
        )

    def around(self, middle: int) -> HeadRun:
        """Norm, projection and loss where forward ends at `middle`; all of it is loss where no projection is named."""
        last, peak, first_gradient = self.ends[-1], self.storages.peak, min(self.gradients)
        start, back = self.head if len(self.head) == 2 else (last, first_gradient)
        return HeadRun(
            entered=peak(start, start), final_forward=peak(last, start), loss_forward=peak(start, middle),
            loss_backward=peak(middle, back), final_backward=peak(back, max(back, first_gradient)),
        )

    def peaks(self, start: int, end: int, marks: list[int]) -> tuple[int, ...]:
        """Most bytes alive from event `start` to event `end`, in the parts that `marks` cut it into."""
        cuts = [start, *marks, end]
        return tuple(self.storages.peak(a, b) for a, b in pairwise(cuts))


def measured(model: Any, layers: Any, tokens: int, batch: int = 1) -> Run:
    """One pass forward and backward over `batch` sequences of `tokens` tokens, with the loss. Needs fake tensors on."""
    torch = library("torch")
    counter = library("torch.utils.flop_counter").FlopCounterMode(display=False, custom_mapping=_grouped())
    known = _known(model)
    storages, saved = Storages(known), Saved(known)
    windows = _Windows(storages)
    ids = torch.zeros((batch, tokens), dtype=torch.long)
    AttentionFlops.total = 0
    with _hooked(model, layers, windows), watching(storages):
        with counter, torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        saved.release()
        middle, matmul, between = storages.now, *_flops(counter)
        loss.backward()
    before, after = windows.starts[0], windows.ends[-1]
    return Run(
        stored=saved.total,
        tables=storages.surviving(before, middle, windows.first_input),
        named=storages.surviving(before, after) - storages.surviving(before, middle),
        forward_peaks=windows.peaks(0, middle, windows.ends[-1:]),
        backward_peaks=windows.peaks(middle, storages.now, [min(windows.gradients), max(windows.gradients)]),
        matmul_flops=matmul, attention_flops=between, layers=windows.layers(), head=windows.around(middle),
    )


@contextmanager
def recomputed(layers: Any) -> Iterator[None]:
    """While it lasts, every layer keeps its input only and is made again in backward, as torch's checkpoints do."""
    checkpoint = library("torch.utils.checkpoint").checkpoint
    found = set(layers)
    for layer in found:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)
    try:
        yield
    finally:
        for layer in found:
            del layer.forward


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
    head = projection(model)
    handles += [head.register_forward_pre_hook(windows.project)] if head is not None else []
    strike = windows.storages.strike_gradient
    trained = (parameter for parameter in model.parameters() if parameter.requires_grad)
    handles += [parameter.register_post_accumulate_grad_hook(strike) for parameter in trained]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def projection(model: Any) -> Any:
    """The module that makes logits; None where the model code does not name one."""
    try:
        return model.get_output_embeddings()
    except (AttributeError, NotImplementedError):
        return None


def _grouped() -> dict[Any, Any]:
    """FLOP of grouped products, by operator, of those that are there."""
    def flops(tokens: Any, weights: Any, *_: Any, **__: Any) -> int:
        return 2 * int(tokens[0]) * int(tokens[1]) * int(weights[-1])

    namespaces = ((getattr(library("torch").ops, space), name) for space, name in _GROUPED)
    return {getattr(space, name): flops for space, name in namespaces if hasattr(space, name)}
