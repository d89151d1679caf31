"""Reads a JSON file as forgivingly as DeepSpeed's Hjson reader does, and notes what plain JSON would refuse.

Forgiven: comments (`//`, `#`, `/* */`), trailing commas, keys and texts without quotes or in single quotes, commas left
out at line ends. Duplicate keys are noted; the last value stands, as in Python's json.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import file_bytes

KeyPath = tuple[str, ...]
LARGEST = 1_000_000  # bytes; configuration files have a few thousand
MOST_KEYS = 1000  # they have a few dozen, and each unknown one is held against all that are known
LONGEST_NUMBER = 400  # characters; the largest float written out has 309
BLANK = re.compile(r"(?:[ \t\r\n]+)")
COMMENT = re.compile(r"//[^\n]*|#[^\n]*|/\*.*?\*/", re.DOTALL)
NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?(?=\s*(?:[,\]}\n#]|//|/\*|$))")
CONSTANT = re.compile(r"(?:true|false|null|NaN|-?Infinity)(?=\s*(?:[,\]}\n#]|//|/\*|$))")
QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
BARE_KEY = re.compile(r"[^\s,:\[\]{}\"']+")
BARE_TEXT = re.compile(r"[^\s,:\[\]{}\"'][^\n]*")
DUPLICATE = "a duplicate key"
VALUES: dict[str, Any] = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Note:
    """One departure from plain JSON, or a duplicate key; lines count from 1."""

    kind: str
    line: int
    key: str = ""


@dataclass(frozen=True)
class Source:
    """A configuration file: its text, its content, the line of each key, and departures from plain JSON.

    `broken` says why the text is no plain JSON and `line` where; `data` is None where nothing could be read.
    """

    file: str
    text: str
    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    broken: str = ""
    line: int = 0

    def line_of(self, key: str) -> int:
        """The line of a dotted key, 0 where it does not stand in the file."""
        return self.lines.get(tuple(key.split(".")), 0)


class Unreadable(ValueError):
    """The text at `offset` is not even forgiving JSON."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message, self.offset = message, offset


