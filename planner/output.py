"""Writes files whole or not at all, all of a set or none, and never over what is there unless told so."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from time import sleep

from planner.errors import InputError, InternalError

# Signals that wait until a set of files is complete; SIGHUP is not everywhere.
HELD = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
# How often, and how many seconds apart, a folder that another process writes into is asked for.
ATTEMPTS, PAUSE = 50, 0.1


def write_files(folder: Path, files: Mapping[str, str | bytes], force: bool = False) -> tuple[Path, ...]:
    """Writes `files` (name to text) into `folder`, made where missing; returns their paths.

    Each file appears under its name only when it is complete, and only when all others of the set are; an interrupt
    waits that long. Of two processes that write into one folder the second waits for the first, so no set mixes.
    Raises InputError where a file exists and `force` is not set (then nothing is written), and where the folder cannot
    be written.
    """
    paths = tuple(_inside(folder, name) for name in files)
    _refuse_taken(paths, force)
    try:
        with held_signals(), ExitStack() as stack:
            folder.mkdir(parents=True, exist_ok=True)
            stack.enter_context(_locked(folder))
            _refuse_taken(paths, force)
            beside = [stack.enter_context(_beside(folder, content)) for content in files.values()]
            for path, temporary in zip(paths, beside, strict=True):
                os.replace(temporary, path)
    except (OSError, ValueError) as error:
        name, reason = getattr(error, "filename", None) or folder, getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot write {name}: {reason}", path="--out") from None
    return paths


def is_taken(path: Path) -> bool:
    """Whether something stands under that name, a link to nothing too; a name that can be none is not taken."""
    return os.path.lexists(path)


@contextmanager
def held_signals() -> Iterator[None]:
    """Inside, SIGINT, SIGTERM and SIGHUP wait; what came meanwhile is delivered afterwards, in the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.signal(number, lambda caught, _: received.append(caught)) for number in HELD}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in received[:1]:
            os.kill(os.getpid(), number)


def _inside(folder: Path, name: str) -> Path:
    """The path of a file in the folder. Raises InternalError for a name that leads out of it."""
    if name != os.path.basename(name) or name in ("", os.curdir, os.pardir):
        raise InternalError(f"'{name}' is no name of a file in a folder")
    return folder / name


def _refuse_taken(paths: tuple[Path, ...], force: bool) -> None:
    """InputError for the first of the paths that exists."""
    taken = [path for path in paths if is_taken(path)]
    if taken and not force:
        raise InputError(f"{taken[0]} exists", path="--out", hint="--force writes over it")


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """The folder for this process alone, where the system can do that. Raises InputError where it stays taken."""
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        for attempt in range(ATTEMPTS):
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if attempt + 1 == ATTEMPTS:
                    raise InputError(f"another process writes into {folder}", path="--out", hint="try again") from None
                sleep(PAUSE)
            except OSError:  # a file system without locks
                break
        yield
    finally:
        os.close(handle)


@contextmanager
def _beside(folder: Path, content: str | bytes) -> Iterator[str]:
    """The content in a temporary file in `folder`, which is gone afterwards unless it was renamed."""
    handle, temporary = tempfile.mkstemp(dir=folder, prefix=".planner-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        yield temporary
    finally:
        Path(temporary).unlink(missing_ok=True)
