"""The back-of-envelope ledger: four books from the size of a model alone, and what cuts the one that bursts.

Sources: 2 + 2 + 12 bytes per parameter with Adam in mixed precision and the stages that divide them, Rajbhandari et
al. 2020, arXiv:1910.02054 sections 3.1 and 5; checkpoints by the square root of the layers, Chen et al. 2016,
arXiv:1604.06174 section 4, with one more for the last, partial segment; 4-bit base, Dettmers et al. 2023,
arXiv:2305.14314 section 3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from textwrap import wrap
from typing import Any

from planner.architecture.activations import ActivationSettings, activations
from planner.architecture.size import architecture_from_size
from planner.errors import InputError
from planner.hardware import Gpu
from planner.hardware_catalog import gpu as find_gpu
from planner.hardware_catalog import optimizer
from planner.units import GIB, format_bytes, format_count

UNIT_PRICES = {"parameters": 2, "gradients": 2, "optimizer_states": 12}
"""Bytes per parameter: 16-bit parameters, 16-bit gradients, and master copy with two moments in 32 bits."""
STATIC_PRICE = sum(UNIT_PRICES.values())
MASTER_PRICE = 4
FOUR_BIT_PRICE = Fraction(1, 2)
HOST_PRICE = 18
"""Bytes per parameter in host memory with the optimizer there (master copy 4, moments 8, 32-bit gradients 4, 16-bit
buffer 2): deepspeed 0.19.8 runtime/zero/stage_1_and_2.py and stage3.py, measured on two ranks."""
RECOMPUTED_SHARE = Fraction(1, 3)
"""One more forward pass, where backward costs two: forward and backward are three."""
SEQUENCE_LENGTH = 2048
DEFAULT_GPU = "a100-sxm-80gb"
WIDTH = 100
BAR = 38


@dataclass(frozen=True)
class Envelope:
    """Books in bytes; `activations` are those of all layers for one sequence of 2048 tokens, nothing recomputed."""

    parameters: int
    layers: int
    gpu: Gpu
    gpus: int
    activations: int

    @property
    def books(self) -> dict[str, int]:
        """Bytes by book, in the order in which the column is stacked."""
        static = {book: price * self.parameters for book, price in UNIT_PRICES.items()}
        return static | {"activations": self.activations}

    @property
    def static(self) -> int:
        """Bytes that stand whatever the batch: 16 per parameter."""
        return STATIC_PRICE * self.parameters

    @property
    def total(self) -> int:
        """Bytes of all four books."""
        return self.static + self.activations

    @property
    def checkpoints(self) -> int:
        """Checkpoints by the square root rule."""
        return checkpoints(self.layers)

    @property
    def kept_share(self) -> Fraction:
        """Share of the activations that the checkpoints keep, every layer counted as one unit."""
        return Fraction(self.checkpoints, self.layers)

    @property
    def kept(self) -> int:
        """Bytes of the activations that the checkpoints keep."""
        return -(-self.activations * self.checkpoints // self.layers)

    def sharded(self, stage: int) -> int:
        """Static bytes of one GPU at a ZeRO stage."""
        divided = _divided_price(stage)
        return (STATIC_PRICE - divided) * self.parameters - (-divided * self.parameters // self.gpus)


def checkpoints(layers: int) -> int:
    """ceil(√layers) + 1, at most one per layer. Example: 32 layers, √32 = 5.66, 6 + 1 = 7."""
    return min(layers, _square_root_and_one(layers))


def _square_root_and_one(layers: int) -> int:
    return isqrt(layers - 1) + 2


def envelope(parameters: int, layers: int, gpu: Gpu | None = None, gpus: int = 1) -> Envelope:
    """The books of a model of that size, held against `gpus` of `gpu` (by default one A100 SXM 80 GB).

    Raises InputError where no such model exists or `gpus` is below 1.
    """
    if gpus < 1:
        raise InputError(f"{gpus} is not valid", path="gpus", expected="a whole number, 1 or more")
    architecture = architecture_from_size(parameters, layers)
    found = activations(architecture, ActivationSettings(sequence_length=SEQUENCE_LENGTH))
    groups = zip(architecture.layers, found.layers, strict=True)
    stored = sum(group.count * layer.stored.at(SEQUENCE_LENGTH) for group, layer in groups)
    return Envelope(parameters, layers, gpu or find_gpu(DEFAULT_GPU), gpus, stored)


def burst_book(found: Envelope) -> str | None:
    """The book at which the column of whole books outgrows one GPU; None where all four fit."""
    stacked = 0
    for book, size in found.books.items():
        stacked += size
        if stacked > found.gpu.usable_memory:
            return book
    return None


def first_stage(found: Envelope, beside: int = 0) -> int | None:
    """The first ZeRO stage whose static books fit on a GPU with `beside` more bytes; None where none does."""
    return next((stage for stage in range(4) if found.sharded(stage) + beside <= found.gpu.usable_memory), None)


def gpus_needed(found: Envelope, beside: int = 0) -> int | None:
    """The fewest GPUs on which ZeRO-3 fits with `beside` more bytes on each; None where these alone burst."""
    room = found.gpu.usable_memory - beside
    return -(-found.static // room) if room > 0 else None


def envelope_answer(found: Envelope) -> dict[str, Any]:
    """The envelope as plain data, in bytes; `bursts` and `first_stage` are None where nothing is found."""
    return {
        "status": "evaluated",
        "parameters": found.parameters,
        "layers": found.layers,
        "books": found.books,
        "static_bytes": found.static,
        "total_bytes": found.total,
        "checkpoints": found.checkpoints,
        "activations_kept_share": float(found.kept_share),
        "activations_kept_bytes": found.kept,
        "recomputed_share": float(RECOMPUTED_SHARE),
        "gpu": {"name": found.gpu.key, "count": found.gpus, "usable_bytes": found.gpu.usable_memory},
        "bursts": burst_book(found),
        "zero": {
            "static_bytes_per_gpu": {str(stage): found.sharded(stage) for stage in range(4)},
            "first_stage": first_stage(found),
            "first_stage_with_checkpoints": first_stage(found, found.kept),
            "gpus_needed": gpus_needed(found),
            "gpus_needed_with_checkpoints": gpus_needed(found, found.kept),
        },
        "host_bytes": HOST_PRICE * found.parameters,
        "advice": advice(found),
    }


def envelope_text(found: Envelope) -> str:
    """The envelope as text of at most 100 columns: arithmetic with bars, the square root rule, and what to do."""
    title = f"{format_count(found.parameters)} parameters, {found.layers} layers: 16-bit mixed precision with Adam"
    notes = (
        "Optimizer states: 4 bytes of 32-bit master copy and two moments of 4 bytes.",
        f"Activations: an estimate for micro-batch 1 and {SEQUENCE_LENGTH} tokens, a Llama-like shape of this size, "
        "all its layers, nothing recomputed.",
        "Logits, buffers and the allocator's margin are left out; `planner solve` counts them.",
    )
    prose = (_wrapped(part) for part in (notes, [_square_root_rule(found)], advice(found)))
    return "\n\n".join("\n".join(part) for part in ([title], _rows(found), *prose)) + "\n"


def _wrapped(sentences: list[str] | tuple[str, ...]) -> list[str]:
    """Each sentence on lines of its own, later ones indented; a quantity is not parted from its unit."""
    return [
        line.replace("\u00a0", " ")
        for sentence in sentences
        for line in wrap(_joined(sentence), WIDTH, subsequent_indent="  ", break_long_words=False)
    ]


def _joined(sentence: str) -> str:
    """Units tied to their numbers by spaces at which no line breaks."""
    for unit in ("GiB", "MiB", "KiB", "GB", "T", "B", "M", "k", "%"):
        for end in (" ", ".", ",", ":", ";", ")"):
            sentence = sentence.replace(f" {unit}{end}", f"\u00a0{unit}{end}")
    return sentence


def _rows(found: Envelope) -> Iterator[str]:
    """The column of books from its top to its bottom, each bar starting where the one below it ends."""
    column = max(len(_size(size)) for size in (*found.books.values(), found.static, found.gpu.usable_memory))
    start = found.total
    for book, size in reversed(found.books.items()):
        start -= size
        fill = "▒" if book == "activations" else "█"
        yield _row(book, _sum(found, book), size, column, _bar(found, start, size, fill))
    yield _row("static", _product(STATIC_PRICE, found), found.static, column, _bar(found, 0, found.static))
    yield _row("one GPU", "usable", found.gpu.usable_memory, column, _limit(found))


def _row(label: str, arithmetic: str, size: int, column: int, bar: str) -> str:
    equals = "=" if "×" in arithmetic else " "
    return f"  {label.replace('_', ' '):16}  {arithmetic:>18} {equals} {_size(size):>{column}}  {bar}"


def _bar(found: Envelope, start: int, size: int, fill: str = "█") -> str:
    """A bar of at least one cell on the scale of all books together."""
    first, last = min(_cells(found, start), BAR - 1), _cells(found, start + size)
    return " " * first + fill * max(1, last - first)


def _limit(found: Envelope) -> str:
    """What one GPU holds, on the same scale; an arrow where that is more than all books."""
    usable = found.gpu.usable_memory
    return "─" * BAR + "→" if usable > found.total else "─" * max(0, _cells(found, usable) - 1) + "┤"


def _cells(found: Envelope, size: int) -> int:
    """Cells of a bar, halves rounded up."""
    return (2 * BAR * size + found.total) // (2 * found.total)


def _sum(found: Envelope, book: str) -> str:
    """The arithmetic of one book."""
    if book == "activations":
        return f"{found.layers} × {format_bytes(found.activations / found.layers)}"
    return _product(UNIT_PRICES[book], found)


def _product(price: int | str | Fraction, found: Envelope) -> str:
    """Bytes per parameter times parameters, as arithmetic."""
    return f"{price} bytes × {format_count(found.parameters)}"


def _size(size: int) -> str:
    """Bytes in GiB with one decimal, so that books compare at a glance; below 1 GiB in the unit that shows them."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else format_bytes(size)


