"""Files appear whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.output import write_files


def test_writes_and_makes_the_folder(tmp_path: Path) -> None:
    paths = write_files(tmp_path / "a" / "b", {"one": "1\n", "two": "2\n"})
    assert [path.read_text() for path in paths] == ["1\n", "2\n"]


def test_nothing_is_written_where_one_file_exists(tmp_path: Path) -> None:
    (tmp_path / "two").write_text("old")
    with pytest.raises(InputError) as failure:
        write_files(tmp_path, {"one": "1", "two": "2"})
    assert str(failure.value) == f"--out: {tmp_path / 'two'} exists; --force writes over it"
    assert [path.name for path in tmp_path.iterdir()] == ["two"]


def test_a_failure_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError) as failure:
        write_files(tmp_path, {"one": "1"})
    assert str(failure.value) == f"--out: cannot write {tmp_path}: No space left on device"
    assert list(tmp_path.iterdir()) == []
