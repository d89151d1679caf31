"""The documents under test: those that ship, with given files in place of their namesakes or beside them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from planner.catalog_check.findings import Finding, Place, refused
from planner.catalog_files import HARDWARE
from planner.catalog_files import kind_of as kind_of_file
from planner.errors import InputError
from planner.hardware_catalog import HardwareFile, OptimizerFile, PrecisionFile
from planner.reading import Document, read_document, validated
from planner.techniques import ChoiceEntry, RuntimeEntry

if TYPE_CHECKING:
    from importlib.abc import Traversable

ENVELOPE = "plausible.yaml"
# Kinds whose files add to each other, entry by entry.
MACHINES = ("gpus", "nodes", "links")
MODELS: Mapping[str, type[BaseModel]] = {
    "choice": ChoiceEntry,
    "runtime": RuntimeEntry,
    **dict.fromkeys(MACHINES, HardwareFile),
    "precisions": PrecisionFile,
    "optimizers": OptimizerFile,
}
_COEFFICIENTS = ("curves", "passes", "overlap", "groups")
# Files with a structure of their own, which their readers and tests hold.
_OTHERS = ("families.yaml", "deepspeed_keys.yaml", ENVELOPE)


@dataclass(frozen=True)
class Part:
    """One document: its kind, its name among its kind, and what the reader of its kind makes of it (None: nothing)."""

    kind: str
    name: str
    document: Document
    content: Any = None

    @property
    def place(self) -> Place:
        """The document's root."""
        return Place(self.document)


@dataclass(frozen=True)
class Catalog:
    """The documents of one check; `findings` is what could not be read."""

    parts: tuple[Part, ...]
    findings: tuple[Finding, ...] = ()

    def of(self, kind: str) -> tuple[Part, ...]:
        """The documents of one kind that could be read."""
        return tuple(part for part in self.parts if part.kind == kind and part.content is not None)

    def names(self, kind: str) -> tuple[str, ...]:
        """Every name of a kind, in any document."""
        return tuple(self.entries(kind))

    def entries(self, kind: str) -> Mapping[str, Any]:
        """Every entry of a kind by name, as its reader makes it."""
        return self._entries[kind]

    @cached_property
    def _entries(self) -> Mapping[str, Mapping[str, Any]]:
        found: dict[str, dict[str, Any]] = {
            "choice": {part.content.choice: part.content for part in self.of("choice")},
            "runtime": {part.content.runtime: part.content for part in self.of("runtime")},
            "efficiencies": {},
        }
        for kind in ("gpus", "nodes", "links", "precisions", "optimizers"):
            parts = self.of(kind)
            found[kind] = {key: entry for part in parts for key, entry in getattr(part.content, kind).items()}
        for part in self.of("gpus"):
            found["efficiencies"] |= part.content.efficiencies
        return found


def shipped_with(documents: Iterable[Document]) -> Catalog:
    """The shipped catalog with documents of machines, which can be read, beside it."""
    added = (parts_of(document.file, document)[0] for document in documents)
    return Catalog((*_shipped()[0], *chain.from_iterable(added)))


def read_catalog(paths: Iterable[Path] = ()) -> Catalog:
    """The shipped catalog with the files at `paths`; a folder stands for all YAML files below it.

    Raises InputError where a path cannot be read at all; what is wrong inside a file becomes a finding.
    """
    shipped, findings = _shipped()
    found = {(part.kind, part.name): part for part in shipped}
    problems = list(findings)
    for file in yaml_files(paths):
        document = read_document(file)
        parts, finding = parts_of(file.name, document)
        found |= {(part.kind, str(file) if part.kind in MACHINES else part.name): part for part in parts}
        problems += [finding] if finding else []
        problems += [
            part.place.error("holds nothing that a catalog has", "one of " + ", ".join(MODELS))
            for part in parts
            if part.kind == "other" and file.name not in _OTHERS
        ]
    return Catalog(tuple(found.values()), tuple(problems))


def yaml_files(paths: Iterable[Path]) -> Iterator[Path]:
    """The files at `paths`, and those below its folders in the order of their names."""
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob("*.yaml"))
            if not below:
                raise InputError("no YAML file in this folder", str(path), expected="catalog files")
            yield from below
        else:
            yield path


@lru_cache(maxsize=1)
def _shipped() -> tuple[tuple[Part, ...], tuple[Finding, ...]]:
    """The documents of the package."""
    parts: list[Part] = []
    findings: list[Finding] = []
    for name, resource in _resources(files("catalogs")):
        document = read_document(f"catalogs/{name}", text=resource.read_text(encoding="utf-8"))
        read, finding = parts_of(resource.name, document)
        parts += read
        findings += [finding] if finding else []
    return tuple(parts), tuple(findings)


def _resources(folder: Traversable, prefix: str = "") -> Iterator[tuple[str, Traversable]]:
    """Every YAML file below a folder of the package, with its name from there."""
    for item in sorted(folder.iterdir(), key=lambda found: found.name):
        if item.is_dir():
            yield from _resources(item, f"{prefix}{item.name}/")
        elif item.name.endswith(".yaml"):
            yield prefix + item.name, item


def parts_of(file_name: str, document: Document) -> tuple[tuple[Part, ...], Finding | None]:
    """The document as parts, several where it holds several kinds of machines, and what its reader refuses."""
    kind = "other" if file_name in _OTHERS else kind_of(document)
    name = str(document.data.get(kind, file_name)) if kind in ("choice", "runtime") else file_name
    content, finding = document.data, None
    if kind in MODELS:
        try:
            content = validated(MODELS[kind], document)
        except InputError as error:
            content, finding = None, refused(error)
    kinds = [each for each in MACHINES if each in document.data] if kind in MACHINES else []
    return tuple(Part(each, name, document, content) for each in kinds or [kind]), finding


def kind_of(document: Document) -> str:
    """What a document holds, by its keys; of several kinds of machines the first."""
    if not isinstance(document.data, dict):
        return "other"
    if kind_of_file(document) == "calibration":
        return "calibration"
    if any(key in document.data for key in _COEFFICIENTS):
        return "coefficients"
    if any(key in document.data for key in HARDWARE):
        return next((kind for kind in MACHINES if kind in document.data), "gpus")
    return next((kind for kind in (*MODELS, "models") if kind in document.data), "other")


def mapping(value: Any) -> Mapping[str, Any]:
    """The value, where it is a mapping; else an empty one: files without a reader of their own may hold anything."""
    return value if isinstance(value, dict) else {}
