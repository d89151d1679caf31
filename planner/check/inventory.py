"""The keys that DeepSpeed reads, from `catalogs/deepspeed_keys.yaml`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from typing import Any

FILE = "deepspeed_keys.yaml"


@dataclass(frozen=True)
class Key:
    """One key: its kind, default and range; `own_auto` and `trainer_auto` say who makes something of "auto"."""

    name: str
    kind: str
    default: Any = None
    optional: bool = False
    values: tuple[Any, ...] = ()
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    finite: bool = False
    any_case: bool = False
    single: bool = False
    refuses_booleans: bool = False
    checked: bool = False
    late: bool = False
    other_name: str = ""
    deprecated: str = ""
    own_auto: bool = False
    trainer_auto: bool = False


@dataclass(frozen=True)
class Block:
    """One block of the file: its keys, and what happens to a key that it does not know."""

    path: str
    unknown: str
    source: str
    keys: Mapping[str, Key]

    @property
    def validated(self) -> bool:
        """Whether the parser validates the whole block."""
        return self.unknown == "refused"

    def find(self, name: str) -> Key | None:
        """The key of a name, or of the other name that is accepted."""
        return self.keys.get(name) or next((key for key in self.keys.values() if key.other_name == name), None)

    def names(self) -> list[str]:
        """Every name that is accepted and not deprecated."""
        return [key.name for key in self.keys.values() if not key.deprecated]


@dataclass(frozen=True)
class Schedule:
    """The arguments of one of DeepSpeed's learning rate schedules."""

    keys: tuple[str, ...]
    required: tuple[str, ...]


@dataclass(frozen=True)
class Inventory:
    """All blocks by dotted name, names of optimizers and schedules, and what was removed with what to do instead."""

    version: str
    blocks: Mapping[str, Block]
    optimizers: Mapping[str, tuple[str, ...]]
    schedules: Mapping[str, Schedule]
    torch_schedules: tuple[str, ...]
    removed: Mapping[str, str] = field(default_factory=dict)

    def key(self, dotted: str) -> Key | None:
        """The key of a dotted name, None where there is none."""
        path, _, name = dotted.rpartition(".")
        block = self.blocks.get(path)
        return block.find(name) if block else None

    def dotted(self) -> Iterator[tuple[str, Key]]:
        """Every key with its dotted name."""
        for path, block in self.blocks.items():
            for key in block.keys.values():
                yield f"{path}.{key.name}".lstrip("."), key


@lru_cache(maxsize=1)
def inventory() -> Inventory:
    """The shipped inventory."""
    from planner.reading import read_document

    text = files("catalogs").joinpath(FILE).read_text(encoding="utf-8")
    data: dict[str, Any] = read_document(f"catalogs/{FILE}", text=text).data
    blocks = {path: _block(path, entry) for path, entry in data["blocks"].items()}
    for name, entry in data["blocks"][""]["keys"].items():
        if "like" in entry:
            blocks[name] = blocks[entry["like"]]
    schedules = data["schedules"]
    return Inventory(
        version=data["version"],
        blocks=blocks,
        optimizers={name: tuple(found) for name, found in data["optimizers"].items() if isinstance(found, list)},
        schedules={
            name: Schedule(tuple(entry["keys"]), tuple(entry["required"]))
            for name, entry in schedules["deepspeed"].items()
        },
        torch_schedules=tuple(schedules["torch"]),
        removed=data["removed"],
    )


def _block(path: str, entry: Mapping[str, Any]) -> Block:
    """One block of the catalog."""
    keys = {name: _key(name, found) for name, found in entry["keys"].items()}
    return Block(path, entry["unknown"], entry["source"], keys)


def _key(name: str, entry: Mapping[str, Any]) -> Key:
    """One key of the catalog."""
    same = ("kind", "default", "optional", "at_least", "above", "at_most", "below", "finite", "any_case", "single",
            "checked", "late", "deprecated")  # fmt: skip
    return Key(
        name=name,
        values=tuple(entry.get("values", ())),
        refuses_booleans=entry.get("booleans") == "refused",
        other_name=entry.get("also", ""),
        own_auto=entry.get("auto") == "own",
        trainer_auto=entry.get("auto") == "trainer",
        **{field: entry[field] for field in same if field in entry},
    )
