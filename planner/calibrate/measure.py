"""Times kernels on the GPUs of this machine and holds them against the catalogs: matrix products, attention, copies.

What runs on one GPU runs for a second before it counts, so that the clock is the one that training holds. With several
GPUs an all-reduce over NCCL is timed too, one process for each; where DeepSpeed is installed, its update on the host.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import exp, log
from statistics import fmean, pstdev
from time import perf_counter
from typing import Any

from planner.calibrate.overlay_file import Entry, Figure
from planner.cluster import Cluster, Group, collective_seconds, cpu_optimizer_seconds, host_link_seconds
from planner.driver_names import known_gpu
from planner.errors import InputError
from planner.hardware import Gpu
from planner.hardware_catalog import Hardware
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
UPDATED = 64 * 2**20
WARM_SECONDS = 1.0
REPEATS = 20
UPDATES = 3

Row = dict[str, Any]
Timer = Callable[[Callable[[], Any]], float]


def measured_entry(hardware: Hardware) -> Entry:
    """The calibration of this machine's GPU.

    Raises InputError without torch, without a GPU, for one that the catalogs do not know, and where it fails meanwhile,
    for want of memory for example.
    """
    torch = _torch()
    card = torch.cuda.get_device_properties(0)
    gpu = known_gpu(card.name, card.total_memory, hardware.gpus.values())
    try:
        return entry_of(gpu.key, list(_rows(torch, gpu, hardware)))
    except (RuntimeError, torch.multiprocessing.ProcessRaisedException) as error:
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        last = lines[0] if isinstance(error, RuntimeError) else lines[-1]
        raise InputError(f"the GPU failed while it was timed: {last}", path="--measure",
                         hint="see whether something else runs on it") from None  # fmt: skip


def _rows(torch: Any, gpu: Gpu, hardware: Hardware) -> Iterable[Row]:
    """Every sweep that this machine has what it takes for."""
    yield from sweeps(torch, gpu, lambda work: _seconds(torch, work), hardware)
    torch.cuda.empty_cache()  # other processes share the first GPU from here on
    if torch.cuda.device_count() > 1:
        yield from reductions(torch, gpu, hardware)
    yield from host_updates(torch, gpu, hardware)


def _torch() -> Any:
    """torch with a GPU."""
    try:
        import torch
    except ImportError:
        raise InputError("--measure needs torch", hint="pip install torch") from None
    if not torch.cuda.is_available():
        raise InputError("--measure needs a GPU, and torch sees none here", hint="calibrate from RUNS.csv instead")
    return torch


def _machine(gpu: Gpu, count: int, hardware: Hardware) -> Cluster:
    """One node of which only the GPUs are known."""
    settings = ClusterSettings.model_validate({"gpu": gpu.key, "gpus_per_node": count})
    return Cluster(gpu, plain_node(gpu, settings, hardware.nodes.values()), 1, hardware.links)


def entry_of(gpu: str, rows: Sequence[Row]) -> Entry:
    """The geometric mean of measured over catalog seconds by group, its scatter, and the rows themselves."""
    figures = {}
    for name in dict.fromkeys(str(row["group"]) for row in rows):
        ratios = [log(row["seconds"] / row["catalog_seconds"]) for row in rows if row["group"] == name]
        error = pstdev(ratios) / len(ratios) ** 0.5
        figures[name] = Figure(times=round(exp(fmean(ratios)), 4), error=round(error, 4))
    return Entry(gpu=gpu, time=figures, measured=tuple(rows))


# ── sweeps on one GPU ────────────────────────────────────────────────────────────────────────────────────────────────


def sweeps(torch: Any, gpu: Gpu, timer: Timer, hardware: Hardware) -> Iterable[Row]:
    """Each shape's seconds beside the catalog's, in 16 bits: bf16, or fp16 on a GPU whose units have no bf16."""
    peak = "bf16" if "bf16" in gpu.peak else "fp16"
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}[peak]
    yield from products(torch, gpu, timer, peak, dtype)
    yield from attentions(torch, gpu, timer, peak, dtype)
    yield from copies(torch, gpu, timer, hardware)


def products(torch: Any, gpu: Gpu, timer: Timer, peak: str, dtype: Any) -> Iterable[Row]:
    """Matrix products as a linear layer has them: its weight holds a row for each column of the result."""
    for rows, columns, inner in PRODUCTS:
        left = torch.randn(rows, inner, device="cuda", dtype=dtype)
        weight = torch.randn(columns, inner, device="cuda", dtype=dtype)
        expected = matrix_seconds(gpu, peak, rows, columns, inner, "typical")
        seconds = timer(partial(torch.nn.functional.linear, left, weight))
        yield _row("products", f"{rows} x {columns} x {inner} {peak}", seconds, expected)


def attentions(torch: Any, gpu: Gpu, timer: Timer, peak: str, dtype: Any) -> Iterable[Row]:
    """Causal attention, and its backward pass alone."""
    attention = torch.nn.functional.scaled_dot_product_attention
    for length, batch, heads in ATTENTIONS:
        size, shape = (batch, heads, length, HEAD), AttentionShape(batch, length, heads, heads, HEAD, HEAD)
        given = [torch.randn(size, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
        what = f"{batch} x {heads} heads x {length}, causal"
        with torch.no_grad():
            seconds = timer(partial(attention, *given, is_causal=True))
        yield _row("attention", f"{what}, forward", seconds,
                   attention_seconds(gpu, peak, shape, "forward", "sdpa", "typical"))  # fmt: skip
        found = attention(*given, is_causal=True)
        back = partial(torch.autograd.grad, found, given, torch.ones_like(found), retain_graph=True)
        yield _row("attention", f"{what}, backward", timer(back),
                   attention_seconds(gpu, peak, shape, "backward", "sdpa", "typical"))  # fmt: skip


def copies(torch: Any, gpu: Gpu, timer: Timer, hardware: Hardware) -> Iterable[Row]:
    """Copies inside device memory, and from and to pinned host memory."""
    cluster = _machine(gpu, 1, hardware)
    for size in COPIED:
        there = torch.empty(size, device="cuda", dtype=torch.uint8)
        other = torch.empty_like(there)
        host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
        seconds = timer(partial(there.copy_, other))
        yield _row("memory", f"copy of {size // MIB} MiB", seconds, memory_seconds(gpu, 2 * size, 1, "typical"))
        for direction, words, copy in (
            ("to_gpu", "to the GPU", partial(there.copy_, host, non_blocking=True)),
            ("from_gpu", "from the GPU", partial(host.copy_, there, non_blocking=True)),
        ):
            expected = host_link_seconds(cluster, size, direction, 1)
            yield _row("host_link", f"{size // MIB} MiB {words}", timer(copy), expected)


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


# ── the host ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def host_updates(torch: Any, gpu: Gpu, hardware: Hardware) -> Iterable[Row]:
    """DeepSpeed's Adam on the host's cores, where it is installed and can be compiled."""
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam

        weights = torch.nn.Parameter(torch.zeros(UPDATED))
        weights.grad = torch.full_like(weights, 1e-3)
        optimizer = DeepSpeedCPUAdam([weights])
        optimizer.step()
    except Exception:  # what is compiled here fails in as many ways as there are toolchains
        return
    begun = perf_counter()
    for _ in range(UPDATES):
        optimizer.step()
    seconds = (perf_counter() - begun) / UPDATES
    expected = cpu_optimizer_seconds(_machine(gpu, 1, hardware), UPDATED, 1)
    yield _row("cpu_optimizer", f"Adam of {UPDATED:,} elements on the host", seconds, expected)


# ── several GPUs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def reductions(torch: Any, gpu: Gpu, hardware: Hardware) -> list[Row]:
    """All-reduces over all GPUs of this machine beside the catalog's."""
    count = torch.cuda.device_count()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with torch.multiprocessing.get_context("spawn").Manager() as manager:
        found = manager.dict()
        torch.multiprocessing.spawn(reduce_on, args=(count, port, found), nprocs=count)
        measured = dict(found)
    cluster = _machine(gpu, count, hardware)
    expected = {size: collective_seconds(cluster, "all_reduce", size, Group(count)) for size in REDUCED}
    return [_row("inside_node", f"all-reduce of {s // MIB} MiB", measured[s], expected[s]) for s in REDUCED]


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
