"""The groups of time terms that a calibration tells apart, from `catalogs/calibration.yaml`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from planner.calibration import Calibration

SECONDS = "_seconds"
EVERYTHING = "everything"
# What `everything` is a multiple of, on top of each group's own.
SHARED = (
    "products", "narrow_products", "attention", "memory", "weights", "launches", "inside_node", "between_nodes",
)  # fmt: skip


@dataclass(frozen=True)
class Group:
    """One field of `Calibration`, or all of `SHARED`.

    `width`: of the logarithm of a multiple, or of a constant as a share of the step.
    """

    name: str
    means: str
    width: float

    @property
    def constant(self) -> bool:
        """Whether the group is seconds that are added, not a multiple."""
        return self.name.endswith(SECONDS)


@lru_cache(maxsize=1)
def coefficients() -> Mapping[str, Any]:
    """The content of `catalogs/calibration.yaml`."""
    from planner.reading import read_document

    text = files("catalogs").joinpath("calibration.yaml").read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", read_document("catalogs/calibration.yaml", text=text).data)


def combined(values: Mapping[str, float]) -> Calibration:
    """The calibration that values by group mean; groups without one stay as the catalogs say."""
    own = {name: value for name, value in values.items() if name != EVERYTHING}
    alike = values.get(EVERYTHING, 1.0)
    return Calibration(**{**own, **{name: alike * own.get(name, 1.0) for name in SHARED}})


@lru_cache(maxsize=1)
def groups() -> tuple[Group, ...]:
    """Every group, in the order of the catalog."""
    return tuple(Group(name, entry["is"], float(entry["width"])) for name, entry in coefficients()["groups"].items())


def scatter() -> float:
    """Standard deviation of the logarithm of a measured step time about a model that is right."""
    return float(coefficients()["scatter"]["value"])


def told() -> float:
    """Share of a group's width that runs must take away for the group to be fitted."""
    return float(coefficients()["told"]["value"])
