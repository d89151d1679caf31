"""Files of coefficients: a unit and a source for each, shares and outlooks in order, curves that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from planner.catalog_check.catalog import Catalog, Part, mapping
from planner.catalog_check.envelope import Envelope, judged
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.names import hardware_entries, known
from planner.reading import nearest
from planner.units import Mistake, parse_flops_rate, parse_seconds

_OUTLOOK = ("low", "typical", "high")
_PAIRED = ("forward", "backward")
# What the two numbers of a pair are, by the first key of their path.
_PAIRS = {
    "curves": ("efficiency", "half_sequence"),
    "passes": ("pass_bytes", "pass_kernels"),
    "losses": ("pass_bytes", "pass_kernels"),
    "scores": ("pass_bytes", "pass_kernels"),
}


def coefficient_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Every file of coefficients."""
    for part in catalog.of("coefficients"):
        sources = mapping(part.content.get("sources"))
        for key, value in part.content.items():
            if key != "sources":
                yield from _walk(envelope, part.place / key, value, sources, False)
        yield from _curves(envelope, catalog, part)


def _walk(
    envelope: Envelope, place: Place, value: Any, sources: Mapping[str, Any], has_unit: bool
) -> Iterator[Finding]:
    """A value and everything inside it."""
    if not isinstance(value, dict):
        yield from _figure(envelope, place, value)
        return
    has_unit = has_unit or "unit" in value
    yield from _source(place, value, sources)
    yield from _coefficient(place, value, has_unit)
    yield from _outlook(envelope, place, value)
    yield from _power(envelope, place, value)
    for key, inner in value.items():
        yield from _walk(envelope, place / key, inner, sources, has_unit)


def _source(place: Place, value: Mapping[str, Any], sources: Mapping[str, Any]) -> Iterator[Finding]:
    """A source that is one word is a key of the file's list."""
    name = value.get("source")
    if isinstance(name, str) and sources and " " not in name and "/" not in name:
        yield from known(place / "source", name, sources, "source")
    elif "source" in value and not (isinstance(name, str) and name.strip()):
        yield (place / "source").error("a source is a text")


def _coefficient(place: Place, value: Mapping[str, Any], has_unit: bool) -> Iterator[Finding]:
    """What has a `value` has a unit and a source."""
    if "value" not in value:
        return
    bare = isinstance(value["value"], (int, float))
    if bare and not has_unit:
        yield (place / "value").error("a number without unit", "unit: what it counts")
    if "source" not in value:
        yield place.error("a coefficient without source", "source: where it is from")
    if bare and value["value"] < 0:
        yield (place / "value").error(f"{value['value']} is negative")


