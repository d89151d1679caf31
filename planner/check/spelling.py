"""The nearest valid spelling of a key: letters, swapped words, or another block that has the key."""

from __future__ import annotations

from collections.abc import Iterable

from planner.check.inventory import Block, Inventory
from planner.units import nearest

# Names of earlier releases that share no letters with today's.
RENAMED = {"aio.thread_count": "intra_op_parallelism"}


def hint(name: str, block: Block, inventory: Inventory) -> str:
    """`; did you mean …?`, `; it belongs in …`, or nothing."""
    swapped = RENAMED.get(f"{block.path}.{name}") or same_words(name, block.names())
    found = f"did you mean {swapped!r}?" if swapped else home(name, block, inventory) or nearest(name, block.names())
    return f"; {found}" if found else ""


def same_words(name: str, choices: Iterable[str]) -> str:
    """The choice made of the same words in another order, or the empty text."""
    words = sorted(name.lower().replace("-", "_").split("_"))
    return next((choice for choice in choices if sorted(choice.lower().split("_")) == words), "")


def home(name: str, block: Block, inventory: Inventory) -> str:
    """`it belongs in …` for the blocks that know the key."""
    homes = [
        path or "the top of the file"
        for path, other in inventory.blocks.items()
        if name in other.keys and path != block.path
    ]
    distinctive = [path for path in homes if path != "bfloat16"]
    return f"it belongs in {distinctive[0]}" if len(distinctive) == 1 else ""
