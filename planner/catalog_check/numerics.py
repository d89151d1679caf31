"""Precisions and optimizers: widths that the formats have, states and traffic that belong together."""

from __future__ import annotations

from collections.abc import Iterator

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.envelope import Envelope, judged
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.names import hardware_entries
from planner.hardware_catalog import OptimizerEntry
from planner.job import DTYPE_BYTES

# Parameter read and written, gradient read, in fp32.
_TRAFFIC_WITHOUT_STATES = 12.0
_WIDTH = 4.0


def precision_findings(catalog: Catalog) -> Iterator[Finding]:
    """Bytes of each copy are those of its format."""
    for place, key, entry in hardware_entries(catalog, "precisions"):
        width = DTYPE_BYTES[entry.dtype]
        for name in ("compute_bytes", "gradient_bytes"):
            if getattr(entry, name) != width:
                yield (place / name).error(f"{getattr(entry, name)} bytes, {entry.dtype} has {width}")
        if entry.master_bytes not in (0, _WIDTH):
            yield (place / "master_bytes").error(f"{entry.master_bytes} bytes, a master copy has 4 or is not there (0)")
        if entry.peak in ("fp32", "fp16", "bf16") and entry.peak != entry.dtype:
            yield (place / "peak").error(f"products of {key} at the rate of {entry.peak}, layers in {entry.dtype}")


def optimizer_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """States, arithmetic and traffic of every optimizer."""
    ranges = envelope.optimizers
    for place, _, entry in hardware_entries(catalog, "optimizers"):
        at = place / "state_bytes_per_parameter"
        yield from judged(at, entry.state_bytes_per_parameter, ranges["state_bytes"], "states")
        if not entry.fixed_state_bytes and entry.state_bytes_per_parameter % _WIDTH:
            hint = "whole fp32 values of 4 bytes, or fixed_state_bytes: true"
            yield at.error(f"{entry.state_bytes_per_parameter} bytes are no whole number of fp32 values", hint)
        at = place / "step_flops_per_parameter"
        yield from judged(at, entry.step_flops_per_parameter, ranges["step_flops"], "arithmetic of a step")
        for name in ("temporary_bytes_per_parameter", "temporary_bytes_of_largest"):
            yield from judged(place / name, getattr(entry, name), ranges["temporary_bytes"], "temporaries of a step")
        yield from _traffic(envelope, place, entry)


def _traffic(envelope: Envelope, place: Place, entry: OptimizerEntry) -> Iterator[Finding]:
    """Each state is read and written once; passes of their own where temporaries stand for every parameter."""
    share = entry.step_bytes_per_parameter / (_TRAFFIC_WITHOUT_STATES + 2 * entry.state_bytes_per_parameter)
    kind = "traffic_with_temporaries" if entry.temporary_bytes_per_parameter else "traffic"
    if entry.temporary_bytes_of_largest and not entry.newton_schulz_iterations:
        kind = "traffic_of_factored"
    yield from judged(place / "step_bytes_per_parameter", share, envelope.optimizers[kind], "traffic of a step")
