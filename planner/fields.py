"""Field types for models of files: a quantity is written with its unit and held in base units; names; small numbers.

A model field annotated `Bytes` takes `80 GiB` and holds 85899345920. All but `ZeroOrMore...` must be above zero.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, core_schema

from planner.units import (
    BANDWIDTH,
    BYTES,
    FLOP_RATE,
    PRICE,
    SECONDS,
    Dimension,
    Mistake,
    misfit,
    parse_bandwidth,
    parse_bytes,
    parse_count,
    parse_flops_rate,
    parse_number,
    parse_price,
    parse_ratio,
    parse_seconds,
    shown,
)

_LONGEST_NAME = 200
_PORTION_EXPECTED = "a share such as 1 % or 0.01"
_NUMBER_PATTERN = r"^\s*\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"


class Record(BaseModel):
    """A mapping of a file: frozen, and unknown keys are mistakes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def name_of(value: object) -> str:
    """The name as it stands; text that is empty, very long or more than one line is refused. Raises Mistake."""
    if not isinstance(value, str):
        raise Mistake(misfit(value), "a name", 'put it in quotes: "..."' if isinstance(value, (int, float)) else "")
    if not value.strip() or len(value) > _LONGEST_NAME or not value.isprintable():
        raise Mistake(f"{shown(value)} is not a name", f"one line of 1 to {_LONGEST_NAME} characters")
    return value


def seconds_of(value: object) -> float:
    """Seconds above zero, as a bare number or with a unit. Raises Mistake."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return parse_number(value, positive=True, largest=SECONDS.largest)
    return parse_seconds(value, positive=True)


def portion_of(value: object) -> Fraction:
    """A share of at least 0 and below 1, written as `1 %` or as 0.01. Raises Mistake."""
    percent = isinstance(value, str) and value.rstrip().endswith("%")
    number = value.rstrip()[:-1] if isinstance(value, str) and percent else value
    try:
        found = parse_ratio(number if isinstance(number, bool) else str(number), largest=100)
    except Mistake:
        raise Mistake(f"{shown(value)} is not a share", _PORTION_EXPECTED) from None
    found = found / 100 if percent else found
    if found >= 1:
        raise Mistake(f"{shown(value)} is not a share below 1", _PORTION_EXPECTED)
    return found


def bytes_or_portion_of(value: object) -> int | Fraction:
    """A memory size in bytes, or a share such as `5 %`. Raises Mistake."""
    if isinstance(value, str) and value.rstrip().endswith("%"):
        return portion_of(value)
    return parse_bytes(value, positive=True)


@dataclass(frozen=True, eq=False)
class Parsed:
    """Annotation that reads a value with `parse` before the field's own type sees it, and shows `schema` for it."""

    parse: Callable[[Any], Any]
    schema: Mapping[str, Any]

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self.parse, handler(source))

    def __get_pydantic_json_schema__(self, _core: CoreSchema, _handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return dict(self.schema)


def quantity(parse: Callable[[Any], float], dimension: Dimension) -> Parsed:
    """A quantity of one dimension, written with its unit."""
    units = "|".join(sorted(dimension.units, key=len, reverse=True))
    pattern = rf"{_NUMBER_PATTERN}\s*({units})\s*$"
    return Parsed(parse, {"type": "string", "pattern": pattern, "examples": [dimension.example.split(" or ")[0]]})


def counted(largest: int, *, least: int = 1) -> Parsed:
    """A whole number from `least` (0 or 1) to `largest`: `Annotated[int, counted(1024)]`."""
    number = {"type": "number", "minimum": least, "maximum": largest}
    text = {"type": "string", "pattern": rf"{_NUMBER_PATTERN}\s*[kKMBT]?\s*$"}
    return Parsed(partial(parse_count, positive=least > 0, largest=largest), {"anyOf": [number, text]})


def numbered(largest: float, *, positive: bool = True) -> Parsed:
    """A bare number of at most `largest`, above zero if `positive`: `Annotated[float, numbered(1.0)]`."""
    bound = "exclusiveMinimum" if positive else "minimum"
    schema = {"type": "number", bound: 0, "maximum": largest}
    return Parsed(partial(parse_number, positive=positive, largest=largest), schema)


_PORTION_TEXT = {"type": "string", "pattern": _NUMBER_PATTERN + r"\s*%\s*$", "examples": ["1 %"]}
_SECONDS_TEXT = {"type": "string", "examples": ["10 s"]}

Bytes = Annotated[int, quantity(partial(parse_bytes, positive=True), BYTES)]
ZeroOrMoreBytes = Annotated[int, quantity(parse_bytes, BYTES)]
Bandwidth = Annotated[float, quantity(partial(parse_bandwidth, positive=True), BANDWIDTH)]
FlopRate = Annotated[float, quantity(partial(parse_flops_rate, positive=True), FLOP_RATE)]
Seconds = Annotated[float, quantity(partial(parse_seconds, positive=True), SECONDS)]
SecondsOrNumber = Annotated[
    float, Parsed(seconds_of, {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, _SECONDS_TEXT]})
]
Portion = Annotated[
    Fraction,
    Parsed(portion_of, {"anyOf": [{"type": "number", "minimum": 0, "exclusiveMaximum": 1}, _PORTION_TEXT]}),
]
BytesOrPortion = Annotated[
    int | Fraction, Parsed(bytes_or_portion_of, {"type": "string", "examples": ["5 GiB", "5 %"]})
]
Price = Annotated[float, quantity(partial(parse_price, positive=True), PRICE)]
Count = Annotated[int, counted(10**18)]
ZeroOrMoreCount = Annotated[int, counted(10**18, least=0)]
Number = Annotated[float, numbered(1e30)]
Name = Annotated[str, Parsed(name_of, {"type": "string", "minLength": 1, "maxLength": _LONGEST_NAME})]
