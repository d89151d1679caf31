"""Quantities as people write them, in and out of base units: bytes, bytes/s, FLOP, FLOP/s, seconds, USD/hour, counts.

Every conversion happens here, once; a factor such as 1024**3 stands nowhere else. Text is read exactly (as a fraction),
so `80 GiB` is 85899345920 and not a float near it.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction

KIB, MIB, GIB, TIB, PIB = (1024**power for power in range(1, 6))
KB, MB, GB, TB, PB = (1000**power for power in range(1, 6))

_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_QUOTIENT = re.compile(r"([0-9]{1,18}) */ *([0-9]{1,18})")
_LONGEST = 80
_USUAL_SPELLINGS = {"FLOPS": "FLOP/s", "FLOPs": "FLOP/s", "flops": "FLOP/s", "Bps": "B/s", "sec": "s", "seconds": "s"}


class Mistake(ValueError):
    """A value that cannot be taken: what is wrong, what was expected, the nearest valid spelling.

    It carries no place; whoever knows the file adds it. `at` is the place relative to the value under test.
    """

    def __init__(self, message: str, expected: str = "", hint: str = "", at: tuple[str | int, ...] = ()) -> None:
        super().__init__("; ".join(part for part in (message, expected and f"expected {expected}", hint) if part))
        self.message = message
        self.expected = expected
        self.hint = hint
        self.at = at


@dataclass(frozen=True)
class Dimension:
    """One kind of quantity: its units with their size in the base unit, an example, and the largest sane value."""

    name: str
    units: Mapping[str, Fraction]
    example: str
    largest: float
    unit_needed: bool = True
    whole: bool = False

    @property
    def expected(self) -> str:
        """What a user should write, as it stands after the word `expected` in a message."""
        return f"{self.name} such as {self.example}"


_BYTE_SIZES = {"B": 1, "kB": KB, "MB": MB, "GB": GB, "TB": TB, "PB": PB}
_BINARY_SIZES = {"KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "PiB": PIB}
_BYTE_UNITS = {unit: Fraction(size) for unit, size in (_BYTE_SIZES | _BINARY_SIZES).items()}
_TIME_SIZES = {"s": 1, "min": 60, "h": 3600, "hour": 3600, "hours": 3600, "day": 86400, "days": 86400}
_SHORT_TIMES = {"ms": 10**3, "us": 10**6, "µs": 10**6, "μs": 10**6, "ns": 10**9}
_PREFIXES = {"": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}


def _scaled(suffix: str, size: Fraction = Fraction(1)) -> dict[str, Fraction]:
    return {prefix + suffix: size * 1000**power for prefix, power in _PREFIXES.items()}


BYTES = Dimension("a memory size", _BYTE_UNITS, "80 GiB", 1e18, whole=True)
BANDWIDTH = Dimension(
    "a bandwidth",
    {**{f"{unit}/s": size for unit, size in _BYTE_UNITS.items()}, **_scaled("bit/s", Fraction(1, 8))},
    "25 GB/s or 200 Gbit/s",
    1e18,
)
FLOP_RATE = Dimension("a compute rate", _scaled("FLOP/s"), "989 TFLOP/s", 1e21)
FLOP = Dimension("an amount of compute", {**_scaled("FLOP"), "ZFLOP": Fraction(10**21)}, "6 TFLOP", 1e30)
SECONDS = Dimension(
    "a time",
    {unit: Fraction(size) for unit, size in _TIME_SIZES.items()}
    | {unit: Fraction(1, parts) for unit, parts in _SHORT_TIMES.items()},
    "10 us or 1.5 s",
    1e12,
)
PRICE = Dimension("a price", {"USD/hour": Fraction(1)}, "98.32 USD/hour", 1e9)
COUNT = Dimension(
    "a whole number",
    {"k": Fraction(10**3), "K": Fraction(10**3), "M": Fraction(10**6), "B": Fraction(10**9), "T": Fraction(10**12)},
    "4096, 7e9 or 7B",
    1e18,
    unit_needed=False,
    whole=True,
)
DIMENSIONS = (BYTES, BANDWIDTH, FLOP_RATE, FLOP, SECONDS, PRICE)


def parse_bytes(value: object, *, positive: bool = False) -> int:
    """Bytes of a memory size such as `80 GiB`, rounded to a whole byte; a bare number is refused. Raises Mistake."""
    return round(_quantity(value, BYTES, positive))


def parse_bandwidth(value: object, *, positive: bool = False) -> float:
    """Bytes/s of a bandwidth such as `2039 GB/s` or `200 Gbit/s`; a bare number is refused. Raises Mistake."""
    return float(_quantity(value, BANDWIDTH, positive))


def parse_flops_rate(value: object, *, positive: bool = False) -> float:
    """FLOP/s of a compute rate such as `989 TFLOP/s`; a bare number is refused. Raises Mistake."""
    return float(_quantity(value, FLOP_RATE, positive))


def parse_flop(value: object, *, positive: bool = False) -> float:
    """FLOP of an amount of compute such as `6 TFLOP`; a bare number is refused. Raises Mistake."""
    return float(_quantity(value, FLOP, positive))


def parse_seconds(value: object, *, positive: bool = False) -> float:
    """Seconds of a time such as `10 us`; a bare number is refused. Raises Mistake."""
    return float(_quantity(value, SECONDS, positive))


def parse_price(value: object, *, positive: bool = False) -> float:
    """US dollars per hour of a price such as `98.32 USD/hour`; a bare number is refused. Raises Mistake."""
    return float(_quantity(value, PRICE, positive))


def parse_count(value: object, *, positive: bool = False, largest: float = COUNT.largest) -> int:
    """A whole number from `7e9`, `7B`, `"1e9"` or 4096, at most `largest`. Raises Mistake."""
    number = _quantity(value, COUNT, positive, largest)
    if number.denominator != 1:
        raise Mistake(f"{shown(value)} is not a whole number", COUNT.expected)
    return int(number)


def parse_number(value: object, *, positive: bool = False, largest: float = 1e30) -> float:
    """A finite number without a unit, not negative and at most `largest`. Raises Mistake."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mistake(misfit(value), "a number")
    expected = "a number above 0" if positive else "a number, 0 or more"
    return float(_bounded(_exact(value, expected), value, expected, positive, largest))


