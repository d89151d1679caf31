"""Models that ship with the planner, by key: `catalogs/models.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import Architecture
from planner.errors import InputError
from planner.reading import nearest, read_document


def catalog_model(key: str) -> Architecture:
    """Architecture of a model in the catalog. Raises InputError with the nearest key when it is not there."""
    entries = catalog_models()
    if key not in entries:
        raise InputError(
            f"unknown model {key!r}",
            path="model",
            expected="a key of catalogs/models.yaml, a path to a config.json, or {parameters: N, layers: L}",
            hint=nearest(key.replace("_", "-"), entries),
        )
    return architecture_from_config(entries[key]["config"], name=key, file="catalogs/models.yaml")


@cache
def catalog_models() -> Mapping[str, Mapping[str, Any]]:
    """Every entry: `source`, `published_parameters` and `config`, by key."""
    text = (files("catalogs") / "models.yaml").read_text(encoding="utf-8")
    entries: Mapping[str, Mapping[str, Any]] = read_document("catalogs/models.yaml", text=text).data["models"]
    return entries
