"""Families of model code: what `catalogs/families.yaml` says about each `model_type`.

A family maps canonical fact names (`hidden`, `kv_heads`, ...) to the field names of its configuration files, fixes
the traits no configuration states, and gives the defaults of absent fields. A family may extend another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from planner.errors import InputError
from planner.reading import read_document
from planner.units import shown

SECTIONS = ("fields", "traits", "defaults", "names")


@dataclass(frozen=True)
class Family:
    """One entry of `catalogs/families.yaml`, with everything it extends merged in.

    `builder` names the function that lays out its layers. `fields` maps a fact to the configuration keys that may
    hold it, the first present one wins (dots descend into nested objects). `traits` cannot be overridden by a
    configuration, `defaults` can. `names` maps a part of a layer to the module path of the model code.
    """

    model_type: str
    builder: str
    fields: Mapping[str, tuple[str, ...]]
    traits: Mapping[str, Any]
    defaults: Mapping[str, Any]
    names: Mapping[str, Any]


def family_of(model_type: str, path: str = "model_type", file: str = "") -> Family:
    """Family of a `model_type`. Raises InputError with the nearest known spelling when there is none."""
    entries = _entries()
    if model_type in entries:
        return _family(model_type)
    raise InputError(
        message=f"unknown model_type {shown(model_type)}",
        file=file,
        path=path,
        expected=f"one of the {len(model_types())} families of catalogs/families.yaml",
        hint=_advice(model_type),
    )


def model_types() -> tuple[str, ...]:
    """Every known `model_type`, sorted."""
    return tuple(sorted(name for name, entry in _entries().items() if not entry.get("abstract")))


def nearest_model_type(model_type: str) -> str:
    """The known `model_type` spelled most like the given one; empty when none is close."""
    folded = {name.lower().replace("-", "_"): name for name in model_types()}
    close = get_close_matches(model_type.lower().replace("-", "_"), list(folded), n=1, cutoff=0.5)
    return folded[close[0]] if close else ""


def _advice(model_type: str) -> str:
    near = nearest_model_type(model_type)
    question = f"did you mean {near!r}? " if near else ""
    return (
        f"{question}For other model code, set model_type to the family its layers follow, "
        "or describe the model as {parameters: N, layers: L}"
    )


@cache
def _entries() -> Mapping[str, Mapping[str, Any]]:
    resource = files("catalogs") / "families.yaml"
    document = read_document("catalogs/families.yaml", text=resource.read_text(encoding="utf-8"))
    families: Mapping[str, Mapping[str, Any]] = document.data["families"]
    return families


@cache
def _family(model_type: str) -> Family:
    merged = _merged(model_type)
    fields = {fact: (keys,) if isinstance(keys, str) else tuple(keys) for fact, keys in merged["fields"].items()}
    return Family(model_type, merged["builder"], fields, merged["traits"], merged["defaults"], merged["names"])


def _merged(model_type: str) -> dict[str, Any]:
    entry = _entries()[model_type]
    parent = entry.get("extends")
    base: dict[str, Any] = _merged(parent) if parent else {section: {} for section in SECTIONS}
    merged = {section: _over(base[section], entry.get(section, {})) for section in SECTIONS}
    if "defaults" in entry:
        merged["defaults"] = dict(entry["defaults"])
    return {**merged, "builder": entry.get("builder", base.get("builder", "decoder"))}


def _over(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """`own` laid over `base`; null removes what was inherited."""
    return {key: value for key, value in {**base, **own}.items() if value is not None}
