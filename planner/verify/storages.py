"""Every tensor storage of a process with its life and its book, so that a peak can be split by book afterwards.

A storage gets its book from what holds it (parameters, DeepSpeed's attributes, the optimizer's state), from how it is
used (an operand of a collective, a gathered parameter, a gradient that arrives at a parameter), and else from the phase
it was made in. Books are settled at the end of a phase, when all of that is known.
"""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# A gloo thread lets go of its buffers some time after the collective is done.
RELEASE_SECONDS = 0.002
# The book of a storage that nothing names, by the phase it was made in.
UNNAMED: Mapping[str, str] = {
    "load": "parameters", "init": "gradients", "forward": "activations", "loss": "activations",
    "backward": "activations", "optimizer_step": "gradients",
}  # fmt: skip
# Stage 3 updates one sub-group after the other: what it makes for that is a buffer.
UNNAMED_IN_SUB_GROUPS: Mapping[str, str] = {**UNNAMED, "optimizer_step": "buffers"}


def unnamed(phase: str, sub_groups: bool) -> str:
    """The book of what nothing names."""
    return (UNNAMED_IN_SUB_GROUPS if sub_groups else UNNAMED)[phase]


@dataclass
class Storage:
    """One storage: its bytes, the phase and element type it was made with, and its book once something names it.

    `host`: it would lie in host memory if the ranks had GPUs. `added_to`: the storage that it was added to, if any.
    """

    size: int
    phase: str
    dtype: str
    book: str = ""
    host: bool = False
    added_to: Storage | None = None


@dataclass
class Life:
    """All storages by number, what is born and dies in order, and where the phase that runs began."""

    storages: list[Storage] = field(default_factory=list)
    events: list[tuple[int, bool]] = field(default_factory=list)
    alive: dict[int, tuple[int, Any]] = field(default_factory=dict)
    begun_with: tuple[int, ...] = ()
    phase: str = "load"
    sub_groups: bool = False
    gradient_dtype: str = ""

    def see(self, tensor: Any) -> None:
        """Counts the tensor's storage from its birth to its death, once."""
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if tensor.device.type == "meta" or key in self.alive or not size:
            return
        number = len(self.storages)
        self.storages.append(Storage(size, self.phase, dtype_name(tensor)))

        def dies(_: Any) -> None:
            del self.alive[key]
            self.events.append((number, False))

        self.alive[key] = (number, weakref.ref(storage, dies))
        self.events.append((number, True))

    def name(self, tensors: Iterable[Any], book: str) -> None:
        """Puts the storages of `tensors` into a book, those that have one left out."""
        for tensor in tensors:
            found = self.alive.get(tensor.untyped_storage()._cdata)
            if found and not self.storages[found[0]].book:
                self.storages[found[0]].book = book

    def settle(self, held: Iterable[tuple[str, bool, Iterable[Any]]]) -> None:
        """Puts storages into the first book of `held` (book, whether on the host, tensors), whatever it was before."""
        settled: set[int] = set()
        for book, host, tensors in held:
            for tensor in tensors:
                found = self.alive.get(tensor.untyped_storage()._cdata)
                if found and found[0] not in settled:
                    settled.add(found[0])
                    self.storages[found[0]].book, self.storages[found[0]].host = book, host

    def enter(self, phase: str) -> None:
        """Begins a phase."""
        self.phase, self.events = phase, []
        self.begun_with = tuple(number for number, _ in self.alive.values())

    def add(self, total: Any, part: Any) -> None:
        """Remembers that `part` was added to `total`, where it is a gradient made another type for that."""
        sums, parts = (self.alive.get(tensor.untyped_storage()._cdata) for tensor in (total, part))
        if sums and parts and sums[0] != parts[0] and self.storages[parts[0]].dtype != self.gradient_dtype:
            self.storages[parts[0]].added_to = self.storages[sums[0]]

    @property
    def live(self) -> int:
        """Bytes of everything that is alive, on host and device."""
        return sum(self.storages[number].size for number, _ in self.alive.values())

    def peaks(self) -> tuple[Counter[str], Counter[str]]:
        """Device bytes by book at the moment of the phase when most were alive, and the most of each book alone."""
        return self._highest(lambda storage: "" if storage.host else self._book(storage))

    def peak_made_in(self) -> Counter[str]:
        """Bytes at the phase's peak, on host and device together, by the phase that each storage was made in."""
        return self._highest(lambda storage: storage.phase)[0]

    def _highest(self, label: Callable[[Storage], str]) -> tuple[Counter[str], Counter[str]]:
        """Bytes by label at the phase's peak, and the most of each label alone; a storage without one is left out."""
        now: Counter[str] = Counter()
        for number in self.begun_with:
            now[label(self.storages[number])] += self.storages[number].size
        del now[""]
        best, most, total = Counter(now), Counter(now), sum(now.values())
        largest = total
        for number, born in self.events:
            name = label(self.storages[number])
            size = 0 if not name else self.storages[number].size if born else -self.storages[number].size
            now[name] += size
            total += size
            most[name] = max(most[name], now[name])
            if total > largest:
                largest, best = total, Counter(now)
        return +best, +most

    def _book(self, storage: Storage) -> str:
        """A storage's book; fp64 is the norm of gradients, a buffer, as is a cast that is added to gradients."""
        if storage.book:
            return storage.book
        if storage.dtype == "float64" or (storage.added_to and storage.added_to.book == "gradients"):
            return "buffers"
        return unnamed(storage.phase, self.sub_groups)


