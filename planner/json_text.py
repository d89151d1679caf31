"""Reads JSON text with the place of every key and value; NaN, comments and trailing commas are refused by name."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any

from planner.document_builder import Builder, Place
from planner.errors import InputError

_SPACE = re.compile(r"[ \t\r\n]*")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z.+-])")
_WORD = re.compile(r"[^\s,:\[\]{}\"]{1,20}")
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}


def build_from_json(text: str, builder: Builder) -> None:
    """Feeds one JSON document to `builder`. Raises InputError with the place of the first mistake."""
    _Reader(text, builder).read()


class _Reader:
    """Walks the text once, without recursion; `position` is the next character."""

    def __init__(self, text: str, builder: Builder) -> None:
        self.text = text
        self.builder = builder
        self.position = 0
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    @property
    def place(self) -> Place:
        line = bisect_right(self.line_starts, self.position)
        return line, self.position - self.line_starts[line - 1] + 1

    @property
    def next(self) -> str:
        return self.text[self.position : self.position + 1]

    def read(self) -> None:
        self.skip()
        self.value()
        while self.builder.depth:
            self.item()
        if self.next:
            raise self.unexpected("the end of the file")

    def skip(self) -> None:
        match = _SPACE.match(self.text, self.position)
        self.position = match.end() if match else self.position

    def take(self, character: str) -> bool:
        """Whether `character` is next; if so it is passed, with the space after it."""
        if self.next != character:
            return False
        self.position += 1
        self.skip()
        return True

    def item(self) -> None:
        """The next key or value of the container that is open; what `value` leaves behind is a comma or an end."""
        end = "}" if self.builder.expects_key else "]"
        if self.take(end):
            self.ended()
            return
        if self.builder.expects_key:
            self.key()
        self.value()

    def key(self) -> None:
        place = self.place
        if self.next != '"':
            raise self.unexpected("a key in double quotes")
        self.builder.key(self.string(), place)
        if not self.take(":"):
            raise self.unexpected("':' after the key")

    def value(self) -> None:
        place = self.place
        if self.take("{"):
            self.builder.open({}, place)
        elif self.take("["):
            self.builder.open([], place)
        else:
            self.builder.value(self.string() if self.next == '"' else self.word(), place)
            self.separated()

    def ended(self) -> None:
        self.builder.close()
        self.separated()

    def separated(self) -> None:
        """Passes the comma after a value, or leaves the end of the container as the next character."""
        if not self.builder.depth:
            return
        end = "}" if self.builder.expects_key else "]"
        comma = self.place
        if self.take(","):
            if self.next in ("}", "]"):
                raise self.builder.error(comma, "a comma stands before the end", "no comma after the last item")
        elif self.next != end:
            raise self.unexpected(f"',' or '{end}'")

    def string(self) -> str:
        match = _STRING.match(self.text, self.position)
        if match is None:
            raise self.builder.error(self.place, "the text in quotes is not valid", "text ended by a double quote")
        text: str = json.loads(match.group())
        if any("\ud800" <= character <= "\udfff" for character in text):
            raise self.builder.error(self.place, "half a character (a lone surrogate)", "whole characters")
        self.position = match.end()
        self.skip()
        return text

    def word(self) -> Any:
        """A number, true, false or null."""
        number, word = _NUMBER.match(self.text, self.position), _WORD.match(self.text, self.position)
        if number is not None:
            value: Any = self.builder.number(number.group(), self.place)
            self.position = number.end()
        elif word is not None and word.group() in _WORDS:
            value = _WORDS[word.group()]
            self.position = word.end()
        else:
            raise self.unexpected("a value")
        self.skip()
        return value

    def unexpected(self, expected: str) -> InputError:
        word = _WORD.match(self.text, self.position)
        found = repr(word.group()) if word else repr(self.next) if self.next else "the end of the file"
        hint = "JSON has no comments" if found.startswith(("'//", "'#", "'/*")) else ""
        return self.builder.error(self.place, f"not valid JSON: {found} stands here", expected, hint)
