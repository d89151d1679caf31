"""What parts of each kind can be: ranges from `catalogs/plausible.yaml`, and how far a value lies outside."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.resources import files
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from planner.catalog_check.catalog import ENVELOPE
from planner.catalog_check.findings import Finding, Place
from planner.fields import Name, Record
from planner.reading import read_document, validated
from planner.units import (
    Mistake,
    parse_bandwidth,
    parse_bytes,
    parse_flops_rate,
    parse_price,
    parse_seconds,
    shown,
)

# A value that is beyond the range by more than this multiple is an error; by less, a warning.
FAR = 2.5
_PARSERS = (parse_bytes, parse_bandwidth, parse_flops_rate, parse_seconds, parse_price)
_SLIPS = (
    (1000.0, "a thousandth of it is plausible: check the unit's prefix"),
    (1 / 1000.0, "a thousand times it is plausible: check the unit's prefix"),
    (8.0, "an eighth of it is plausible: bytes for bits?"),
    (1 / 8.0, "eight times it is plausible: bits for bytes?"),
    (2.0, "half of it is plausible: with sparsity, or both ways together?"),
    (0.5, "twice it is plausible: one of two?"),
)


def _number(value: object) -> object:
    """A bare number, or a quantity with any unit of the catalogs in base units."""
    if not isinstance(value, str):
        return value
    for parse in _PARSERS:
        try:
            return float(parse(value))
        except Mistake:
            continue
    raise Mistake(f"{shown(value)} is no quantity", "a number and a unit")


Quantity = Annotated[float, BeforeValidator(_number)]


class Bounds(Record):
    """A range, both ends included, of a value in base units; `unit` says what bare numbers count."""

    low: Quantity
    high: Quantity
    unit: str = ""
    source: Name | None = None

    def admits(self, value: float) -> bool:
        """Whether `value` lies in the range."""
        return self.low <= value <= self.high


def _ordered(bounds: Bounds) -> Bounds:
    if bounds.low > bounds.high:
        raise Mistake(f"{bounds.low} to {bounds.high} is no range", "low <= high")
    return bounds


Range = Annotated[Bounds, AfterValidator(_ordered)]


class Steps(Record):
    """Values of which one must be met, to within `tolerance` of it."""

    values: tuple[float, ...]
    tolerance: float
    unit: str
    source: Name

    def admits(self, value: float) -> bool:
        """Whether `value` is near one of them."""
        return any(abs(value / step - 1) <= self.tolerance for step in self.values)


class Architecture(Record):
    """What GPUs of one architecture can be; `matrix_rate` is the dense 16-bit peak, one process's share of the card."""

    vendor: Name
    nominal_memory: Range
    memory_bandwidth: Range
    matrix_rate: Range
    rate_over_bandwidth: Range
    power_watts: Range
    rate_over_power: Range
    price_over_rate: Range
    fp32_steps: tuple[float, ...]
    host_links: tuple[Name, ...]
    scale_up_links: tuple[Name, ...] = ()
    source: Name


class LinkFamily(Record):
    """What links whose name starts alike can be."""

    bandwidth: Range
    latency: Range
    source: Name


class Envelope(Record):
    """`catalogs/plausible.yaml`."""

    sources: dict[str, str]
    gpus: dict[str, Range]
    peaks: dict[str, Steps]
    scale_up_shares: Steps
    architectures: dict[str, Architecture]
    shares: dict[str, Range]
    links: dict[str, LinkFamily]
    nodes: dict[str, Range]
    optimizers: dict[str, Range]
    effects: dict[str, Range]
    runtimes: dict[str, Range]
    coefficients: dict[str, Range] = Field(default_factory=dict)


@lru_cache(maxsize=1)
def envelope() -> Envelope:
    """The ranges that ship."""
    text = (files("catalogs") / ENVELOPE).read_text(encoding="utf-8")
    return validated(Envelope, read_document(f"catalogs/{ENVELOPE}", text=text))


def judged(place: Place, value: float, bounds: Bounds, what: str, show: Callable[[float], str] = str) -> list[Finding]:
    """At most one finding, where `value` lies outside; `what` names it, `show` writes it with its unit."""
    if bounds.admits(value):
        return []
    told = [f"{item:.4g}" if show is str else show(item) for item in (value, bounds.low, bounds.high)]
    unit = f" {bounds.unit}" if bounds.unit else ""
    message = f"{what} is {told[0]}{unit}, plausible is {told[1]} to {told[2]}"
    far = value > bounds.high * FAR or value < bounds.low / FAR
    return [place.finding("error" if far else "warn", message, slip(value, bounds))]


def slip(value: float, bounds: Bounds) -> str:
    """The mistake that would explain a value outside the range."""
    if value < 0:
        return "nothing in a catalog is negative"
    return next((text for factor, text in _SLIPS if bounds.admits(value / factor)), "")


def met(place: Place, value: float, steps: Steps, what: str) -> list[Finding]:
    """At most one finding, where `value` is near none of the steps."""
    if steps.admits(value):
        return []
    known = " or ".join(f"{step:g}" for step in steps.values)
    message = f"{what} is {value:.4g} {steps.unit}, plausible is {known}"
    near = min(steps.values, key=lambda step: abs(value / step - 1))
    far = not 1 / FAR <= value / near <= FAR
    hints = (text for factor, text in _SLIPS if steps.admits(value / factor))
    return [place.finding("error" if far else "warn", message, next(hints, ""))]
