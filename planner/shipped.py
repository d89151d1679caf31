"""The shipped catalogs by kind and name, for people to look things up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from planner.errors import InputError
from planner.reading import nearest, read_document
from planner.units import shown

FILES: Mapping[str, tuple[str, str]] = {
    "gpus": ("gpus.yaml", "gpus"),
    "nodes": ("nodes.yaml", "nodes"),
    "links": ("links.yaml", "links"),
    "models": ("models.yaml", "models"),
    "optimizers": ("optimizers.yaml", "optimizers"),
    "precisions": ("precisions.yaml", "precisions"),
}
FOLDERS: Mapping[str, str] = {"techniques": "techniques", "runtimes": "runtimes"}
KINDS = (*FILES, *FOLDERS)


@lru_cache(maxsize=16)
def names(kind: str | None = None) -> Mapping[str, tuple[str, ...]]:
    """Names of one kind or of all, by kind. Raises InputError for an unknown kind."""
    return {item: tuple(_entries(item)) for item in ((_kind(kind),) if kind else KINDS)}


def entry(kind: str, name: str) -> Any:
    """One entry as its catalog file holds it. Raises InputError with the nearest spelling."""
    found = _entries(_kind(kind))
    if name not in found:
        raise InputError(f"unknown {kind.removesuffix('s')} {shown(name)}", hint=nearest(name, found))
    return found[name]


def entry_text(kind: str, name: str) -> str:
    """One entry as YAML."""
    import yaml

    text: str = yaml.safe_dump(entry(kind, name), sort_keys=False, allow_unicode=True, width=110)
    return text


def _kind(kind: str) -> str:
    """The kind, if there is one of that name."""
    if kind not in KINDS:
        expected = "one of " + ", ".join(KINDS)
        raise InputError(f"unknown kind {shown(kind)}", expected=expected, hint=nearest(kind, KINDS))
    return kind


def _entries(kind: str) -> Mapping[str, Any]:
    """All entries of a kind, by name."""
    root = files("catalogs")
    if kind in FILES:
        name, key = FILES[kind]
        found: Mapping[str, Any] = _read(name)[key]
        return found
    folder = root.joinpath(FOLDERS[kind])
    stems = sorted(item.name.removesuffix(".yaml") for item in folder.iterdir() if item.name.endswith(".yaml"))
    return {stem: _read(f"{FOLDERS[kind]}/{stem}.yaml") for stem in stems}


def _read(name: str) -> Any:
    """One catalog file's content."""
    text = files("catalogs").joinpath(name).read_text(encoding="utf-8")
    return read_document(f"catalogs/{name}", text=text).data
