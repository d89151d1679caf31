"""Reads YAML text as people mean it: the core schema of YAML 1.2, and nothing that executes, hides or multiplies.

Only `true` and `false` are truth values (`no`, `on` stay text), `1e9` is a number, `1:30` and dates stay text.
Refused: duplicate and non-text keys, tags, merge keys, several documents, `.nan`, `.inf`, recursive anchors and
aliases that multiply.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from planner.document_builder import MAXIMUM_DEPTH, Builder, Place
from planner.errors import InputError
from planner.units import shown

MAXIMUM_ALIASED_NODES = 10_000
LONGEST_NAME = 60  # characters of an alias that a message quotes

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_BASED_NUMBER = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def build_from_yaml(text: str, builder: Builder) -> None:
    """Feeds one YAML document to `builder`. Raises InputError with the place of the first mistake."""
    try:
        _Reader(builder).read(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark else (0, 0)
        raise _syntax_error(str(error.problem or error.context), text, builder.file, place) from None
    except yaml.YAMLError as error:
        raise InputError(f"not valid YAML: {error}", builder.file) from None


def _syntax_error(problem: str, text: str, file: str, place: Place) -> InputError:
    if "nesting" in problem:
        return InputError("nested too deeply", file, *place, expected=f"at most {MAXIMUM_DEPTH} levels")
    return InputError(f"not valid YAML: {problem}", file, *place, hint=_syntax_hint(text, place) or _advice(problem))


def _syntax_hint(text: str, place: Place) -> str:
    """What helps where a tab indents a line or a reserved character starts a value."""
    line = next(iter(text.splitlines()[place[0] - 1 : place[0]]), "") if place[0] else ""
    indent = line[: len(line) - len(line.lstrip())]
    if "\t" in indent:
        return "indent with spaces, not tabs"
    return "put the text in quotes" if line[place[1] - 1 : place[1]] in ("@", "`", "%") else ""


def _advice(problem: str) -> str:
    """What usually helps where the parser does not say what it expected."""
    if re.search(r"\bexpected\b", problem):
        return ""
    return "close every quote and bracket" if "unexpected end" in problem else "put text with such characters in quotes"


class _Reader:
    """Turns parser events into builder calls without recursion; keeps what anchors stand for."""

    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.anchors: dict[str, tuple[Any, int]] = {}
        self.open_anchors: list[tuple[str | None, int]] = []
        self.aliased = 0
        self.documents = 0

    def read(self, events: Iterator[Any]) -> None:
        for event in events:
            place = (event.start_mark.line + 1, event.start_mark.column + 1)
            if isinstance(event, yaml.NodeEvent):
                self.node(event, place)
            elif isinstance(event, yaml.CollectionEndEvent):
                self.close()
            elif isinstance(event, yaml.DocumentStartEvent):
                self.document(place)

    def document(self, place: Place) -> None:
        self.documents += 1
        if self.documents > 1:
            raise self.builder.error(place, "a second document starts here", "one document in a file")

    def node(self, event: Any, place: Place) -> None:
        if getattr(event, "tag", None):
            raise self.builder.error(place, f"the tag {shown(event.tag)} is not taken", "plain values without tags")
        if isinstance(event, yaml.AliasEvent):
            self.alias(str(event.anchor), place)
        elif isinstance(event, yaml.ScalarEvent):
            self.scalar(event, place)
        else:
            self.open(event, place)

    def scalar(self, event: Any, place: Place) -> None:
        value = event.value if event.style else self.resolved(event.value, place)
        if self.builder.expects_key:
            self.key(value, event, place)
            return
        if event.anchor:
            self.anchors[event.anchor] = (value, 1)
        self.builder.value(value, place)

    def key(self, value: Any, event: Any, place: Place) -> None:
        if event.anchor:
            raise self.builder.error(place, "an anchor on a key is not taken", "a plain key")
        if not isinstance(value, str):
            hint = f'write "{event.value}"' if event.value else ""
            raise self.builder.error(place, f"the key {event.value or 'of nothing'} is not text", "text as key", hint)
        if value == "<<" and not event.style:
            raise self.builder.error(place, "the merge key << is not taken", "the merged keys written out")
        self.builder.key(value, place)

    def open(self, event: Any, place: Place) -> None:
        if self.builder.expects_key:
            raise self.builder.error(place, "a list or mapping stands as a key", "text as key")
        self.open_anchors.append((event.anchor, self.builder.nodes))
        if event.anchor:
            self.anchors.pop(event.anchor, None)
        self.builder.open({} if isinstance(event, yaml.MappingStartEvent) else [], place)

    def close(self) -> None:
        anchor, nodes_before = self.open_anchors.pop()
        container = self.builder.close()
        if anchor:
            self.anchors[anchor] = (container, self.builder.nodes - nodes_before)

    def alias(self, name: str, place: Place) -> None:
        short = name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]}..."
        if self.builder.expects_key:
            raise self.builder.error(place, f"the alias *{short} stands as a key", "a plain key")
        if any(name == anchor for anchor, _ in self.open_anchors):
            raise self.builder.error(place, f"the alias *{short} contains itself", "an alias of something complete")
        if name not in self.anchors:
            raise self.builder.error(place, f"the alias *{short} has no anchor before it", f"&{short} further up")
        value, size = self.anchors[name]
        self.aliased += size
        if self.aliased > MAXIMUM_ALIASED_NODES:
            limit = f"at most {MAXIMUM_ALIASED_NODES} values through aliases"
            raise self.builder.error(place, "the aliases multiply the document", limit)
        self.builder.value(value, place)
        self.builder.nodes += size - 1

    def resolved(self, text: str, place: Place) -> Any:
        """The value of a plain scalar."""
        if text in _WORDS:
            return _WORDS[text]
        if _NUMBER.fullmatch(text):
            return self.builder.number(text, place)
        if len(text) <= 32 and _BASED_NUMBER.fullmatch(text):
            return int(text, 0)
        if _NOT_FINITE.fullmatch(text):
            raise self.builder.error(place, f"{text} is not a finite number", "a finite number")
        return text
