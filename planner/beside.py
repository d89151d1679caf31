"""Runs work that does not look at signals beside this thread, so that it can be stopped."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

Found = TypeVar("Found")
LOOK = 0.05  # seconds between two looks at whether the work shall end


def run_beside(work: Callable[[], Found], end: Callable[[], None], stop: Callable[[], bool] | None) -> Found:
    """What `work` returns; `end` asks it to return early, once `stop` says so or this thread is interrupted."""
    with ThreadPoolExecutor(max_workers=1) as beside:
        running = beside.submit(work)
        try:
            while not wait([running], LOOK).done:
                if stop is not None and stop():
                    end()
        except BaseException:
            end()
            raise
    return running.result()
