"""Runtimes: names of what they have, margins and costs that can be."""

from __future__ import annotations

from collections.abc import Iterator

from planner.catalog_check.catalog import Catalog, Part, mapping
from planner.catalog_check.envelope import Envelope, judged
from planner.catalog_check.findings import Finding
from planner.catalog_check.names import known
from planner.resolve import KERNELS
from planner.techniques import RuntimeEntry


def runtime_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Everything about runtimes but their effects."""
    for part in catalog.of("runtime"):
        yield from _names(catalog, part)
        for name, bounds in envelope.runtimes.items():
            yield from judged(part.place / name, getattr(part.content, name), bounds, name)


def _names(catalog: Catalog, part: Part) -> Iterator[Finding]:
    """Choices with their values, optimizers, kernels."""
    runtime: RuntimeEntry = part.content
    choices = catalog.entries("choice")
    for name, values in runtime.choices.items():
        at = part.place / "choices" / name
        yield from known(at, name, choices, "choice")
        listed = choices[name].values if name in choices else {}
        for value in values if listed else ():
            yield from known(at, value, listed, f"value of {name}:")
    optimizers = (*catalog.names("optimizers"), *_engine_optimizers(catalog))
    for index, name in enumerate(runtime.cpu_optimizers):
        yield from known(part.place / "cpu_optimizers" / index, name, optimizers, "optimizer")
    yield from known(part.place / "kernels", runtime.kernels, KERNELS, "kernels")
    known_kernels = [name for other in catalog.of("coefficients") for name in mapping(other.content.get("kernels"))]
    yield from known(part.place / "flash_kernel", runtime.flash_kernel, known_kernels, "attention kernel")
    for degree in set(runtime.degrees) & set(runtime.degrees_on_request):
        yield (part.place / "degrees_on_request").error(f"{degree} stands under degrees too")


def _engine_optimizers(catalog: Catalog) -> Iterator[str]:
    """Optimizers that DeepSpeed builds by name, more than the planner plans."""
    for part in catalog.of("other"):
        yield from mapping(mapping(part.content).get("optimizers")).get("deepspeed") or ()
