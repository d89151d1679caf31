"""Count the bytes of tensor storages: all that live, their peak, and what DeepSpeed holds them for."""

from __future__ import annotations

import time
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# Category -> attributes of DeepSpeed's optimizer wrappers (DeepSpeed 0.19.8: zero/stage_1_and_2.py, zero/stage3.py,
# bf16_optimizer.py, fp16/fused_optimizer.py). A storage belongs to the first category that names it.
ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "master": (
        "single_partition_of_fp32_groups",
        "fp32_partitioned_groups_flat",
        "fp32_groups_flat_partition",
        "fp32_groups_flat",
    ),
    "gradients": (
        "averaged_gradients",
        "all_grad_tensors",
        "grads_in_partition",
        "grad_partitions_flat_buffer",
        "accumulated_grads_in_cpu",
        "fp32_groups_gradients_flat",
        "fp32_groups_gradient_flat_partition",
    ),
    "buffers": (
        "ipg_buckets",
        "param_buffer_of_bit16_for_cpu_offload_groups",
        "temp_grad_buffer_for_cpu_offload",
        "temp_grad_buffer_for_gpu_offload",
    ),
}
# What `offload_optimizer` moves to the host; the same attributes stay on the device without it.
HOST_BUFFERS = ("param_buffer_of_bit16_for_cpu_offload_groups", "temp_grad_buffer_for_cpu_offload")
HOST_GRADIENTS = ("accumulated_grads_in_cpu", "grad_partitions_flat_buffer")


RELEASE_SECONDS = 0.002


class StorageTracker(TorchDispatchMode):
    """Every storage an operator returned while the mode was on, counted once and until it is freed.

    `live` and `peak` are bytes. `phase` labels new storages with the moment they were made in; `peak_made_in`
    splits the peak by these labels, so that what a forward pass left behind can be told from what lay there before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = 0
        self.peak = 0
        self.phase = "model"
        self.live_made_in: Counter[str] = Counter()
        self.peak_made_in: Counter[str] = Counter()
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = function(*args, **(kwargs or {}))
        if function.namespace == "c10d":
            _let_go(answer)
        for tensor in tensors_in(answer):
            self._count(tensor)
        return answer

    def enter(self, phase: str) -> None:
        """Start a phase: the peak restarts at what lives now."""
        self.phase = phase
        self.peak = self.live
        self.peak_made_in = Counter(self.live_made_in)

    def _count(self, tensor: torch.Tensor) -> None:
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key, size, phase = storage._cdata, storage.nbytes(), self.phase
        if key in self._known or size == 0:
            return

        def freed(_: Any) -> None:
            del self._known[key]
            self.live -= size
            self.live_made_in[phase] -= size

        self._known[key] = weakref.ref(storage, freed)
        self.live += size
        self.live_made_in[phase] += size
        if self.live > self.peak:
            self.peak, self.peak_made_in = self.live, Counter(self.live_made_in)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """The tensors inside lists, tuples, sets, dictionaries and bucket objects, to any depth."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item)
    elif type(value).__name__.startswith("IPGBucket"):
        yield from tensors_in(vars(value))


def bytes_of(tensors: Iterable[torch.Tensor], seen: set[int]) -> int:
    """Bytes of the storages behind `tensors` that are not in `seen`; adds them to it."""
    total = 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if tensor.device.type != "meta" and storage._cdata not in seen:
            seen.add(storage._cdata)
            total += storage.nbytes()
    return total


def categories(engine: Any) -> dict[str, int]:
    """Bytes by category: parameters, master, moments, gradients, master_gradients, buffers; each storage once.

    With optimizer offload, what lies on the host is under `host_…` instead; with parameter offload the shards are.
    """
    seen: set[int] = set()
    return {name: bytes_of(tensors, seen) for name, tensors in _by_category(engine)}


def _by_category(engine: Any) -> Iterator[tuple[str, list[torch.Tensor]]]:
    wrapper = engine.optimizer
    optimizer_host = "host_" if engine.zero_use_cpu_optimizer() else ""
    stage_3_parameters = engine.zero_offload_param() is not None and engine.zero_optimization_stage() == 3
    parameter_host = "host_" if stage_3_parameters and engine.zero_offload_param().device != "none" else ""
    parameters = list(engine.module.parameters())

    def held(names: Iterable[str]) -> list[torch.Tensor]:
        return [tensor for name in names for tensor in tensors_in(getattr(wrapper, name, None))]

    shards = [p.ds_tensor for p in parameters if hasattr(p, "ds_tensor")]
    yield f"{parameter_host}parameter_shards", shards
    yield "parameters", [p.data for p in parameters]
    master = held(ATTRIBUTES["master"])
    yield f"{optimizer_host}master", master
    yield f"{optimizer_host}master_gradients", [p.grad for p in master if p.grad is not None]
    states = getattr(getattr(wrapper, "optimizer", wrapper), "state", {})
    yield f"{optimizer_host}moments", list(tensors_in(list(states.values())))
    if optimizer_host:
        yield "host_gradients", held(HOST_GRADIENTS)
        yield "host_buffers", held(HOST_BUFFERS)
    yield "gradients", [p.grad for p in parameters if p.grad is not None]
    accumulated = [getattr(p, "grad_accum", None) for p in parameters]
    yield "accumulated_gradients", [*held(ATTRIBUTES["gradients"]), *tensors_in(accumulated)]
    yield "buffers", held(ATTRIBUTES["buffers"])
    yield "module_buffers", list(engine.module.buffers())


def _let_go(answer: Any) -> None:
    """Waits for a collective, and for gloo's thread to drop what it still holds of it.

    The thread lets go of its buffers some time after the collective is done, so that a later allocation would find
    them alive or not by chance.
    """
    for work in answer if isinstance(answer, (list, tuple)) else (answer,):
        if isinstance(work, torch.ScriptObject):
            torch._C._distributed_c10d.Work.unbox(work).wait()
            time.sleep(RELEASE_SECONDS)
