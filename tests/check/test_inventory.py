"""The inventory is whole: kinds that are known, defaults that pass, blocks that exist."""

from __future__ import annotations

from planner.check.inventory import inventory
from planner.check.kinds import KINDS, fit


def test_every_kind_is_known_and_every_default_passes() -> None:
    for dotted, key in inventory().dotted():
        assert key.kind in KINDS, dotted
        if key.default is not None and key.default != "auto":
            assert fit(key, key.default) == key.default, dotted


def test_every_block_has_its_keys() -> None:
    found = inventory()
    for dotted, key in found.dotted():
        if key.kind == "block" and dotted != "zero_optimization.leaf_module":
            assert dotted in found.blocks, dotted


def test_every_block_is_reached() -> None:
    found = inventory()
    for path in found.blocks:
        key = found.key(path)
        assert not path or (key is not None and key.kind == "block"), path


def test_new_names_exist() -> None:
    found = inventory()
    for dotted, key in found.dotted():
        path = dotted.rpartition(".")[0]
        assert not key.deprecated or found.key(f"{path}.{key.deprecated}".lstrip(".")) is not None, dotted


def test_removed_keys_are_not_listed() -> None:
    assert [name for name in inventory().removed if inventory().key(name)] == []