def format_bytes(size: float) -> str:
    """Bytes in the largest binary unit that keeps at least 1 before the point: `79.1 GiB`, `512 B`, `-1.0 MiB`."""
    for unit, scale in (("PiB", PIB), ("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(size) >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} B"


def format_seconds(seconds: float) -> str:
    """Seconds with three significant digits: `1.23 s`, `4.5 ms`, `120 us`; from 120 s on in minutes, then hours."""
    for unit, scale, start in (("h", 3600.0, 7200.0), ("min", 60.0, 120.0), ("s", 1.0, 1.0), ("ms", 1e-3, 1e-3)):
        if abs(seconds) >= start:
            return f"{_digits(seconds / scale)} {unit}"
    return f"{_digits(seconds / 1e-6)} us" if seconds else "0 s"


def format_count(count: float) -> str:
    """A count with three significant digits: `6.74 B` (10^9), `350 M`, `4096` below ten thousand."""
    if abs(count) < 10_000:
        return f"{count:.0f}"
    return _scaled_text(count, (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)))


def format_bandwidth(bandwidth: float) -> str:
    """Bytes/s in decimal units with three significant digits: `2.04 TB/s`, `900 GB/s`."""
    return _scaled_text(bandwidth, (("TB/s", TB), ("GB/s", GB), ("MB/s", MB), ("kB/s", KB), ("B/s", 1)))


def format_flops_rate(rate: float) -> str:
    """FLOP/s in decimal units with three significant digits: `989 TFLOP/s`."""
    units = (("EFLOP/s", 1e18), ("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9), ("FLOP/s", 1))
    return _scaled_text(rate, units)


def format_price(price: float) -> str:
    """US dollars per hour: `98.32 USD/hour`."""
    return f"{price:.2f} USD/hour"


def nearest(word: str, choices: Iterable[str]) -> str:
    """`did you mean 'x'?` for the valid spelling closest to `word`, or the empty text when none is close."""
    known = list(choices)
    for choice in known:
        if choice.lower() == word.lower():
            return f"did you mean {choice!r}?"
    found = difflib.get_close_matches(word.lower(), [choice.lower() for choice in known], n=1, cutoff=0.6)
    return next((f"did you mean {choice!r}?" for choice in known if found and choice.lower() == found[0]), "")


def parse_ratio(value: object, *, largest: float) -> Fraction:
    """A bare number of at least 0, exactly; text may be a quotient such as `1/4`. Raises Mistake."""
    expected = "a number, or a quotient such as 1/4"
    text = value.strip() if isinstance(value, str) else ""
    quotient = _QUOTIENT.fullmatch(text)
    if quotient and int(quotient[2]):
        return _bounded(Fraction(int(quotient[1]), int(quotient[2])), value, expected, False, largest)
    if isinstance(value, str) and not (len(text) <= _LONGEST and _NUMBER.fullmatch(text)):
        raise Mistake(f"{shown(value)} is no number", expected)
    return _bounded(_quantity(value, COUNT, False, largest), value, expected, False, largest)


def shown(value: object) -> str:
    """The value as a message quotes it: at most 60 characters, true/false/null as in YAML."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, (dict, list, tuple)):
        return "the mapping" if isinstance(value, dict) else "the list"
    if isinstance(value, int) and abs(value) >= 10**60:
        return "a number of more than 60 digits"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def misfit(value: object) -> str:
    """What stands where something else was expected: `'abc' is text`, `a list stands here`, `no value is given`."""
    if value is None:
        return "no value is given"
    if isinstance(value, (dict, list, tuple)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} stands here"
    names: dict[type, str] = {bool: "a truth value", str: "text", int: "a number", float: "a number"}
    return f"{shown(value)} is {names.get(type(value), 'of another kind')}"


def _quantity(value: object, dimension: Dimension, positive: bool, largest: float | None = None) -> Fraction:
    """The exact value in base units, checked for sign and size."""
    limit = dimension.largest if largest is None else largest
    if isinstance(value, str):
        number = _from_text(value.strip(), dimension)
    elif isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Mistake(misfit(value), dimension.expected)
    elif dimension.unit_needed:
        raise Mistake(f"{shown(value)} has no unit", dimension.expected)
    else:
        number = _exact(value, dimension.expected)
    return _bounded(number, value, dimension.expected, positive, limit)


def _exact(value: float, expected: str) -> Fraction:
    if isinstance(value, float) and not math.isfinite(value):
        raise Mistake(f"{value} is not a finite number", expected)
    return Fraction(value)


def _from_text(text: str, dimension: Dimension) -> Fraction:
    match = _NUMBER.match(text) if len(text) <= _LONGEST else None
    if match is None:
        raise Mistake(f"{shown(text)} does not start with a number", dimension.expected)
    number, unit = _written(match.group(), dimension), text[match.end() :].strip()
    if not unit and not dimension.unit_needed:
        return number
    if unit not in dimension.units:
        raise _wrong_unit(text, unit, dimension)
    return number * dimension.units[unit]


def _written(number: str, dimension: Dimension) -> Fraction:
    """The number exactly; an exponent of more than three digits is refused before it costs memory."""
    exponent = re.split("[eE]", number)[-1].lstrip("+-0") if "e" in number.lower() else ""
    if len(exponent) > 3:
        raise Mistake(f"{shown(number)} is beyond every value taken here", dimension.expected)
    return Fraction(number)


def _wrong_unit(text: str, unit: str, dimension: Dimension) -> Mistake:
    """The unit is missing, spelled wrongly, or belongs to another dimension."""
    if not unit:
        return Mistake(f"{shown(text)} has no unit", dimension.expected)
    if not (unit[0].isalpha() or unit[0] == "$"):
        return Mistake(f"{shown(text)} is not written as a number and a unit", dimension.expected)
    other = next((known for known in DIMENSIONS if unit in known.units), None)
    if other is not None:
        return Mistake(f"{shown(text)} is {other.name}", dimension.expected)
    if not dimension.unit_needed:
        return Mistake(f"{shown(text)} is not a count", dimension.expected, nearest(unit, dimension.units))
    return Mistake(f"{shown(text)} has the unknown unit {unit!r}", dimension.expected, _nearest_unit(unit, dimension))


def _nearest_unit(unit: str, dimension: Dimension) -> str:
    """The hint for a misspelled unit; `Gb/s`, `Gbps`, `TFLOPS` and `$/h` are read as what people mean by them."""
    bits = re.fullmatch(r"([kKMGTP]?)b(?:/s|ps)", unit)
    if bits and dimension is BANDWIDTH:
        return f"did you mean '{bits.group(1).replace('K', 'k')}bit/s'?"
    for spelling, right in _USUAL_SPELLINGS.items():
        meant = unit[: -len(spelling)] + right
        if unit.endswith(spelling) and meant in dimension.units:
            return f"did you mean {meant!r}?"
    only = next(iter(dimension.units)) if len(dimension.units) == 1 else ""
    return nearest(unit, dimension.units) or (only and f"did you mean {only!r}?")


def _bounded(number: Fraction, value: object, expected: str, positive: bool, largest: float) -> Fraction:
    if number < 0:
        raise Mistake(f"{shown(value)} is negative", expected)
    if positive and number == 0:
        raise Mistake(f"{shown(value)} is zero", expected)
    if number > largest:
        raise Mistake(f"{shown(value)} is beyond the largest value taken here, {largest:g}", expected)
    return number


def _digits(number: float) -> str:
    """Three significant digits without an exponent and without trailing zeros after the point."""
    decimals = max(0, 2 - math.floor(math.log10(abs(number)))) if number else 0
    text = f"{number:.{min(decimals, 12)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _scaled_text(number: float, units: tuple[tuple[str, float], ...]) -> str:
    for unit, scale in units:
        if abs(number) >= scale:
            return f"{_digits(number / scale)} {unit}"
    return f"{_digits(number)} {units[-1][0]}"
