"""Writes files whole or not at all, and never over what is there unless told so."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from planner.errors import InputError


def write_files(folder: Path, files: Mapping[str, str], force: bool = False) -> tuple[Path, ...]:
    """Writes `files` (name to text) into `folder`, made where missing; returns their paths.

    Each file appears under its name only when it is complete. Raises InputError where a file exists and `force` is not
    set (then nothing is written), and where the folder cannot be written.
    """
    paths = tuple(folder / name for name in files)
    taken = [path for path in paths if path.exists()]
    if taken and not force:
        raise InputError(f"{taken[0]} exists", path="--out", hint="--force writes over it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, files.values(), strict=True):
            _write(path, text)
    except OSError as error:
        raise InputError(f"cannot write {error.filename or folder}: {error.strerror}", path="--out") from None
    return paths


def _write(path: Path, text: str) -> None:
    """One file, through a temporary file beside it."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
