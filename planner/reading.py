"""Reads YAML and JSON files into plain data whose every value knows its line, and holds the data against a model.

Whatever is wrong with a file ends as one InputError that names file:line:column, the path, what was expected and the
nearest valid spelling.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from planner.document_builder import Builder, Path, Place, dotted
from planner.errors import InputError
from planner.files import file_bytes
from planner.json_text import build_from_json
from planner.units import MIB, nearest
from planner.validation import best_mistake
from planner.yaml_text import build_from_yaml

__all__ = ["MAXIMUM_BYTES", "Document", "dotted", "nearest", "read_document", "validated"]

MAXIMUM_BYTES = 16 * MIB
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")

Model = TypeVar("Model", bound=BaseModel)


@dataclass(frozen=True)
class Document:
    """One file read: its plain `data`, and the places (line, column from 1) of its values and mapping keys by path."""

    file: str
    data: Any
    marks: Mapping[Path, Place]
    key_marks: Mapping[Path, Place]

    def mark(self, path: Path = ()) -> Place:
        """Where the value at `path` stands; the nearest ancestor that exists when it does not."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                return self.marks[path[:length]]
        return (0, 0)

    def key_mark(self, path: Path) -> Place:
        """Where the mapping key that ends `path` stands; `mark(path)` when that is no key."""
        return self.key_marks.get(path) or self.mark(path)

    def error(self, path: Path, message: str, expected: str = "", hint: str = "", *, key: bool = False) -> InputError:
        """The InputError for the value at `path`, or for the key that ends it."""
        line, column = self.key_mark(path) if key else self.mark(path)
        return InputError(message, self.file, line, column, dotted(path), expected, hint)


def read_document(
    path: str | os.PathLike[str], *, text: str | None = None, maximum_bytes: int = MAXIMUM_BYTES
) -> Document:
    """The document in a file, JSON by the suffix `.json` and YAML otherwise; `text` stands in for the file's content.

    Values are text, int, float, bool, None, lists and mappings with text keys. Raises InputError for whatever is
    wrong: no such file, not UTF-8, too large, not valid, duplicate keys, nested more than 64 levels, empty.
    """
    file = os.fspath(path)
    content = _content(file, maximum_bytes) if text is None else text
    content = content.removeprefix("\ufeff")
    _refuse_control_characters(file, content)
    builder = Builder(file)
    if not content.strip():
        raise InputError("the file is empty", file, expected="a mapping")
    build = build_from_json if file.lower().endswith(".json") else build_from_yaml
    build(content, builder)
    if builder.data is None:
        raise InputError("the file holds nothing", file, expected="a mapping")
    return Document(file, builder.data, builder.marks, builder.key_marks)


def validated(model: type[Model], document: Document, at: Path = ()) -> Model:
    """The subtree `at` of the document as `model`. Raises InputError for the mistake that explains most."""
    try:
        return model.model_validate(_subtree(document, at))
    except ValidationError as error:
        mistake = best_mistake(error, model, document, at)
    raise mistake


def _subtree(document: Document, at: Path) -> Any:
    data = document.data
    for depth, step in enumerate(at):
        known = range(len(data)) if isinstance(data, list) else data if isinstance(data, dict) else ()
        if step not in known:
            message = f"missing key {step!r}" if isinstance(step, str) else f"no item {step}"
            raise document.error(at[: depth + 1], message, hint=nearest(str(step), _names(known)))
        data = data[step]
    return data


def _names(known: Iterable[Any]) -> list[str]:
    return [name for name in known if isinstance(name, str)]


def _content(file: str, maximum_bytes: int) -> str:
    """The text of a file of at most `maximum_bytes`, as UTF-8 with or without a byte order mark."""
    raw = file_bytes(file, maximum_bytes, "a YAML or JSON file")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(raw[: error.start].decode("utf-8"), error.start)
        raise InputError("not UTF-8 text", file, line, column, expected="text in UTF-8") from None


def _refuse_control_characters(file: str, content: str) -> None:
    found = _CONTROL.search(content)
    if found:
        line, column = _place(content, found.start())
        message = f"the character U+{ord(found.group()):04X} is not text"
        raise InputError(message, file, line, column, expected="printable text")


def _place(text: str, offset: int) -> Place:
    before = text[:offset]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
