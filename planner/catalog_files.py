"""Catalog files that a user names beside the shipped ones, told apart by what they hold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

from planner.files import yaml_files
from planner.reading import Document, read_document

Kind = Literal["calibration", "hardware", "technique"]
CALIBRATION = "calibration"
# Keys of a file of machines; efficiencies are what its GPUs name.
HARDWARE = ("gpus", "nodes", "links", "efficiencies")


def kind_of(document: Document) -> Kind:
    """What a document holds; whatever is neither a calibration nor machines is to be a technique."""
    keys = document.data if isinstance(document.data, dict) else ()
    if CALIBRATION in keys:
        return "calibration"
    return "hardware" if any(key in keys for key in HARDWARE) else "technique"


def documents(catalogs: Iterable[Path], kind: Kind) -> Iterator[Document]:
    """The documents of one kind among catalog files and in folders of them. Raises InputError."""
    for path in catalogs:
        for file in yaml_files(path):
            document = read_document(file)
            if kind_of(document) == kind:
                yield document
