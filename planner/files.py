"""Reads files that a user names: regular ones only, never more than a limit, so no name can hang a command."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from planner.errors import InputError
from planner.units import nearest

_MOST_NAMES_LISTED = 1000
_OF_JOBS = (".yaml", ".yml", ".json")


def file_bytes(path: str | os.PathLike[str], maximum_bytes: int, expected: str) -> bytes:
    """The content of the regular file at `path`.

    Raises InputError, which names what was `expected`, for a name that leads to no file, to a directory, a pipe or a
    device, for a file that may not be read, and for more than `maximum_bytes`, of which no more is then read.
    """
    file = os.fspath(path)
    try:
        with open(file, "rb", opener=_opened) as stream:
            if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
                raise InputError("this is no regular file", file, expected=expected, hint="write it to a file first")
            raw = stream.read(maximum_bytes + 1)
    except (OSError, ValueError) as error:
        raise _unreadable(file, error, expected) from None
    if len(raw) > maximum_bytes:
        raise InputError("the file is too large", file, expected=f"at most {maximum_bytes} bytes")
    return raw


def printable(name: str) -> str:
    """The name with `?` for each character that does not print, so that it can stand in any answer and any file."""
    return "".join(character if character.isprintable() else "?" for character in name)


def yaml_files(path: Path) -> list[Path]:
    """The YAML files of a folder by name, or the one file that is named. Raises InputError for a folder of none."""
    if not path.is_dir():
        return [path]
    found = sorted(path.glob("*.yaml"))
    if not found:
        raise InputError("the folder holds no YAML file", str(path), expected="files ending in .yaml")
    return found


def job_files(path: Path) -> list[Path]:
    """The job files of a folder by name, or the one file that is named. Raises InputError for a folder of none."""
    if not path.is_dir():
        return [path]
    found = sorted(item for item in path.iterdir() if item.suffix in _OF_JOBS)
    if not found:
        raise InputError("the folder holds no job file", str(path), expected="files *.yaml, *.yml or *.json")
    return found


def _opened(file: str, flags: int) -> int:
    """A descriptor; a pipe that nobody writes to is not waited for."""
    return os.open(file, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def _unreadable(file: str, error: Exception, expected: str) -> InputError:
    """Why a file cannot be read."""
    if isinstance(error, IsADirectoryError):
        return InputError("this is a directory", file, expected=expected)
    if isinstance(error, FileNotFoundError):
        return InputError("there is no such file", file, expected=expected, hint=_nearest_file(file))
    reason = getattr(error, "strerror", None) or "not a file name"
    return InputError(f"cannot be read: {reason}", file, expected=expected)


def _nearest_file(file: str) -> str:
    """The file beside it whose name is closest."""
    try:
        with os.scandir(Path(file).parent) as entries:
            names = [entry.name for entry, _ in zip(entries, range(_MOST_NAMES_LISTED), strict=False)]
    except OSError:
        return ""
    return nearest(Path(file).name, sorted(names))