def _outlook(envelope: Envelope, place: Place, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Low, typical and high stand in order, either way; without a typical value they are multiples around 1."""
    given = [value[name] for name in _OUTLOOK if isinstance(value.get(name), (int, float))]
    if len(given) == len(_OUTLOOK):
        if given not in (sorted(given), sorted(given, reverse=True)):
            yield (place / "typical").error(f"{', '.join(map(str, given))} are not in order", "low, typical, high")
        if min(given) < 0:
            yield place.error(f"{min(given)} is negative")
    elif len(given) == 2 and "typical" not in value:
        low, high = envelope.coefficients["outlook_low"], envelope.coefficients["outlook_high"]
        yield from judged(place / "low", value["low"], low, "the low time")
        yield from judged(place / "high", value["high"], high, "the high time")


def _power(envelope: Envelope, place: Place, value: Mapping[str, Any]) -> Iterator[Finding]:
    """Peak and power of a measured card belong together."""
    if isinstance(value.get("watts"), (int, float)) and "peak" in value:
        try:
            rate = parse_flops_rate(value["peak"])
        except Mistake as mistake:
            yield (place / "peak").error(mistake.message, mistake.expected)
            return
        bounds = envelope.coefficients["rate_over_power"]
        yield from judged(place / "peak", rate / max(value["watts"], 1e-9), bounds, "peak over power")


def _figure(envelope: Envelope, place: Place, value: Any) -> Iterator[Finding]:
    """A number, or a list of them, by the name of its key; pairs by what the file says they are."""
    name = str(place.path[-1])
    pair = isinstance(value, list) and len(value) == 2 and all(isinstance(item, (int, float)) for item in value)
    if name in _PAIRED and pair:
        first, second = _PAIRS.get(str(place.path[0]), _PAIRS["scores"])
        yield from _number(envelope, place / 0, value[0], first)
        yield from _number(envelope, place / 1, value[1], second)
        if first == "pass_bytes" and 0 < float(value[0]) < 1:
            yield (place / 0).error(f"{value[0]} bytes for each element", "0, or 1 and more")
        if second == "pass_kernels" and isinstance(value[1], float):
            yield (place / 1).error(f"{value[1]} kernels", "a whole number")
        return
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from _number(envelope, place / index, item, name)
        if isinstance(item, (int, float)) and item < 0:
            yield (place / index).error(f"{item} is negative")
    if not isinstance(value, list):
        yield from _number(envelope, place, value, name)


def _number(envelope: Envelope, place: Place, value: Any, name: str) -> Iterator[Finding]:
    """One number, or a time with its unit, within the range that `name` has."""
    bounds = envelope.coefficients.get(name)
    if bounds is None or isinstance(value, (bool, list, dict)) or value is None:
        return
    try:
        number = parse_seconds(value) if isinstance(value, str) else float(value)
    except Mistake as mistake:
        yield place.error(mistake.message, mistake.expected)
        return
    yield from judged(place, number, bounds, name)


def _rising(envelope: Envelope, place: Place, curve: Mapping[str, Any]) -> Iterator[Finding]:
    """A collective of more GPUs has no shorter fixed time, as far as fits go."""
    bounds = envelope.coefficients["latency_step"]
    for collective, sizes in curve.items():
        latencies = {size: mapping(fit).get("latency") for size, fit in mapping(sizes).items()}
        fits = [(size, time) for size, time in latencies.items() if isinstance(time, (int, float)) and time > 0]
        for (_, fewer), (size, more) in zip(fits, fits[1:], strict=False):
            at = place / collective / size / "latency"
            yield from judged(at, more / fewer, bounds, "the fixed time")


def _curves(envelope: Envelope, catalog: Catalog, part: Part) -> Iterator[Finding]:
    """GPUs, architectures and links follow curves that are there."""
    curves, place = mapping(part.content.get("curves")), part.place
    for key, curve in curves.items():
        yield from _rising(envelope, place / "curves" / key, mapping(curve))
    for key, entry in mapping(part.content.get("gpus")).items():
        yield from known(place / "gpus" / key, key, catalog.names("gpus"), "GPU")
        yield from known(place / "gpus" / key / "curve", mapping(entry).get("curve"), curves, "curve")
    for group in ("architectures", "curve_of_gpu", "curve_of_link", "curve_of_mesh", "curve_of_pcie"):
        for key, name in mapping(part.content.get(group)).items():
            yield from known(place / group / key, name, curves, "curve")
    for key in mapping(part.content.get("curve_of_gpu")):
        yield from known(place / "curve_of_gpu" / key, key, catalog.names("gpus"), "GPU")
    yield from _networks(catalog, part)


def _networks(catalog: Catalog, part: Part) -> Iterator[Finding]:
    """Every link between nodes has a network that lists it, whose latencies and shares it follows."""
    networks = mapping(part.content.get("networks"))
    listed = [str(link) for network in networks.values() for link in mapping(network).get("links") or ()]
    for place, _, node in hardware_entries(catalog, "nodes") if networks else ():
        if node.nic_link and node.nic_link not in listed:
            message = f"no network lists the link {node.nic_link}: it follows {part.content.get('network_of_other')}"
            yield (place / "nic_link").warn(message, nearest(node.nic_link, sorted(listed)))
