"""How the blocks inside a layer run, as choices say: in how many parts, and which modules backward makes again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from planner.plan import Value
from planner.terms import Values

BLOCK_CHOICES = ("mlp_tiles", "recompute_modules")


class Blocks(NamedTuple):
    """`tiles`: parts of its tokens that a feed-forward block goes through one after the other.

    `modules`: what a layer that is not checkpointed makes again in backward, see `planner.architecture.modules`.
    """

    tiles: int = 1
    modules: tuple[str, ...] = ()


PLAIN = Blocks()


def blocks_of(values: Values) -> Blocks:
    """How blocks run under the choices among `values`."""
    return Blocks(int(str(values["mlp_tiles"])), modules_of(values["recompute_modules"]))


def modules_of(value: Value) -> tuple[str, ...]:
    """The modules that a value of `recompute_modules` names: `none`, or names with plus signs between them."""
    return () if value == "none" else tuple(str(value).split("+"))


def ways(tiles: Iterable[int], modules: Iterable[Value]) -> tuple[Blocks, ...]:
    """Every combination; parts and modules never meet, since no runtime has both."""
    parts = [Blocks(tiles=count) for count in tiles]
    others = [Blocks(modules=modules_of(value)) for value in modules if value != "none"]
    return (*parts, *others)
