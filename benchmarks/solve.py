"""Solves the jobs beside this file and sets the time beside what evaluating every configuration would take.

Prints a table in Markdown. Times are of this machine; the ratio to exhaustive evaluation is taken in the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import yaml

from planner.ledger import stage_ledgers
from planner.plan import Plan
from planner.resolve import read_job
from planner.search import solve
from planner.space import job_space
from planner.time_lines import step_time

INTRODUCTION = """# Performance

`make bench` writes this page. For each job: the candidate configurations (the product of all choices' values), seconds
in the solver, CPU seconds of the whole search with runner-up (reading catalogs, about a second, left out), seconds of
the whole command `planner solve` in a process of its own, start of Python and import of the solver included, and what
books and step time of every configuration would take, extrapolated from {sample} random ones in the same process. The
optimum is proven in every row. Configurations count every value of every choice; rules leave part of them out (values
that the runtime has not, micro-batches that do not divide), as they do for whoever walks the space by hand.
"""
SAMPLE = 60  # configurations that are evaluated to know what one costs
HEADINGS = (
    "job", "GPUs", "configurations", "solver s", "search s (CPU)", "command s", "exhaustive s (CPU)", "times less",
)  # fmt: skip

GROWTH = """
## Growth

The same searches as GPUs, layers or open choices grow: Llama-3.1-405B under Megatron on nodes of eight H100; 30 billion
parameters in more and more layers under DeepSpeed on 64 of them; and those in 64 layers with more and more choices.
"""
WIDE = {
    "model": "llama-3.1-405b", "cluster": {"node": "dgx-h100", "nodes": 32},
    "training": {"sequence_length": 8192, "global_batch": 2048, "runtime": "megatron"},
}  # fmt: skip
DEEP = {
    "model": {"parameters": "30e9", "layers": 64, "vocabulary": 32000}, "cluster": {"node": "dgx-h100", "nodes": 8},
    "training": {"sequence_length": 4096, "global_batch": 1024},
}  # fmt: skip
# Pinned together until they are opened one after the other.
PINNED = {
    "zero_stage": 3, "micro_batch": 1, "checkpoint_interval": [0, 1], "optimizer_offload": "none",
    "parameter_offload": "none", "activation_offload": "none", "loss": "standard", "recompute_policy": "full",
}  # fmt: skip


def measured(path: Path) -> tuple[str, ...]:
    """One line of the table: a job's solve, and the extrapolated cost of evaluating all of its configurations."""
    job = read_job(path)
    began = process_time()
    solution = solve(job)
    whole = process_time() - began
    each, command = _seconds_each(path), _command_seconds(path)
    space = job_space(job).size
    return (
        path.stem, f"{job.cluster.gpus:,}", f"{space:.3g}", f"{solution.proof.solver_seconds:.3f}", f"{whole:.1f}",
        f"{command:.1f}", f"{each * space:.3g}", f"{each * space / whole:,.0f}",
    )  # fmt: skip


def _command_seconds(path: Path) -> float:
    """Seconds on the clock of `planner solve`, the shortest of three: the first one compiles the sources."""
    words = [sys.executable, "-m", "planner", "solve", str(path)]
    times = []
    with TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment["PYTHONPYCACHEPREFIX"] = folder
        for _ in range(3):
            began = perf_counter()
            subprocess.run(words, check=True, capture_output=True, env=environment)
            times.append(perf_counter() - began)
    return min(times)


def _seconds_each(path: Path) -> float:
    """CPU seconds of the books and the step time of one configuration, over a sample drawn from the space."""
    job, draw = read_job(path), Random(0)
    space = job_space(job)
    plans = [Plan({choice.name: draw.choice(choice.values) for choice in space.choices}) for _ in range(SAMPLE)]
    began = process_time()
    for plan in plans:
        stage_ledgers(job, plan)
        step_time(job, space.complete(plan))
    return (process_time() - began) / SAMPLE


def grown() -> Iterator[tuple[str, dict[str, Any]]]:
    """What grows, with the job."""
    for nodes in (32, 128, 512, 2048):
        yield f"{nodes * 8:,} GPUs", {**WIDE, "cluster": {"node": "dgx-h100", "nodes": nodes}}
    for layers in (16, 32, 64, 128):
        yield f"{layers} layers", {**DEEP, "model": {"parameters": "30e9", "layers": layers, "vocabulary": 32000}}
    for opened in range(0, len(PINNED) + 1, 2):
        yield f"{opened} choices opened", {**DEEP, "choices": dict([*PINNED.items()][opened:])}


def print_growth() -> None:
    """The table of searches as something grows."""
    print(GROWTH)
    print("| what | configurations | solver s | search s (CPU) |")
    print("|---|---|---|---|")
    for name, data in grown():
        with TemporaryDirectory() as folder:
            path = Path(folder) / "job.yaml"
            path.write_text(yaml.safe_dump(data), encoding="utf-8")
            job = read_job(path)
        began = process_time()
        solution = solve(job)
        seconds, size = process_time() - began, job_space(job).size
        print(f"| {name} | {size:.3g} | {solution.proof.solver_seconds:.3f} | {seconds:.1f} |", flush=True)


def main() -> None:
    """All jobs beside this file and what grows, or the jobs named on the command line."""
    folder = Path(__file__).parent / "jobs"
    paths = [Path(name) for name in sys.argv[1:]] or sorted(folder.glob("*.yaml"))
    print(INTRODUCTION.format(sample=SAMPLE))
    print("| " + " | ".join(HEADINGS) + " |")
    print("|---" * len(HEADINGS) + "|")
    for path in paths:
        began = perf_counter()
        print("| " + " | ".join(measured(path)) + " |", flush=True)
        print(f"{path.stem}: {perf_counter() - began:.1f} s", file=sys.stderr)
    if not sys.argv[1:]:
        print_growth()


if __name__ == "__main__":
    main()
