"""Counts bytes of tensor storages while model code runs: what is alive when, and what autograd saves."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from planner.trace.libraries import library


class Storages:
    """Life and death of every storage made while it watches, in order; gradients can be struck out afterwards.

    Storages in `known` (parameters) are left out.
    """

    def __init__(self, known: set[int]) -> None:
        self.known = known
        self.events: list[tuple[int, int]] = []
        self.gradients: set[int] = set()
        self._alive: dict[int, tuple[int, Any]] = {}
        self._made = 0

    def see(self, tensor: Any) -> None:
        """Counts a tensor's storage, unless it is known."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.known or key in self._alive or not size:
            return
        self._made += 1
        number = self._made

        def freed(_: Any) -> None:
            del self._alive[key]
            self.events.append((number, -size))

        self._alive[key] = (number, weakref.ref(storage, freed))
        self.events.append((number, size))

    def strike_gradient(self, parameter: Any) -> None:
        """Leaves a parameter's gradient out of every sum, and lets go of it."""
        key = parameter.grad.untyped_storage()._cdata
        if key in self._alive:
            self.gradients.add(self._alive[key][0])
        parameter.grad = None

    @property
    def now(self) -> int:
        """Number of events so far."""
        return len(self.events)

    def peak(self, start: int, end: int) -> int:
        """Most bytes alive from event `start` to event `end`, gradients of parameters left out."""
        alive = most = sum(self._bytes(event) for event in self.events[:start])
        for event in self.events[start:end]:
            alive += self._bytes(event)
            most = max(most, alive)
        return most

    def number(self, tensor: Any) -> int:
        """The number of a storage that is alive; 0 for one that is known."""
        found = self._alive.get(tensor.untyped_storage()._cdata)
        return found[0] if found else 0

    def surviving(self, before: int, until: int, but: int = 0) -> int:
        """Bytes of storages made before event `before` and alive at event `until`, that of number `but` left out."""
        made = {number: size for number, size in self.events[:before] if size > 0 and number != but}
        gone = {number for number, size in self.events[:until] if size < 0}
        return sum(size for number, size in made.items() if number not in gone)

    def _bytes(self, event: tuple[int, int]) -> int:
        return 0 if event[0] in self.gradients else event[1]


class Saved:
    """Storages that autograd saves for backward, each once; those in `known` (parameters) left out."""

    def __init__(self, known: set[int]) -> None:
        self.known = known
        self.total = 0
        self._held: dict[int, Any] = {}

    def pack(self, tensor: Any) -> Any:
        """Hook for what is saved."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self.known and storage._cdata not in self._held:
            self._held[storage._cdata] = storage
            self.total += storage.nbytes()
        return tensor

    def release(self) -> None:
        """Lets go of the storages."""
        self._held.clear()


def watching(storages: Storages) -> Any:
    """A mode under which `storages` sees every result of an operator."""
    return _mode()(storages)


@cache
def _mode() -> Any:
    base = library("torch.utils._python_dispatch").TorchDispatchMode
    tensor_type = library("torch").Tensor

    class Watching(base):  # type: ignore[misc, valid-type]
        """Passes results on to a Storages."""

        def __init__(self, storages: Storages) -> None:
            super().__init__()
            self.storages = storages

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = function(*args, **(kwargs or {}))
            for tensor in tensors_in(answer, tensor_type):
                self.storages.see(tensor)
            return answer

    return Watching


def tensors_in(value: Any, tensor_type: Any) -> Iterator[Any]:
    """The tensors inside lists, tuples and mappings, to any depth, in order."""
    if isinstance(value, tensor_type):
        yield value
    elif isinstance(value, Mapping):
        yield from tensors_in(list(value.values()), tensor_type)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item, tensor_type)
