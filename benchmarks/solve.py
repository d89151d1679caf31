"""Solves the jobs beside this file and sets the time beside what evaluating every configuration would take.

Prints a table in Markdown. Times are of this machine; the ratio to exhaustive evaluation is taken in the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

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


def main() -> None:
    """All jobs beside this file, or those named on the command line."""
    folder = Path(__file__).parent / "jobs"
    paths = [Path(name) for name in sys.argv[1:]] or sorted(folder.glob("*.yaml"))
    print(INTRODUCTION.format(sample=SAMPLE))
    print("| " + " | ".join(HEADINGS) + " |")
    print("|---" * len(HEADINGS) + "|")
    for path in paths:
        began = perf_counter()
        print("| " + " | ".join(measured(path)) + " |", flush=True)
        print(f"{path.stem}: {perf_counter() - began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
