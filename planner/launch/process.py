"""Runs one command: arguments as a list, signals passed on, the exit code kept."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# After so many signals the command and its children are killed.
PATIENCE = 3


class Interrupted(BaseException):
    """A signal came before the command was started; `number` says which."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@dataclass(frozen=True)
class Outcome:
    """How a command ended: the code that this process should leave with, and the signals it was sent meanwhile."""

    exit_code: int
    signals: tuple[int, ...]


def run(
    arguments: Sequence[str], environment: Mapping[str, str], started: Callable[[int], None],
    output: IO[bytes] | None = None,
) -> Outcome:  # fmt: skip
    """Runs a command to its end; `started` gets its process id, `output` both of its streams where given.

    SIGINT, SIGTERM and SIGHUP go to the command, which stands in a session of its own so that a terminal's interrupt
    comes once. A command that a signal ended counts as 128 and its number, as in a shell.
    """
    received: list[int] = []
    process: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        received.append(number)
        for one in process:
            _send(one, number if len(received) < PATIENCE else signal.SIGKILL)

    with _handled(pass_on), subprocess.Popen(
        list(arguments), env=dict(environment), start_new_session=True, stdout=output,
        stderr=subprocess.STDOUT if output else None,
    ) as child:  # fmt: skip
        process.append(child)
        for number in tuple(received):
            _send(child, number)
        started(child.pid)
        code = child.wait()
    return Outcome(code if code >= 0 else 128 - code, tuple(received))


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises Interrupted for a signal, so that what is being written is finished or taken back."""

    def leave(number: int, _: FrameType | None) -> None:
        raise Interrupted(number)

    with _handled(leave):
        yield


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Signals handled by `handler`; what handled them before is put back."""
    before = {number: signal.signal(number, handler) for number in PASSED_ON}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _send(process: subprocess.Popen[bytes], number: int) -> None:
    """Sends a signal to a command, a kill to its whole session."""
    if process.poll() is not None:
        return
    if number == signal.SIGKILL:
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
