"""The registry of constraints: explicit, complete, and each module with the same names."""

from __future__ import annotations

from pathlib import Path

import constraints


def test_every_file_is_registered_once() -> None:
    folder = Path(constraints.__file__).parent
    files = {file.stem for file in folder.glob("*.py") if not file.stem.startswith("_")}
    assert sorted(constraints.NAMES) == sorted(files)


def test_every_constraint_has_the_same_names() -> None:
    for module in constraints.ALL:
        assert module.__name__ == f"constraints.{module.NAME}"
        assert callable(module.require) and callable(module.because)
        assert module.__doc__ and module.__doc__.count("\n") >= 2, module.NAME


def test_every_constraint_has_a_test_file() -> None:
    here = Path(__file__).parent
    assert {f"test_{name}" for name in constraints.NAMES} <= {file.stem for file in here.glob("test_*.py")}
