"""What DeepSpeed's engine holds tensors for, by book and device.

Source of the attributes: deepspeed 0.19.8 runtime/zero/stage_1_and_2.py, zero/stage3.py, bf16_optimizer.py,
fp16/fused_optimizer.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from planner.verify.storages import tensors_in

MASTER = (
    "single_partition_of_fp32_groups", "fp32_partitioned_groups_flat", "fp32_groups_flat_partition", "fp32_groups_flat",
)  # fmt: skip
GRADIENTS = (
    "averaged_gradients", "all_grad_tensors", "grads_in_partition", "grad_partitions_flat_buffer",
    "accumulated_grads_in_cpu", "fp32_groups_gradients_flat", "fp32_groups_gradient_flat_partition",
)  # fmt: skip
BUFFERS = (
    "param_buffer_of_bit16_for_cpu_offload_groups", "temp_grad_buffer_for_cpu_offload",
    "temp_grad_buffer_for_gpu_offload",
)  # fmt: skip
# What optimizer offload moves to the host; without it the same attributes stay on the device.
HOST_BUFFERS = ("param_buffer_of_bit16_for_cpu_offload_groups", "temp_grad_buffer_for_cpu_offload")
HOST_GRADIENTS = ("accumulated_grads_in_cpu", "grad_partitions_flat_buffer")


def held(engine: Any) -> Iterator[tuple[str, bool, list[Any]]]:
    """(book, whether on the host, tensors); a storage belongs to the first that names it."""
    optimizer = engine.optimizer
    offloaded = bool(engine.zero_use_cpu_optimizer())
    parameters = list(engine.module.parameters())
    yield "parameters", _parameters_offloaded(engine), [p.ds_tensor for p in parameters if hasattr(p, "ds_tensor")]
    yield "parameters", False, [p.data for p in parameters if not _gathered(p)]
    master = _attributes(optimizer, MASTER)
    yield "optimizer_states", offloaded, master
    yield "gradients", offloaded, [p.grad for p in master if p.grad is not None]
    states = getattr(getattr(optimizer, "optimizer", optimizer), "state", {})
    yield "optimizer_states", offloaded, list(tensors_in(list(states.values())))
    if offloaded:
        yield "gradients", True, _attributes(optimizer, HOST_GRADIENTS)
        yield "buffers", True, _attributes(optimizer, HOST_BUFFERS)
    yield "buffers", False, _buckets(optimizer)
    yield "gradients", False, [p.grad for p in parameters if p.grad is not None]
    accumulated = [getattr(p, "grad_accum", None) for p in parameters]
    yield "gradients", False, [*_attributes(optimizer, GRADIENTS), *tensors_in(accumulated)]
    yield "buffers", False, _attributes(optimizer, BUFFERS)
    yield "buffers", False, list(engine.module.buffers())


def _buckets(optimizer: Any) -> list[Any]:
    """The reduction buckets themselves; gradients that wait in one are views of it or beside it."""
    buckets = getattr(optimizer, "ipg_buckets", {})
    return [tensor for bucket in buckets.values() for tensor in tensors_in(getattr(bucket, "buffer", None))]


def live_books(engine: Any) -> dict[tuple[str, bool], int]:
    """Bytes by book and by whether they lie on the host, each storage once."""
    seen: set[int] = set()
    found: dict[tuple[str, bool], int] = {}
    for book, host, tensors in held(engine):
        found[book, host] = found.get((book, host), 0) + _bytes(tensors, seen)
    return found


def books_on(engine: Any, device: Any) -> dict[str, int]:
    """Bytes by book of what really lies on a kind of device, each storage once."""
    seen: set[int] = set()
    found: dict[str, int] = {}
    for book, _, tensors in held(engine):
        there = [tensor for tensor in tensors if tensor.device.type == device.type]
        found[book] = found.get(book, 0) + _bytes(there, seen)
    return found


def _bytes(tensors: Iterable[Any], seen: set[int]) -> int:
    """Bytes of the storages that are not in `seen`; adds them to it."""
    total = 0
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if tensor.device.type != "meta" and storage._cdata not in seen:
            seen.add(storage._cdata)
            total += storage.nbytes()
    return total


def _gathered(parameter: Any) -> bool:
    """Whether stage 3 holds the whole of a parameter for the moment only."""
    return hasattr(parameter, "ds_tensor") and not getattr(parameter, "ds_persist", False)


def _parameters_offloaded(engine: Any) -> bool:
    """Whether the shards of stage 3 lie on the host."""
    offload = engine.zero_offload_param()
    return offload is not None and engine.zero_optimization_stage() == 3 and str(offload.device) != "none"


def _attributes(owner: Any, names: Iterable[str]) -> list[Any]:
    """The tensors in those attributes that the owner has."""
    return [tensor for name in names for tensor in tensors_in(getattr(owner, name, None))]
