"""Ranks that outlive a launcher which was killed: found by the plan in their environment, and ended."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

PROCESSES = Path("/proc")


def end_orphans(marker: str) -> tuple[int, ...]:
    """Kills every process whose environment has the line `marker` (NAME=value), this one left out; returns their ids.

    Where the system does not show environments (no /proc), none is found.
    """
    found = tuple(_marked(marker.encode()))
    for process in found:
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            continue
    return found


def _marked(marker: bytes) -> Iterator[int]:
    """Processes with the line in their environment, as far as this user may read it."""
    for folder in PROCESSES.glob("[0-9]*"):
        try:
            lines = (folder / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if marker in lines and int(folder.name) != os.getpid():
            yield int(folder.name)
