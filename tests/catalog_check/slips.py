"""Shipped catalog files with one slip each: what people write when a unit, a sign or a name goes wrong."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog_check import checking
from planner.catalog_check.catalog import Catalog, Part, parts_of, read_catalog
from planner.catalog_check.envelope import envelope
from planner.catalog_check.findings import Finding
from planner.document_builder import Path

HARDWARE = ("gpus", "nodes", "links", "optimizers", "precisions")
NUMBER = re.compile(r"^(\d+(?:\.\d+)?)( ?)([A-Za-z/]*)$")
OTHER_UNITS: Mapping[str, str] = {
    "GB/s": "Gbit/s", "Gbit/s": "GB/s", "TFLOP/s": "GFLOP/s", "GiB": "MiB", "TiB": "GiB", "TB": "GB", "GB": "MB",
    "us": "ms", "USD/hour": "GB/s",
}  # fmt: skip
# Keys whose text is the name of something else in the catalogs.
NAMES = (
    "gpu", "host_link", "scale_up_link", "nic_link", "efficiency", "architecture", "default", "of", "runtime", "curve",
    "source", "peak", "book", "axis", "kind", "over", "message", "ahead", "calls", "memory_bandwidth",
)  # fmt: skip


@dataclass(frozen=True)
class Slip:
    """One value of one document written wrongly."""

    kind: str
    part: Part
    path: Path
    value: Any


def leaves(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a document that is no container, with its path."""
    if isinstance(data, dict):
        for key, value in data.items():
            yield from leaves(value, (*path, key))
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, (*path, index))
    else:
        yield path, data


def scaled(value: Any, factor: float) -> Any:
    """The number or quantity times a factor; None where it is none, or nothing would change."""
    if isinstance(value, bool) or not value:
        return None
    if isinstance(value, (int, float)):
        product = value * factor
        return int(product) if isinstance(value, int) and product == int(product) else product
    match = NUMBER.match(value) if isinstance(value, str) else None
    return f"{float(match[1]) * factor:.12g}{match[2]}{match[3]}" if match and match[3] else None


def negative(value: Any) -> Any:
    """The value with a minus sign."""
    if isinstance(value, str):
        return f"-{value}" if scaled(value, 1) else None
    return scaled(value, -1)


def other_unit(value: Any) -> Any:
    """The quantity with the unit next to its own."""
    match = NUMBER.match(value) if isinstance(value, str) else None
    unit = OTHER_UNITS.get(match[3]) if match else None
    return f"{match[1]}{match[2]}{unit}" if match and unit else None


def misspelt(path: Path, value: Any) -> Any:
    """A name with its last two characters exchanged, or the last one doubled where they are the same."""
    named = path[-1] in NAMES or "sources" in path[1:]
    if not named or not isinstance(value, str) or len(value) < 3 or " " in value:
        return None
    turned = value[:-2] + value[-1] + value[-2]
    return turned if turned != value else value + value[-1]


KINDS: Mapping[str, Callable[[Path, Any], Any]] = {
    "x1000": lambda _, value: scaled(value, 1000),
    "/1000": lambda _, value: scaled(value, 1 / 1000),
    "x8": lambda _, value: scaled(value, 8),
    "/8": lambda _, value: scaled(value, 1 / 8),
    "sign": lambda _, value: negative(value),
    "unit": lambda _, value: other_unit(value),
    "name": misspelt,
}


def slips(kind: str, parts: tuple[Part, ...]) -> Iterator[Slip]:
    """Every slip of a kind that the documents allow."""
    for part in parts:
        for path, value in leaves(part.document.data):
            wrong = None if path[0] == "sources" else KINDS[kind](path, value)
            if wrong is not None:
                yield Slip(kind, part, path, wrong)


def shipped(*kinds: str) -> tuple[Part, ...]:
    """The shipped documents of these kinds."""
    return tuple(part for part in read_catalog().parts if part.kind in kinds)


def sample(count: int, seed: int, parts: tuple[Part, ...]) -> list[Slip]:
    """`count` slips, the kinds in turn, drawn without repetition."""
    drawn = random.Random(seed)
    known = {kind: list(slips(kind, parts)) for kind in KINDS}
    for each in known.values():
        drawn.shuffle(each)
    kinds = list(KINDS)
    return [known[kinds[index % len(kinds)]].pop() for index in range(count)]


def found(slip: Slip) -> list[Finding]:
    """What the check says about the catalog with that slip."""
    data = copy.deepcopy(slip.part.document.data)
    inner = data
    for step in slip.path[:-1]:
        inner = inner[step]
    inner[slip.path[-1]] = slip.value
    document = replace(slip.part.document, data=data)
    (part,), finding = parts_of(slip.part.name if slip.part.kind not in ("choice", "runtime") else "x.yaml", document)
    others = (other for other in read_catalog().parts if other is not slip.part)
    return ([finding] if finding else []) + findings(Catalog((*others, part)), part.kind in HARDWARE)


def findings(catalog: Catalog, hardware: bool) -> list[Finding]:
    """All rules but those that the slip cannot touch: models never, techniques and coefficients by no hardware."""
    left_out: set[object] = {checking.model_findings}
    if hardware:
        left_out |= {checking.technique_findings, checking.effect_findings, checking.coefficient_findings}
    found = [item for rule in checking.RULES if rule not in left_out for item in rule(catalog)]
    return found + [
        item for rule in checking.RULES_OF_SIZE if rule not in left_out for item in rule(catalog, envelope())
    ]
