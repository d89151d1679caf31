"""Links: bandwidth and latency of their family, rates that their summary repeats, shares that can be."""

from __future__ import annotations

import re
from collections.abc import Iterator

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.envelope import Envelope, LinkFamily, judged
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.gpus import share_findings
from planner.catalog_check.names import hardware_entries
from planner.hardware_catalog import LinkEntry
from planner.units import format_bandwidth, format_seconds, parse_bandwidth

_RATE = re.compile(r"\d+(?:\.\d+)? [GT]bit/s")


def link_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Everything about the links."""
    for place, key, link in hardware_entries(catalog, "links"):
        family = family_of(envelope, key)
        at = place / "bandwidth"
        yield from judged(at, link.bandwidth, family.bandwidth, f"the bandwidth of {key}", format_bandwidth)
        at = place / "latency"
        yield from judged(at, link.latency, family.latency, f"the latency of {key}", format_seconds)
        yield from _summary(place, link)
        for use, shares in link.efficiency.items():
            yield from share_findings(envelope, place / "efficiency" / use, shares, "link")


def family_of(envelope: Envelope, key: str) -> LinkFamily:
    """The family whose name starts the link's, the longest; `any` for a stranger."""
    names = [name for name in envelope.links if key.startswith(name)]
    return envelope.links[max(names, key=len, default="any")]


def _summary(place: Place, link: LinkEntry) -> Iterator[Finding]:
    """A line rate in the summary is the bandwidth."""
    rates = [parse_bandwidth(rate) for rate in _RATE.findall(link.summary)]
    if rates and all(abs(link.bandwidth / rate - 1) > 0.01 for rate in rates):
        said = _RATE.findall(link.summary)[0]
        yield (place / "bandwidth").error(f"{format_bandwidth(link.bandwidth)} where the summary says {said}")
