"""Builds plain data from a stream of keys, values and containers, and remembers where each of them stands.

Both readers of text (YAML, JSON) feed it, so duplicate keys, depth and numbers are judged by one rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from planner.errors import InputError
from planner.units import shown

Path = tuple["str | int", ...]
Place = tuple[int, int]

MAXIMUM_DEPTH = 64
# Values and containers of one document: a file of many times what people write costs neither minutes nor gibibytes.
MAXIMUM_NODES = 50_000
_LONGEST_NUMBER = 100
_LONGEST_KEY = 200


@dataclass
class _Frame:
    container: dict[str, Any] | list[Any]
    path: Path
    key: str | None = None


class Builder:
    """Receives `key`, `value`, `open`, `close` in document order; afterwards `data`, `marks` and `key_marks` are set.

    `marks` holds the place of each value, `key_marks` that of each mapping key, both by path; places are
    (line, column) from 1. `nodes` counts every value and container so far. Raises InputError.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self.data: Any = None
        self.marks: dict[Path, Place] = {}
        self.key_marks: dict[Path, Place] = {}
        self.nodes = 0
        self._frames: list[_Frame] = []

    @property
    def expects_key(self) -> bool:
        """Whether the next thing in the document is a mapping key."""
        return bool(self._frames) and isinstance(self._frames[-1].container, dict) and self._frames[-1].key is None

    @property
    def depth(self) -> int:
        """The number of containers that are open."""
        return len(self._frames)

    @property
    def path(self) -> Path:
        """The path of the value that comes next; before a key, that of the mapping."""
        if not self._frames:
            return ()
        frame = self._frames[-1]
        step = len(frame.container) if isinstance(frame.container, list) else frame.key
        return frame.path if step is None else (*frame.path, step)

    def error(self, place: Place, message: str, expected: str = "", hint: str = "") -> InputError:
        """The InputError for this file at `place`, naming the path reached so far."""
        return InputError(message, self.file, place[0], place[1], dotted(self.path), expected, hint)

    def key(self, name: str, place: Place) -> None:
        """The key of the next value; a key the mapping already has is refused with both places."""
        frame = self._frames[-1]
        path = (*frame.path, name)
        first = self.key_marks.get(path)
        if first is not None:
            message = f"the key {shown(name)} stands twice, first at {first[0]}:{first[1]}"
            raise InputError(message, self.file, *place, path=dotted(path), expected="each key once")
        frame.key = name
        self.key_marks[path] = place

    def value(self, value: Any, place: Place) -> None:
        """A scalar, or a container that is complete already."""
        self.nodes += 1
        if self.nodes > MAXIMUM_NODES:
            raise InputError("too many values", self.file, *place, expected=f"at most {MAXIMUM_NODES} in a file")
        self.marks[self.path] = place
        if not self._frames:
            self.data = value
            return
        frame = self._frames[-1]
        if isinstance(frame.container, list):
            frame.container.append(value)
        elif frame.key is not None:
            frame.container[frame.key] = value
            frame.key = None

    def open(self, container: dict[str, Any] | list[Any], place: Place) -> None:
        """An empty mapping or list whose content follows until `close`."""
        if self.depth >= MAXIMUM_DEPTH:
            raise InputError("nested too deeply", self.file, *place, expected=f"at most {MAXIMUM_DEPTH} levels")
        path = self.path
        self.value(container, place)
        self._frames.append(_Frame(container, path))

    def close(self) -> Any:
        """Ends the container opened last and returns it."""
        return self._frames.pop().container

    def number(self, text: str, place: Place) -> int | float:
        """The finite number that a decimal literal stands for; whole literals give an int."""
        if len(text) > _LONGEST_NUMBER:
            raise self.error(place, f"a number of {len(text)} characters", f"at most {_LONGEST_NUMBER} characters")
        if text.lstrip("+-").isdigit():
            return int(text)
        number = float(text)
        if not math.isfinite(number):
            raise self.error(place, f"{text} is too large for a number", "a number below 1e308")
        return number


def dotted(path: Path) -> str:
    """The path as messages name it: `training.sequence_length`, `gpus[3].name`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{_visible(step)}" for step in path).removeprefix(".")


def _visible(name: str) -> str:
    """The key itself, in quotes where it is empty or would not print, cut where it is very long."""
    return name if name and name.isprintable() and len(name) <= _LONGEST_KEY else shown(name)
