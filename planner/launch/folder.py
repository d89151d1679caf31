"""The run folder: everything that went into a run, and a status that is true at any moment.

status.json says `preparing`, `running` (with the launcher's process), `finished`, `failed` or `interrupted`. Every file
appears whole or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import platform, python_version
from typing import Any

from planner.errors import InputError
from planner.output import is_taken, write_files

STATUS = "status.json"
PACKAGES = ("planner", "torch", "deepspeed", "transformers", "accelerate", "peft", "bitsandbytes", "ortools")


class RunFolder:
    """One run's folder. Raises InputError where it holds another run."""

    def __init__(self, path: Path) -> None:
        if is_taken(path / STATUS):
            raise InputError(f"{path} holds a run already", path="--run", hint="name another folder")
        self.path = path
        self.status: dict[str, Any] = {"state": "preparing", "started": _now()}
        self._save()

    def add(self, files: Mapping[str, str]) -> None:
        """Writes files into the folder."""
        write_files(self.path, files, force=True)

    def set(self, state: str, **facts: Any) -> None:
        """Replaces the status; `facts` stand beside those that are there."""
        ended = {"ended": _now()} if state in ("finished", "failed", "interrupted") else {}
        self.status = {**self.status, "state": state, **facts, **ended}
        self._save()

    def _save(self) -> None:
        self.add({STATUS: json.dumps(self.status, indent=2) + "\n"})


def default_path(job_name: str) -> Path:
    """A new folder under runs/ by job and moment."""
    moment = datetime.now().strftime("%Y%m%d-%H%M%S")
    path = Path("runs") / f"{job_name}-{moment}"
    number = 1
    while is_taken(path):
        number += 1
        path = Path("runs") / f"{job_name}-{moment}-{number}"
    return path


def versions() -> dict[str, str]:
    """Versions of what runs here; what is not installed is left out."""
    found = {"python": python_version(), "platform": platform()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _now() -> str:
    """This moment, to the second, in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
