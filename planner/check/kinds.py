"""Whether a JSON value passes as a kind, as pydantic's lax mode decides it, and what it becomes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from planner.check.inventory import Key
from planner.units import shown

TRUE, FALSE = ("1", "on", "t", "true", "y", "yes"), ("0", "off", "f", "false", "n", "no")
WHOLE = re.compile(r"[-+]?\d+(?:_\d+)*(?:\.0*)?")


class Misfit(ValueError):
    """The value does not pass; the text says what would."""


class TooLarge(Misfit):
    """The number passes the parser and no counter of torch holds it."""


def fit(key: Key, value: Any) -> Any:
    """What `value` becomes as `key`; None passes where the key is optional. Raises Misfit."""
    if value is None and key.optional:
        return None
    if isinstance(value, bool) and key.refuses_booleans:
        raise Misfit(_expected(key))
    found = KINDS[key.kind](key, value)
    if isinstance(found, (int, float)) and not isinstance(found, bool):
        _in_range(key, found)
    return found


def _boolean(key: Key, value: Any) -> bool:
    """true or false, also as text or as 1 and 0."""
    if isinstance(value, bool):
        return value
    word = value.lower() if isinstance(value, str) else str(int(value)) if value in (0, 1) else ""
    if isinstance(value, (str, int, float)) and word in (*TRUE, *FALSE):
        return word in TRUE
    raise Misfit(_expected(key))


def _integer(key: Key, value: Any) -> int:
    """A whole number, also as 5e8 or as digits in quotes."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    if isinstance(value, str) and WHOLE.fullmatch(value.strip()):
        return int(value.strip().partition(".")[0])
    raise Misfit(_expected(key))


def _number(key: Key, value: Any) -> float:
    """A number, also in quotes."""
    try:
        found = float(value) if isinstance(value, (bool, int, float, str)) else None
    except (ValueError, OverflowError):
        found = None
    if found is None or (key.finite and not math.isfinite(found)):
        raise Misfit(_expected(key))
    return found


def _text(key: Key, value: Any) -> str:
    """Text as it stands."""
    if isinstance(value, str):
        return value
    raise Misfit(_expected(key))


def _choice(key: Key, value: Any) -> Any:
    """One of the key's values."""
    known = {str(item).lower() if key.any_case else item: item for item in key.values}
    word = value.lower() if key.any_case and isinstance(value, str) else value
    if isinstance(word, str) and word in known:
        return known[word]
    raise Misfit(_expected(key))


def _numbered(key: Key, value: Any) -> int:
    """One of the key's whole numbers."""
    found = _integer(key, value)
    if found in key.values:
        return found
    raise Misfit(_expected(key))


def _list(key: Key, value: Any) -> list[Any]:
    """A list of anything."""
    if isinstance(value, list):
        return value
    raise Misfit(_expected(key))


def _texts(key: Key, value: Any) -> list[Any]:
    """A list of texts; a single one where the key takes it."""
    found = [value] if key.single and isinstance(value, str) else value
    if isinstance(found, list) and all(isinstance(item, str) for item in found):
        return found
    raise Misfit(_expected(key))


def _choices(key: Key, value: Any) -> list[Any]:
    """A list of the key's values."""
    if isinstance(value, list) and all(item in key.values for item in value):
        return value
    raise Misfit(_expected(key))


def _mapping(key: Key, value: Any) -> dict[str, Any]:
    """Keys and values."""
    if isinstance(value, dict):
        return value
    raise Misfit(_expected(key))


def _auto_or_integer(key: Key, value: Any) -> Any:
    """ "auto" or a whole number that is no text."""
    if value == "auto":
        return value
    if isinstance(value, str):
        raise Misfit(_expected(key))
    return _integer(key, value)


def _any(key: Key, value: Any) -> Any:
    """Anything."""
    return value


def _nothing(key: Key, value: Any) -> Any:
    """No value that JSON can hold."""
    raise Misfit(_expected(key))


KINDS: Mapping[str, Callable[[Key, Any], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "number": _number,
    "text": _text,
    "choice": _choice,
    "choice of integers": _numbered,
    "list": _list,
    "list of text": _texts,
    "list of choices": _choices,
    "mapping": _mapping,
    "block": _mapping,
    "auto or integer": _auto_or_integer,
    "any": _any,
    "nothing": _nothing,
}
EXPECTED: Mapping[str, str] = {
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "text": "text",
    "list": "a list",
    "list of text": "a list of texts",
    "mapping": "a block",
    "block": "a block",
    "auto or integer": 'a whole number or "auto"',
    "nothing": "no value: leave the key out",
}


def _expected(key: Key) -> str:
    """What the key takes, in words."""
    if key.values:
        several = "a list of " if key.kind.startswith("list") else "one of "
        return several + ", ".join(str(item) for item in key.values)
    bounds = [(key.at_least, "at least"), (key.above, "above"), (key.at_most, "at most"), (key.below, "below")]
    return " ".join(
        [EXPECTED[key.kind], " and ".join(f"{word} {bound:g}" for bound, word in bounds if bound is not None)]
    ).strip()


def _in_range(key: Key, value: float) -> None:
    """Raises Misfit where the number lies outside the key's range; no comparison with NaN holds."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise TooLarge("a number of at most 63 bits")
    low = (key.at_least is None or value >= key.at_least) and (key.above is None or value > key.above)
    high = (key.at_most is None or value <= key.at_most) and (key.below is None or value < key.below)
    if not (low and high):
        raise Misfit(_expected(key))


def quoted(value: Any) -> str:
    """The value as a sentence names it."""
    return shown(value)
