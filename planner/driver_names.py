"""Which GPU of the catalogs a driver means: names such as `NVIDIA H100 80GB HBM3` or `NVIDIA GeForce RTX 4090`."""

from __future__ import annotations

from collections.abc import Iterable

from planner.errors import InputError
from planner.hardware import Gpu
from planner.units import GIB

# Forms of a card that its driver's name says; the module of a server (SXM, OAM) often says nothing.
FORMS = ("pcie", "nvl")
# Parts of a catalog key that are no part of the chip's name.
BUILDS = ("sxm", *FORMS)
# A driver leaves up to a tenth of a card's memory out, depending on its version and ECC.
MEMORY_TOLERANCE = 0.1


def known_gpu(name: str, memory: int, gpus: Iterable[Gpu]) -> Gpu:
    """The one of `gpus` that a driver's name and bytes of memory mean. Raises InputError where there is none."""
    likely = [gpu for gpu in gpus if means(name, gpu) and abs(gpu.usable_memory / memory - 1) < MEMORY_TOLERANCE]
    if not likely:
        raise InputError(f"no GPU of the catalog is '{name}' with {memory / GIB:.1f} GiB")
    return min(likely, key=lambda gpu: (_other_forms(name, gpu), abs(gpu.usable_memory - memory), gpu.key))


def means(name: str, gpu: Gpu) -> bool:
    """Whether a driver's name has the chip of a GPU in it, however its words are joined."""
    words = _words(name)
    runs = {"".join(words[first:last]) for first in range(len(words)) for last in range(first + 1, len(words) + 1)}
    return _chip(gpu) in runs


def _words(text: str) -> list[str]:
    return text.lower().replace("-", " ").split()


def _chip(gpu: Gpu) -> str:
    """`rtx4090`, `a100`, `rtx6000ada`: the key up to the form of the card or its memory."""
    chip = ""
    for word in _words(gpu.key):
        if word.startswith(BUILDS) or (word.endswith("gb") and word[:-2].isdecimal()):
            break
        chip += word
    return chip


def _other_forms(name: str, gpu: Gpu) -> int:
    """Forms that one of both names and the other does not."""
    return len({form for form in FORMS if (form in _words(name)) != (form in _words(gpu.key))})
