"""The efficiency catalogs (`catalogs/efficiency/*.yaml`) as read, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, wraps
from importlib.resources import files
from typing import Any, TypeVar, cast

from planner.errors import InputError
from planner.hardware import Gpu

Curve = TypeVar("Curve")
REMEMBERED = 4096
OUTLOOKS = ("low", "typical", "high")


@lru_cache(maxsize=8)
def efficiency(name: str) -> Mapping[str, Any]:
    """The content of `catalogs/efficiency/<name>.yaml`, in the catalog's own units."""
    from planner.reading import read_document

    file = f"efficiency/{name}.yaml"
    text = files("catalogs").joinpath(file).read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", read_document(f"catalogs/{file}", text=text).data)


def time_factor(entry: Mapping[str, Any], outlook: str) -> float:
    """Multiple of the typical time that `outlook` means; raises InputError for an unknown outlook."""
    if outlook not in OUTLOOKS:
        raise InputError(f"unknown outlook {outlook!r}", expected="one of " + ", ".join(OUTLOOKS))
    return 1.0 if outlook == "typical" else float(entry[outlook])


def curve_name(gpu: Gpu, curves: Mapping[str, Any]) -> str:
    """The curve that a GPU follows: its own entry, else its architecture's, else `any`."""
    entry = curves["gpus"].get(gpu.key)
    return str(entry["curve"] if entry else curves["architectures"].get(gpu.architecture, "any"))


def remembered(build: Callable[..., Curve]) -> Callable[..., Curve]:
    """`build(gpu, *names)` made once per GPU object and names; a Gpu holds mappings and has no hash of its own."""
    made: dict[tuple[Any, ...], tuple[Gpu, Curve]] = {}

    @wraps(build)
    def find(gpu: Gpu, *names: str | bool) -> Curve:
        key = (id(gpu), *names)
        found = made.get(key)
        if found is None or found[0] is not gpu:
            if len(made) >= REMEMBERED:
                made.clear()
            found = made[key] = (gpu, build(gpu, *names))
        return found[1]

    return find
