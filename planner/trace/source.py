"""Finds the configuration that a trace is asked for: a catalog name or a file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from planner.architecture.catalog_models import catalog_models
from planner.errors import InputError
from planner.reading import nearest, read_document


def configuration(source: str) -> Mapping[str, Any]:
    """Fields of a model's config.json, or of that inside an overlay file.

    Raises InputError for an unknown name and for a file that holds no model.
    """
    entries = catalog_models()
    if source in entries:
        config: Mapping[str, Any] = entries[source]["config"]
        return config
    if not _names_a_file(source):
        raise InputError(
            f"unknown model {source!r}", path="model",
            expected="a key of catalogs/models.yaml or a path to a config.json",
            hint=nearest(source.replace("_", "-"), entries),
        )
    return _from_file(source)


def _names_a_file(source: str) -> bool:
    return source.endswith((".json", ".yaml", ".yml")) or "/" in source or Path(source).exists()


def _from_file(source: str) -> Mapping[str, Any]:
    data = read_document(source).data
    if isinstance(data, dict) and "overlay" in data:
        data = data.get("config")
    if not isinstance(data, dict) or not isinstance(data.get("model_type"), str):
        raise InputError("this is no model configuration", source, path="model_type", expected="a model's config.json")
    return data