def _percent(share: Fraction) -> str:
    """A share in whole percent, halves rounded up. Example: 10/80 = 12.5 % gives 13 %."""
    return f"{int(share * 100 + Fraction(1, 2))} %"


def _square_root_rule(found: Envelope) -> str:
    """What checkpoints keep and what they cost."""
    count, by_rule = found.checkpoints, _square_root_and_one(found.layers)
    limit = "" if by_rule == count else f"{by_rule}, but one a layer at most: "
    keep = "checkpoint keeps" if count == 1 else "checkpoints keep"
    return (
        f"Checkpoints: ceil(√{found.layers}) + 1 = {limit}{count} {keep} about {_percent(found.kept_share)} of the "
        f"activations ({count} / {found.layers}, {_size(found.kept)}) for one more forward pass, about "
        f"{_percent(RECOMPUTED_SHARE)} more compute (Chen et al. 2016, arXiv:1604.06174; with one more for the last, "
        "partial segment)."
    )


def advice(found: Envelope) -> list[str]:
    """Which book bursts on the GPU and which technique cuts it, in sentences."""
    book = burst_book(found)
    if book is None:
        return _nothing_bursts(found)
    if book == "activations":
        return _activations_burst(found)
    return [
        f"On {_where(found)} the static books burst: {_size(found.static)}. The column outgrows the GPU at the "
        f"{book.replace('_', ' ')}.",
        *_static_cuts(found),
    ]