def watching(life: Life) -> Any:
    """A context in which every storage that an operator returns is counted in `life`."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
        """Sees the answers of operators, and the operands that tell what a storage is for."""

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = function(*args, **(kwargs or {}))
            for tensor in tensors_in(answer):
                life.see(tensor)
            _tell(life, function, args)
            if function.namespace == "c10d":
                _let_go(torch, answer)
            return answer

    return Watch()


def _tell(life: Life, function: Any, args: Any) -> None:
    """Names what an operator's operands tell.

    Collectives work on buffers, a reduce-scatter on gradients put side by side, the fused update on gradients and
    moments, a sum in place on its parts.
    """
    if function.namespace == "c10d":
        life.name(tensors_in(args), "gradients" if "reduce_scatter" in function.__name__ else "buffers")
    elif function.__name__.startswith("_fused_adam"):
        life.name(args[1], "buffers" if life.sub_groups else "gradients")
        life.name((tensor for tensors in args[2:5] for tensor in tensors), "optimizer_states")
    elif function.__name__ == "add_.Tensor" and hasattr(args[1], "untyped_storage"):
        life.add(args[0], args[1])
    else:
        life.name((tensor for tensor in tensors_in(args) if hasattr(tensor, "ds_tensor")), "buffers")


def _let_go(torch: Any, answer: Any) -> None:
    """Waits for a collective, and for gloo's thread to drop what it still holds of it."""
    for work in answer if isinstance(answer, (list, tuple)) else (answer,):
        if isinstance(work, torch.ScriptObject):
            torch._C._distributed_c10d.Work.unbox(work).wait()
            time.sleep(RELEASE_SECONDS)


def dtype_name(tensor: Any) -> str:
    """`bfloat16`, `float32`, …"""
    return str(tensor.dtype).removeprefix("torch.")


def tensors_in(value: Any) -> Iterator[Any]:
    """The tensors inside lists, tuples, sets and dictionaries, to any depth."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item)


def watch_gradients(life: Life, parameters: Iterable[Any]) -> None:
    """Names each gradient as it arrives at its parameter."""

    def arrives(gradient: Any) -> None:
        life.see(gradient)
        life.name([gradient], "gradients")
        life.gradient_dtype = dtype_name(gradient)

    for parameter in parameters:
        if parameter.requires_grad:
            parameter.register_hook(arrives)
