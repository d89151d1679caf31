"""How long a search may still take: a time limit, and an interrupt that ends it with what was found so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

LEAST = 0.05  # seconds that a question always gets, to bring what is known into a plan


class Clock:
    """Counts from its making; `interrupted` once someone asked the search to end."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.end = monotonic() + seconds
        self.interrupted = False

    @property
    def remaining(self) -> float:
        """Seconds left, never less than LEAST."""
        return LEAST if self.interrupted else max(LEAST, self.end - monotonic())

    def over(self) -> bool:
        """Whether the search has to end."""
        return self.interrupted or monotonic() >= self.end

    @property
    def reason(self) -> str:
        """What ended the search."""
        return "an interrupt" if self.interrupted else f"the time limit of {self.seconds:g} s"


@contextmanager
def interruptible(clock: Clock) -> Iterator[Clock]:
    """Inside, the first SIGINT ends the search with its best plan so far, the second one ends the program.

    Signals can be caught in the main thread only; elsewhere nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield clock
        return

    def caught(_: int, __: FrameType | None) -> None:
        if clock.interrupted:
            raise KeyboardInterrupt
        clock.interrupted = True

    before = signal.signal(signal.SIGINT, caught)
    try:
        yield clock
    finally:
        signal.signal(signal.SIGINT, signal.SIG_DFL if before is None else before)  # None: not set from Python