def _where(found: Envelope) -> str:
    count = "one" if found.gpus == 1 else f"each of {found.gpus}"
    return f"{count} {found.gpu.name} ({_size(found.gpu.usable_memory)} usable)"


def _nothing_bursts(found: Envelope) -> list[str]:
    room = (found.gpu.usable_memory - found.static) // max(1, found.activations)
    return [
        f"On {_where(found)} nothing bursts: {_size(found.total)}.",
        f"The activations would burst first, at a micro-batch of about {room + 1}; checkpoints cut them, and so do "
        "smaller micro-batches with more accumulation.",
    ]


def _activations_burst(found: Envelope) -> list[str]:
    """Checkpoints where they are enough; otherwise what makes room beside them."""
    with_checkpoints = found.static + found.kept
    fits = with_checkpoints <= found.gpu.usable_memory
    sentences = [
        f"On {_where(found)} the activations burst: {_size(found.static)} of static books fit, {_size(found.total)} "
        "with the activations do not.",
        f"Checkpoints: {found.checkpoints} of them keep {_size(found.kept)}; {_size(with_checkpoints)} in all "
        f"{'fit' if fits else 'still burst, so the static books must make room'}.",
    ]
    if not fits:
        return [*sentences, *_static_cuts(found)]
    return [*sentences, "Accumulation: a larger batch runs as more micro-batches of 1, and no book grows."]


def _static_cuts(found: Envelope) -> list[str]:
    """Less redundancy, another place, a lower unit price."""
    return [*_redundancy(found), _offload(found), _eight_bit(found), _four_bit(found)]


def _redundancy(found: Envelope) -> list[str]:
    """The first ZeRO stage that fits with the checkpoints, or the number of GPUs that ZeRO-3 needs."""
    alone, together = first_stage(found), first_stage(found, found.kept)
    if together is None:
        return [*_no_stage(found, alone), _more_gpus(found)]
    first = f"ZeRO-{together} is the first stage that fits on {found.gpus} GPUs beside {_kept(found)}"
    return [f"Redundancy: {first}: {_stage_product(found, together)} of static books on each.", _room(found, together)]


