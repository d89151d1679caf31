"""The back-of-envelope ledger: four books from a parameter count and a number of layers, and which one bursts.

Sources: 2 + 2 + 12 bytes per parameter with Adam in mixed precision, Rajbhandari et al. 2020, arXiv:1910.02054 section
3.1; about √n checkpoints for n layers, Chen et al. 2016, arXiv:1604.06174 section 4, one more for the last, partial
segment.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt
from typing import Any

from planner.architecture.activations import ActivationSettings, activations
from planner.architecture.size import architecture_from_size
from planner.hardware import Gpu
from planner.hardware_catalog import gpu as find_gpu
from planner.units import format_bytes, format_count

PARAMETER_BYTES, GRADIENT_BYTES, STATE_BYTES = 2, 2, 12
HOST_BYTES = 18  # per parameter with the optimizer in host memory: deepspeed 0.19.8, states, gradients and staging
SEQUENCE_LENGTH = 2048
DEFAULT_GPU = "a100-sxm-80gb"
BAR = 60


@dataclass(frozen=True)
class Envelope:
    """Books in bytes; activations are those of one sequence of 2048 tokens, kept whole."""

    parameters: int
    layers: int
    gpu: Gpu
    gpus: int
    activations: int
    checkpoints: int

    @property
    def books(self) -> dict[str, int]:
        """Bytes by book, activations last."""
        count = self.parameters
        return {
            "parameters": PARAMETER_BYTES * count,
            "gradients": GRADIENT_BYTES * count,
            "optimizer_states": STATE_BYTES * count,
            "activations": self.activations,
        }

    @property
    def static(self) -> int:
        """Bytes that stand whatever the batch: 16 per parameter."""
        return sum(size for book, size in self.books.items() if book != "activations")

    @property
    def kept_share(self) -> float:
        """Share of the activations that the checkpoints keep."""
        return self.checkpoints / self.layers

    def sharded(self, stage: int) -> int:
        """Static bytes of one GPU at a ZeRO stage."""
        books, ranks = self.books, self.gpus
        divided = ("optimizer_states", "gradients", "parameters")[:stage]
        return sum(ceil(books[book] / (ranks if book in divided else 1)) for book in books if book != "activations")


def checkpoints(layers: int) -> int:
    """The √n rule: ceil(√layers) + 1 checkpoints. Example: 32 layers, √32 = 5.66, 6 + 1 = 7."""
    root = isqrt(layers)
    return min(layers, root + (root * root < layers) + 1)


def envelope(parameters: int, layers: int, gpu: Gpu | None = None, gpus: int = 1) -> Envelope:
    """The books of a model of which only the size is known. Raises InputError where no such model exists."""
    architecture = architecture_from_size(parameters, layers)
    found = activations(architecture, ActivationSettings(sequence_length=SEQUENCE_LENGTH))
    kept = sum(layer.stored.at(SEQUENCE_LENGTH) for layer in found.layers) * layers // len(found.layers)
    return Envelope(parameters, layers, gpu or find_gpu(DEFAULT_GPU), gpus, kept, checkpoints(layers))


def envelope_answer(found: Envelope) -> dict[str, Any]:
    """The envelope as a plain dictionary, in bytes."""
    return {
        "status": "evaluated",
        "parameters": found.parameters,
        "layers": found.layers,
        "books": found.books,
        "static_bytes": found.static,
        "checkpoints": found.checkpoints,
        "activations_kept_share": found.kept_share,
        "gpu": {"name": found.gpu.key, "count": found.gpus, "usable_bytes": found.gpu.usable_memory},
        "bursts": burst(found),
        "advice": advice(found),
    }


def envelope_text(found: Envelope) -> str:
    """The envelope as text: arithmetic, bars, the √n rule, and what to do."""
    count, books = format_count(found.parameters), found.books
    lines = [f"{count} parameters, {found.layers} layers, 16-bit training with Adam", ""]
    units = {"parameters": PARAMETER_BYTES, "gradients": GRADIENT_BYTES, "optimizer_states": STATE_BYTES}
    for book, unit in units.items():
        lines.append(f"  {book.replace('_', ' '):17}{unit:3} bytes × {count:>7} = {_gib(books[book]):>11}")
    lines += [
        f"  {'static':17}{16:3} bytes × {count:>7} = {_gib(found.static):>11}",
        f"  {'activations':17} one sequence of {SEQUENCE_LENGTH} tokens, all kept: about {_gib(found.activations)}",
        "",
        f"  {_bar(found)}",
        "  █ parameters  ▓ gradients  ▒ optimizer states  ╱ activations",
        "",
        f"√n rule: {found.checkpoints} checkpoints keep about {_percent(found.kept_share)} of the activations, "
        "for one more forward pass.",
        "",
        *advice(found),
    ]
    return "\n".join(lines) + "\n"


def _percent(share: float) -> str:
    """A share in whole percent, halves rounded up."""
    return f"{int(share * 100 + 0.5)} %"


def _gib(size: int) -> str:
    """Bytes as GiB with one decimal, whatever the size: books are compared in one unit."""
    return f"{size / 2**30:.1f} GiB"


def _bar(found: Envelope) -> str:
    """The books as one bar."""
    fills = dict(zip(found.books, "█▓▒╱", strict=True))
    total = sum(found.books.values())
    return "".join(fills[book] * max(1, round(BAR * size / total)) for book, size in found.books.items())


def burst(found: Envelope) -> str:
    """Which book does not fit on the named GPUs: `static`, `activations`, or none."""
    usable = found.gpu.usable_memory
    if found.sharded(3 if found.gpus > 1 else 0) > usable:
        return "static"
    best = min(found.sharded(stage) for stage in (range(4) if found.gpus > 1 else (0,)))
    return "activations" if best + found.activations > usable else "none"


def advice(found: Envelope) -> list[str]:
    """Which book bursts on the named GPUs and which technique cuts it, in sentences."""
    usable, where = (
        found.gpu.usable_memory,
        f"{found.gpus} × {found.gpu.name} ({format_bytes(found.gpu.usable_memory)} each)",
    )
    burst_book = burst(found)
    if burst_book == "static":
        return _static_advice(found, where)
    stage = next(s for s in range(4) if found.sharded(s) <= usable)
    sharding = "" if stage == 0 else f" with ZeRO-{stage} ({_gib(found.sharded(stage))} per GPU)"
    first = f"On {where} the static books fit{sharding}."
    if burst_book == "activations":
        return [first, "Activations burst: keep checkpoints, or a smaller micro-batch with more accumulation."]
    return [first, "Longer sequences or larger micro-batches burst the activations first: then keep checkpoints."]


def _static_advice(found: Envelope, where: str) -> list[str]:
    """What cuts static books that are too big."""
    needed = ceil(found.static / found.gpu.usable_memory)
    return [
        f"On {where} the static books burst: {_gib(found.sharded(3 if found.gpus > 1 else 0))} per GPU.",
        f"Cut the redundancy: ZeRO-3 needs at least {needed} such GPUs for the static books alone.",
        f"Or move it: the optimizer in host memory takes about {_gib(HOST_BYTES * found.parameters)} "
        f"({HOST_BYTES} bytes per parameter).",
        f"Or cut the unit price: 8-bit optimizer states save {_gib(6 * found.parameters)}, a 4-bit base with adapters "
        "needs about half a byte per parameter.",
    ]
