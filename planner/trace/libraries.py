"""Loads the optional libraries, or says how to install them."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from planner.errors import InputError

NEEDED = ("torch", "transformers")


def library(name: str) -> Any:
    """A library or a module of it. Raises InputError where it is not installed."""
    try:
        return import_module(name)
    except ImportError:
        root = name.partition(".")[0]
        raise InputError(
            f"{root} is not installed", path="trace", expected="torch and transformers",
            hint="pip install planner[trace]",
        ) from None


def require_libraries() -> Mapping[str, str]:
    """Versions of the libraries that a trace needs, by name. Raises InputError where one is not installed."""
    return {name: str(library(name).__version__) for name in NEEDED}
