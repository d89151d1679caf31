"""GPUs: each figure within what its architecture can be, and figures in proportion to each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.envelope import Architecture, Bounds, Envelope, Steps, judged, met
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.names import hardware_entries
from planner.hardware_catalog import EfficiencyEntry, GpuEntry, RangeEntry
from planner.units import GB, GIB, format_bandwidth, format_bytes, format_flops_rate, format_seconds

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(?:GB|GiB)")


def gpu_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Everything about the GPUs and the efficiencies beside them."""
    for place, _, gpu in hardware_entries(catalog, "gpus"):
        yield from _memory(envelope, place, gpu)
        yield from _peaks(envelope, place, gpu)
        yield from _scale_up(catalog, envelope, place, gpu)
        architecture = envelope.architectures.get(gpu.architecture)
        if architecture is None:
            others = ", ".join(envelope.architectures)
            yield (place / "architecture").warn(
                f"no range is known for architecture '{gpu.architecture}'", f"known: {others}"
            )
        else:
            yield from _architecture(architecture, place, gpu)
            yield from _proportions(architecture, place, gpu)
    yield from _efficiencies(catalog, envelope)


def matrix_rate(gpu: GpuEntry) -> float | None:
    """The dense 16-bit peak, FLOP/s; None where the part has none."""
    return gpu.peak.get("bf16") or gpu.peak.get("fp16")


def _memory(envelope: Envelope, place: Place, gpu: GpuEntry) -> Iterator[Finding]:
    """Sizes agree with each other, with the name and with the bandwidth."""
    share = gpu.usable_memory / gpu.nominal_memory
    yield from judged(place / "usable_memory", share, envelope.gpus["usable_share"], "usable memory")
    seconds = gpu.nominal_memory / gpu.memory_bandwidth
    what = "the time to read the whole memory"
    yield from judged(place / "memory_bandwidth", seconds, envelope.gpus["read_time"], what, format_seconds)
    sizes = [float(size) for size in _SIZE.findall(gpu.name)]
    bounds = envelope.gpus["name_size"]
    if sizes and not any(bounds.admits(gpu.nominal_memory / (size * unit)) for size in sizes for unit in (GIB, GB)):
        named = " or ".join(f"{size:g} GB" for size in sizes)
        yield (place / "nominal_memory").error(f"{format_bytes(gpu.nominal_memory)} where the name says {named}")


def _peaks(envelope: Envelope, place: Place, gpu: GpuEntry) -> Iterator[Finding]:
    """Rates stand in the usual proportions to the 16-bit rate."""
    rate = matrix_rate(gpu)
    if rate is None:
        yield (place / "peak").error("no 16-bit rate: fp16 or bf16 is missing")
        return
    bases = {"fp4": gpu.peak.get("fp8"), "fp16": gpu.peak.get("bf16")}
    for name in ("tf32", "fp16", "fp8", "fp4"):
        peak, base = gpu.peak.get(name), bases.get(name, rate)
        if peak and base:
            yield from met(place / "peak" / name, peak / base, envelope.peaks[name], f"the {name} peak")
    architecture, fp32 = envelope.architectures.get(gpu.architecture), gpu.peak.get("fp32")
    if architecture and fp32:
        tolerance = envelope.peaks["fp32"].tolerance
        steps = Steps(values=architecture.fp32_steps, tolerance=tolerance, unit="times the fp32 peak", source="peaks")
        yield from met(place / "peak" / "fp32", rate / fp32, steps, "the 16-bit peak")


def _architecture(known_of: Architecture, place: Place, gpu: GpuEntry) -> Iterator[Finding]:
    """Each figure within what the architecture has been sold as."""
    kind = f"of {gpu.architecture}"
    if gpu.vendor != known_of.vendor:
        yield (place / "vendor").error(f"{gpu.architecture} is by {known_of.vendor}, not {gpu.vendor}")
    at, memory = place / "nominal_memory", known_of.nominal_memory
    yield from judged(at, gpu.nominal_memory, memory, f"memory {kind}", format_bytes)
    at, bandwidth = place / "memory_bandwidth", known_of.memory_bandwidth
    yield from judged(at, gpu.memory_bandwidth, bandwidth, f"bandwidth {kind}", format_bandwidth)
    rate = matrix_rate(gpu)
    if rate:
        yield from judged(place / "peak", rate, known_of.matrix_rate, f"16-bit peak {kind}", format_flops_rate)
    if gpu.power_watts:
        yield from judged(place / "power_watts", gpu.power_watts, known_of.power_watts, f"power {kind}")
    for name, links in (("host_link", known_of.host_links), ("scale_up_link", known_of.scale_up_links)):
        link = getattr(gpu, name)
        if link and link not in links:
            expected = " or ".join(links) or "none"
            yield (place / name).error(f"{gpu.architecture} with {name} {link}", f"that architecture has {expected}")


def _proportions(known_of: Architecture, place: Place, gpu: GpuEntry) -> Iterator[Finding]:
    """The 16-bit rate in proportion to bandwidth, power and price."""
    rate, kind = matrix_rate(gpu), f"of {gpu.architecture}"
    if not rate:
        return
    figures: tuple[tuple[str, float | None, Bounds, str], ...] = (
        ("memory_bandwidth", rate / gpu.memory_bandwidth, known_of.rate_over_bandwidth, "16-bit peak over bandwidth"),
        ("power_watts", gpu.power_watts and rate / gpu.power_watts, known_of.rate_over_power, "16-bit peak over power"),
        (
            "price_per_hour", gpu.price_per_hour and gpu.price_per_hour / rate, known_of.price_over_rate,
            "price over 16-bit peak",
        ),
    )  # fmt: skip
    for name, value, bounds, what in figures:
        if value:
            yield from judged(place / name, value, bounds, f"{what} {kind}")


def _scale_up(catalog: Catalog, envelope: Envelope, place: Place, gpu: GpuEntry) -> Iterator[Finding]:
    """The rate between GPUs is a plausible part of the link's, and so many can be joined."""
    link = catalog.entries("links").get(gpu.scale_up_link or "")
    if link is not None and gpu.scale_up_bandwidth:
        at, share = place / "scale_up_bandwidth", gpu.scale_up_bandwidth / link.bandwidth
        yield from met(at, share, envelope.scale_up_shares, "the rate between GPUs")
    if gpu.scale_up_gpus:
        yield from judged(place / "scale_up_gpus", gpu.scale_up_gpus, envelope.gpus["scale_up_gpus"], "GPUs of a link")


def _efficiencies(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Shares below 1 and close together."""
    for part in catalog.of("gpus"):
        for key, entry in part.content.efficiencies.items():
            place = part.place / "efficiencies" / key
            yield from _shares(envelope, place, entry)


def _shares(envelope: Envelope, place: Place, entry: EfficiencyEntry) -> Iterator[Finding]:
    """The shares of one entry."""
    for name, shares in entry.matrix.items():
        yield from share_findings(envelope, place / "matrix" / name, shares, "matrix")
    yield from share_findings(envelope, place / "memory", entry.memory, "memory")


def share_findings(envelope: Envelope, place: Place, shares: RangeEntry, kind: str) -> Iterator[Finding]:
    """The typical share within its range, the low and the high one near it."""
    yield from judged(place / "typical", shares.typical, envelope.shares[kind], "the typical share")
    low, high = shares.low / shares.typical, shares.high / shares.typical
    yield from judged(place / "low", low, envelope.shares["low_over_typical"], "the low share")
    yield from judged(place / "high", high, envelope.shares["high_over_typical"], "the high share")
