"""What solves many jobs at once: this process, processes beside it, or Dask or Ray through joblib."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from planner.clock import Clock
from planner.errors import InputError
from planner.many.row import Row, row_of
from planner.many.task import Task

ENGINES = ("processes", "dask", "ray")
LOOK = 0.2  # seconds between two looks at whether the sweep shall end
AHEAD = 4  # jobs for each worker that an engine is given at once
NEEDED = {"dask": ("joblib", "distributed"), "ray": ("joblib", "ray")}
Numbered = tuple[int, Row]


def solved(found: Sequence[Task], engine: str, workers: int, clock: Clock) -> Iterator[Numbered]:
    """Rows by the number of their task, in the order in which they are ready.

    Once the clock is over no further job is begun; those under way still give their rows. Raises InputError for an
    engine that is not installed.
    """
    if engine != "processes":
        yield from _through_joblib(found, engine, workers, clock)
    elif min(workers, len(found)) <= 1:
        for number, task in enumerate(found):
            if clock.over():
                return
            yield number, row_of(task)
    else:
        yield from _on_processes(found, min(workers, len(found)), clock)


def _on_processes(found: Sequence[Task], workers: int, clock: Clock) -> Iterator[Numbered]:
    """Rows from a pool of processes. Ends where a process dies: the jobs without a row remain."""
    with ProcessPoolExecutor(workers, get_context("spawn"), _quiet) as pool:
        running: dict[Future[Row], int] = {pool.submit(row_of, task): number for number, task in enumerate(found)}
        waiting = set(running)
        while waiting:
            done, waiting = wait(waiting, LOOK, FIRST_COMPLETED)
            if clock.over():
                waiting = {future for future in waiting if not future.cancel()}
            for future in done:
                try:
                    yield running[future], future.result()
                except BrokenProcessPool:
                    return


def _quiet() -> None:
    """A worker leaves interrupts to the process that started it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _through_joblib(found: Sequence[Task], engine: str, workers: int, clock: Clock) -> Iterator[Numbered]:
    """Rows from an engine that joblib speaks to, some jobs for each worker at a time."""
    modules = {name: _module(name, engine) for name in NEEDED[engine]}
    joblib: Any = modules["joblib"]
    with _started(engine, modules, workers), joblib.parallel_config(backend=engine, n_jobs=workers):
        size = AHEAD * workers
        for start in range(0, len(found), size):
            if clock.over():
                return
            chunk = found[start : start + size]
            yield from enumerate(joblib.Parallel()(joblib.delayed(row_of)(task) for task in chunk), start)


def _module(name: str, engine: str) -> Any:
    """A module of the extra. Raises InputError where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        extra = {"dask": "engines", "ray": "ray"}[engine]
        raise InputError(
            f"{engine} needs {name}, which is not installed", path="--engine", hint=f"pip install 'planner[{extra}]'"
        ) from None


def _started(engine: str, modules: dict[str, Any], workers: int) -> Any:
    """The engine as a context: the cluster that its own settings name, else one on this machine."""
    if engine == "dask":
        named = import_module("dask").config.get("scheduler-address", None)
        distributed = modules["distributed"]
        return distributed.Client() if named else distributed.Client(n_workers=workers, threads_per_worker=1)
    import_module("ray.util.joblib").register_ray()
    return modules["ray"].init(ignore_reinit_error=True, log_to_driver=False)
