"""Times kernels on the GPUs of this machine and holds them against the catalogs: matrix products, attention, copies.

Products and attention run for a second each before they count, so that the clock is the one that training holds. With
several GPUs an all-reduce over NCCL is timed too, one process for each GPU.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import exp, log
from statistics import fmean, pstdev
from typing import Any

from planner import hardware_catalog
from planner.calibrate.overlay_file import Entry, Figure
from planner.cluster import Cluster, Group, collective_seconds, host_link_seconds
from planner.errors import InputError
from planner.hardware import Gpu
from planner.job_file import ClusterSettings
from planner.resolve import plain_node
from planner.speed.attention import AttentionShape, attention_seconds
from planner.speed.matrix import matrix_seconds
from planner.speed.memory_bound import memory_seconds
from planner.units import GIB, MIB

PRODUCTS = ((4096, 4096, 4096), (8192, 8192, 4096), (8192, 4096, 14336), (16384, 8192, 8192))
ATTENTIONS = ((2048, 8, 32), (4096, 4, 32), (8192, 2, 32))
HEAD = 128
COPIED = (256 * MIB, GIB)
REDUCED = (16 * MIB, 256 * MIB, GIB)
WARM_SECONDS = 1.0
REPEATS = 20

Row = dict[str, Any]
Timer = Callable[[Callable[[], Any]], float]


def measured_entry() -> Entry:
    """The calibration of this machine's GPU. Raises InputError without torch, without a GPU, or for an unknown one."""
    torch = _torch()
    gpu = known_gpu(torch.cuda.get_device_name(0), torch.cuda.get_device_properties(0).total_memory)
    rows = list(sweeps(torch, gpu, lambda work: _seconds(torch, work)))
    if torch.cuda.device_count() > 1:
        rows += reductions(torch, gpu)
    return entry_of(gpu.key, rows)


def _torch() -> Any:
    """torch with a GPU."""
    try:
        import torch
    except ImportError:
        raise InputError("--measure needs torch", hint="pip install torch") from None
    if not torch.cuda.is_available():
        raise InputError("--measure needs a GPU, and torch sees none here", hint="calibrate from RUNS.csv instead")
    return torch


def known_gpu(name: str, memory: int) -> Gpu:
    """The GPU of the catalog that a driver's name and size of memory mean."""
    words = set(name.lower().replace("-", " ").split())
    known = hardware_catalog.gpus().values()
    likely = [gpu for gpu in known if gpu.key.split("-")[0] in words and abs(gpu.usable_memory / memory - 1) < 0.1]
    if not likely:
        raise InputError(f"no GPU of the catalog is '{name}' with {memory / GIB:.1f} GiB")
    return min(likely, key=lambda gpu: (-sum(part in words for part in gpu.key.split("-")), gpu.key))


def _machine(gpu: Gpu, count: int) -> Cluster:
    """One node of which only the GPUs are known."""
    node = plain_node(gpu, ClusterSettings.model_validate({"gpu": gpu.key, "gpus_per_node": count}))
    return Cluster(gpu, node, 1, hardware_catalog.links())


def entry_of(gpu: str, rows: Sequence[Row]) -> Entry:
    """The geometric mean of measured over catalog seconds by group, its scatter, and the rows themselves."""
    figures = {}
    for name in dict.fromkeys(str(row["group"]) for row in rows):
        ratios = [log(row["seconds"] / row["catalog_seconds"]) for row in rows if row["group"] == name]
        error = pstdev(ratios) / len(ratios) ** 0.5
        figures[name] = Figure(times=round(exp(fmean(ratios)), 4), error=round(error, 4))
    return Entry(gpu=gpu, time=figures, measured=tuple(rows))


# ── sweeps on one GPU ────────────────────────────────────────────────────────────────────────────────────────────────


def sweeps(torch: Any, gpu: Gpu, timer: Timer) -> Iterable[Row]:
    """Each shape's seconds beside the catalog's."""
    for rows, columns, inner in PRODUCTS:
        left = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
        right = torch.randn(inner, columns, device="cuda", dtype=torch.bfloat16)
        expected = matrix_seconds(gpu, "bf16", rows, columns, inner, "typical")
        yield _row(
            "products", f"{rows} x {columns} x {inner} bf16", timer(partial(torch.matmul, left, right)), expected
        )
    attention = torch.nn.functional.scaled_dot_product_attention
    for length, batch, heads in ATTENTIONS:
        query = torch.randn(batch, heads, length, HEAD, device="cuda", dtype=torch.bfloat16)
        shape = AttentionShape(batch, length, heads, heads, HEAD, HEAD)
        expected = attention_seconds(gpu, "bf16", shape, "forward", "sdpa", "typical")
        seconds = timer(partial(attention, query, query, query, is_causal=True))
        yield _row("attention", f"{batch} x {heads} heads x {length}, causal, forward", seconds, expected)
    yield from copies(torch, gpu, timer)


def copies(torch: Any, gpu: Gpu, timer: Timer) -> Iterable[Row]:
    """Copies inside device memory, and from pinned host memory."""
    cluster = _machine(gpu, 1)
    for size in COPIED:
        there = torch.empty(size, device="cuda", dtype=torch.uint8)
        other = torch.empty_like(there)
        seconds = timer(partial(there.copy_, other))
        yield _row("memory", f"copy of {size // MIB} MiB", seconds, memory_seconds(gpu, 2 * size, 1, "typical"))
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        expected = host_link_seconds(cluster, size, "to_gpu", 1)
        yield _row(
            "host_link", f"{size // MIB} MiB to the GPU", timer(partial(there.copy_, host, non_blocking=True)), expected
        )


def _row(group: str, what: str, seconds: float, expected: float) -> Row:
    return {
        "group": group,
        "what": what,
        "seconds": float(f"{seconds:.4g}"),
        "catalog_seconds": float(f"{expected:.4g}"),
    }


def _seconds(torch: Any, work: Callable[[], Any]) -> float:
    """Seconds of one run of `work` on the GPU, once it is warm."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    warm = 0.0
    while warm < WARM_SECONDS:
        start.record()
        for _ in range(REPEATS):
            work()
        end.record()
        torch.cuda.synchronize()
        elapsed = start.elapsed_time(end) / 1e3
        warm += elapsed
    return float(elapsed / REPEATS)


# ── several GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def reductions(torch: Any, gpu: Gpu) -> list[Row]:
    """All-reduces over all GPUs of this machine beside the catalog's."""
    count = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    manager = torch.multiprocessing.get_context("spawn").Manager()
    found = manager.dict()
    torch.multiprocessing.spawn(reduce_on, args=(count, port, found), nprocs=count)
    cluster = _machine(gpu, count)
    expected = {size: collective_seconds(cluster, "all_reduce", size, Group(count)) for size in REDUCED}
    return [_row("inside_node", f"all-reduce of {s // MIB} MiB", found[s], expected[s]) for s in REDUCED]


def reduce_on(rank: int, count: int, port: int, found: Any) -> None:
    """One process: joins the group and times each size; the first one reports."""
    import torch

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=count)
    for size in REDUCED:
        data = torch.zeros(size // 2, device="cuda", dtype=torch.bfloat16)
        seconds = _fixed(torch, partial(torch.distributed.all_reduce, data))
        if rank == 0:
            found[size] = seconds
    torch.distributed.destroy_process_group()


def _fixed(torch: Any, work: Callable[[], Any]) -> float:
    """Seconds of one run of `work`, which every rank runs equally often."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(REPEATS):
        work()
    start.record()
    for _ in range(REPEATS):
        work()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end) / 1e3 / REPEATS)
