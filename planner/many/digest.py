"""What an answer depends on, as one short text: the job's values, files it names, catalogs and the version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from planner import __version__
from planner.reading import Document

LENGTH = 24  # letters: 96 bits


def digest(document: Document, name: str, catalogs: tuple[Path, ...], time_limit: float | None) -> str:
    """The digest of one job. A file that is not there counts as empty: solving the job will say so."""
    model = document.data.get("model") if isinstance(document.data, dict) else None
    named = isinstance(model, str) and model.lower().endswith((".json", ".yaml", ".yml"))
    parts = [
        __version__,
        _shipped(),
        *(_text(path) for path in _listed(catalogs)),
        _text(Path(document.file).parent / str(model)) if named else "",
        json.dumps([name, document.data, time_limit], sort_keys=True, ensure_ascii=True),
    ]
    return _hashed(parts)


def _hashed(parts: Iterable[str]) -> str:
    """One text for several, none of which can reach into the next."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:{part}".encode())
    return found.hexdigest()[:LENGTH]


@lru_cache(maxsize=1)
def _shipped() -> str:
    """The digest of all shipped catalogs."""
    root = Path(str(files("catalogs")))
    return _hashed(part for path in sorted(root.rglob("*.yaml")) for part in (str(path.relative_to(root)), _text(path)))


def _listed(catalogs: Iterable[Path]) -> Iterable[Path]:
    """The files of catalogs beside the shipped one."""
    for path in catalogs:
        yield from sorted(path.rglob("*.yaml")) if path.is_dir() else [path]


@lru_cache(maxsize=4096)
def _text(path: Path) -> str:
    """A file's text, empty where it cannot be read."""
    try:
        return path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return ""