def _no_stage(found: Envelope, alone: int | None) -> list[str]:
    """What ZeRO-3 leaves on the GPUs there are; nothing to say where there is only one."""
    if found.gpus == 1:
        return []
    what = "no ZeRO stage fits" if alone is None else f"no ZeRO stage fits beside {_kept(found)}"
    return [f"Redundancy: {what} on {found.gpus} GPUs: ZeRO-3 leaves {_stage_product(found, 3)} on each."]


def _kept(found: Envelope) -> str:
    return f"the {_size(found.kept)} of checkpoints"


def _stage_product(found: Envelope, stage: int) -> str:
    """Example: `(2 + 2 + 12/8) bytes × 7 B = 35.9 GiB`."""
    whole = [str(price) for price in list(UNIT_PRICES.values())[: 3 - stage]]
    divided = _divided_price(stage)
    price = " + ".join([*whole, f"{divided}/{found.gpus}"])
    return f"{_product(f'({price})' if whole else price, found)} = {_size(found.sharded(stage))}"


def _divided_price(stage: int) -> int:
    """Bytes per parameter that a ZeRO stage divides: 0, 12, 14 or 16."""
    return sum(list(UNIT_PRICES.values())[3 - stage :])


def _room(found: Envelope, stage: int) -> str:
    """How the activations fit beside a stage with whose static books at least the checkpoints fit."""
    room = found.gpu.usable_memory - found.sharded(stage)
    if found.activations <= room:
        return f"Activations: {_size(room)} are left; all {_size(found.activations)} fit."
    kept = f"{_size(found.kept)} with {found.checkpoints} checkpoints fit"
    return f"Activations: {_size(room)} are left; {_size(found.activations)} burst, and {kept}."


def _more_gpus(found: Envelope) -> str:
    """How many GPUs ZeRO-3 needs, for the static books and with the checkpoints."""
    alone, together = gpus_needed(found), gpus_needed(found, found.kept)
    if together is None:
        return (
            f"More GPUs: ZeRO-3 needs {alone} for the static books; {_kept(found)} do not fit on any number, "
            "tensor parallelism divides them."
        )
    divided = f"{_product(f'{STATIC_PRICE}/{together}', found)} = {_size(-(-found.static // together))} on each"
    first = "" if alone in (1, together) else f"{alone} for the static books and "
    return f"More GPUs: ZeRO-3 needs {first}{together} beside {_kept(found)}: {divided}."


def _offload(found: Envelope) -> str:
    """What the optimizer in host memory leaves on the GPU: the parameters, which ZeRO-3 divides."""
    price, room = UNIT_PRICES["parameters"], found.gpu.usable_memory - found.kept
    whole, share = price * found.parameters, -(-price * found.parameters // found.gpus)
    divide = whole > room and found.gpus > 1
    stage, left, paid = (3, share, f"{price}/{found.gpus}") if divide else (2, whole, price)
    host = f"{_product(HOST_PRICE, found)} = {_size(HOST_PRICE * found.parameters)}"
    return (
        f"Offload: the optimizer in host memory leaves {_product(paid, found)} = {_size(left)} on the GPU "
        f"(ZeRO-{stage}), which {_fits(left, room)}; all hosts together hold {host} (4 master copy, 8 moments, "
        "4 gradients, 2 buffer)."
    )


def _eight_bit(found: Envelope) -> str:
    """The static books with both moments in 8 bits."""
    states = MASTER_PRICE + Fraction(str(optimizer("adamw-8bit").state_bytes_per_parameter))
    whole = UNIT_PRICES["parameters"] + UNIT_PRICES["gradients"]
    size = round((whole + states) * found.parameters)
    price = f"{UNIT_PRICES['parameters']} + {UNIT_PRICES['gradients']} + {float(states):g}"
    return (
        f"Unit price: moments in 8 bits make it {_product(f'({price})', found)} = {_size(size)}, "
        f"which {_fits(size, found.gpu.usable_memory - found.kept)} on one GPU."
    )


def _four_bit(found: Envelope) -> str:
    """The parameters alone, frozen in 4 bits."""
    size = -(-found.parameters // FOUR_BIT_PRICE.denominator)
    return (
        f"Quantization: a frozen 4-bit base (QLoRA) takes {_product('0.5', found)} = {_size(size)} and "
        f"{_fits(size, found.gpu.usable_memory - found.kept)} on one GPU; its scales and the adapters come on top."
    )


def _fits(size: int, room: int) -> str:
    """Whether static books fit in what the checkpoints leave of a GPU."""
    return "fits" if size <= room else "does not fit"