def read_source(path: Path) -> Source:
    """The file's content. Raises InputError where there is no readable text; broken JSON is part of the answer."""
    content = file_bytes(path, LARGEST, "a DeepSpeed JSON file")
    try:
        return source(str(path), content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", file=str(path), expected="a DeepSpeed JSON file") from None


def source(file: str, text: str) -> Source:
    """Reads a text forgivingly; `broken` is set where plain JSON would refuse it."""
    reader = _Reader(text)
    try:
        data = reader.document()
    except Unreadable as problem:
        return Source(file, text, None, broken=problem.message, line=reader.line(problem.offset))
    except RecursionError:
        return Source(file, text, None, broken="nested too deeply", line=1)
    departures = [note for note in reader.notes if note.kind != DUPLICATE]
    if departures:
        return Source(file, text, data, reader.lines, tuple(reader.notes), departures[0].kind, departures[0].line)
    return Source(file, text, data, reader.lines, tuple(reader.notes))


class _Reader:
    """One pass over a text; `lines` and `notes` fill as it goes."""

    def __init__(self, text: str) -> None:
        self.text, self.at = text, 0
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self.lines: dict[KeyPath, int] = {}
        self.notes: list[Note] = []

    def line(self, offset: int) -> int:
        """The line of an offset, from 1."""
        return bisect_right(self.line_starts, offset)

    def note(self, kind: str, key: str = "") -> None:
        """Records a departure at the current place."""
        self.notes.append(Note(kind, self.line(self.at), key))

    def document(self) -> Any:
        """The one value of the text."""
        found = self.value(())
        self.blank()
        if self.at < len(self.text):
            raise Unreadable("more text follows the end", self.at)
        return found

    def blank(self) -> None:
        """Skips white space and comments."""
        while True:
            space = BLANK.match(self.text, self.at)
            comment = None if space else COMMENT.match(self.text, self.at)
            if comment:
                self.note("a comment")
            found = space or comment
            if not found:
                return
            self.at = found.end()

    def value(self, path: KeyPath) -> Any:
        """The value that begins here."""
        self.blank()
        head = self.text[self.at : self.at + 1]
        readers: dict[str, Callable[[KeyPath], Any]] = {"{": self.mapping, "[": self.sequence}
        if head in readers:
            return readers[head](path)
        if head in ("'", '"'):
            return self.quoted()
        return self.scalar()

    def scalar(self) -> Any:
        """A number, a constant, or text without quotes up to the end of the line."""
        if found := NUMBER.match(self.text, self.at) or CONSTANT.match(self.text, self.at):
            self.at = found.end()
            word = found.group()
            if len(word) > LONGEST_NUMBER:
                raise Unreadable(f"a number of {len(word)} characters", found.start())
            return VALUES[word] if word in VALUES else json.loads(word)
        if found := BARE_TEXT.match(self.text, self.at):
            self.note("text without quotes")
            self.at = found.end()
            return found.group().rstrip().rstrip(",")
        raise Unreadable("a value is missing", self.at)

    def quoted(self) -> str:
        """Text in quotes; single quotes are noted."""
        if self.text[self.at] == "'":
            self.note("single quotes")
            end = self.text.find("'", self.at + 1)
            if end < 0:
                raise Unreadable("a quote is not closed", self.at)
            found, self.at = self.text[self.at + 1 : end], end + 1
            return found
        double = QUOTED.match(self.text, self.at)
        if not double:
            raise Unreadable("a quote is not closed", self.at)
        self.at = double.end()
        try:
            return str(json.loads(double.group(), strict=False))
        except json.JSONDecodeError as problem:
            raise Unreadable(problem.msg, double.start()) from None

    def mapping(self, path: KeyPath) -> dict[str, Any]:
        """Keys and values between braces."""
        self.at += 1
        found: dict[str, Any] = {}
        while not self.closed("}"):
            key = self.key()
            inside = (*path, key)
            if key in found:
                self.note(DUPLICATE, ".".join(inside))
            if len(self.lines) >= MOST_KEYS:
                raise Unreadable(f"there are more than {MOST_KEYS} keys", self.at)
            self.lines[inside] = self.line(self.at)
            self.blank()
            if self.text[self.at : self.at + 1] != ":":
                raise Unreadable(f"':' is missing after {key!r}", self.at)
            self.at += 1
            found[key] = self.value(inside)
            self.separator("}")
        return found

    def sequence(self, path: KeyPath) -> list[Any]:
        """Values between brackets."""
        self.at += 1
        found: list[Any] = []
        while not self.closed("]"):
            found.append(self.value((*path, str(len(found)))))
            self.separator("]")
        return found

    def key(self) -> str:
        """A key; one without quotes is noted."""
        if self.text[self.at] in "\"'":
            return self.quoted()
        found = BARE_KEY.match(self.text, self.at)
        if not found:
            raise Unreadable("a key is missing", self.at)
        self.note("a key without quotes")
        self.at = found.end()
        return found.group()

    def closed(self, end: str) -> bool:
        """Whether the block ends here; steps over its end."""
        self.blank()
        if self.at >= len(self.text):
            raise Unreadable(f"{end!r} is missing at the end", self.at)
        if self.text[self.at] != end:
            return False
        self.at += 1
        return True

    def separator(self, end: str) -> None:
        """A comma, the end of the block, or a line end that stands for a comma."""
        before = self.at
        self.blank()
        head = self.text[self.at : self.at + 1]
        if head == ",":
            comma = self.line(self.at)
            self.at += 1
            self.blank()
            if self.text[self.at : self.at + 1] == end:
                self.notes.append(Note("a trailing comma", comma))
        elif head not in (end, ""):
            if "\n" not in self.text[before - 1 : self.at]:
                raise Unreadable("',' is missing", self.at)
            self.note("a missing comma")
