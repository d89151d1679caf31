"""Emitted files as an answer: what goes to a terminal or a pipe when nothing is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def emission_answer(target: str, files: Mapping[str, str], notes: Sequence[str]) -> dict[str, Any]:
    """The files by name with the target's notes."""
    return {"target": target, "files": dict(files), "notes": list(notes)}


def emission_text(files: Mapping[str, str]) -> str:
    """A single file as it is, several with their names above them."""
    if len(files) == 1:
        return next(iter(files.values()))
    return "\n".join(f"==> {name} <==\n{text}" for name, text in files.items())
