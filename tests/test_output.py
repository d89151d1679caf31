"""Files appear whole or not at all, all of a set or none."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from planner.errors import InputError, InternalError
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


def test_a_set_of_files_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at the second file: the first one does not appear either, and old ones stay."""
    (tmp_path / "one").write_text("old")
    calls: list[int] = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(InputError) as failure:
        write_files(tmp_path, {"one": "1", "two": "2"}, force=True)
    assert str(failure.value) == f"--out: cannot write {tmp_path}: No space left on device"
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("one", "old")]


@pytest.mark.parametrize("name", ["../x", "/x", "a/b", "..", ".", ""])
def test_no_name_leads_out_of_the_folder(name: str, tmp_path: Path) -> None:
    with pytest.raises(InternalError) as failure:
        write_files(tmp_path / "in", {name: "1"}, force=True)
    assert str(failure.value) == f"internal error: '{name}' is no name of a file in a folder"
    assert list(tmp_path.iterdir()) == []


def test_a_link_is_replaced_and_what_it_leads_to_stays(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "one").symlink_to("kept")
    with pytest.raises(InputError):
        write_files(tmp_path, {"one": "1"})
    write_files(tmp_path, {"one": "1"}, force=True)
    assert (tmp_path / "kept").read_text() == "old"
    assert not (tmp_path / "one").is_symlink() and (tmp_path / "one").read_text() == "1"


def test_a_link_to_nothing_is_something_that_exists(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("nowhere")
    with pytest.raises(InputError) as failure:
        write_files(tmp_path, {"one": "1"})
    assert str(failure.value) == f"--out: {tmp_path / 'one'} exists; --force writes over it"


def test_a_file_in_the_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError) as failure:
        write_files(tmp_path / "out", {"one": "1"})
    assert str(failure.value) == f"--out: cannot write {tmp_path / 'out'}: File exists"


def test_a_folder_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    with pytest.raises(InputError, match="cannot write .*: Is a directory"):
        write_files(tmp_path, {"one": "1"}, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot write .*: File name too long"):
        write_files(tmp_path, {"a" * 300: "1"})
    assert list(tmp_path.iterdir()) == []


def test_bytes_are_written_as_they_are(tmp_path: Path) -> None:
    assert write_files(tmp_path, {"one": b"\x00\xff"})[0].read_bytes() == b"\x00\xff"


def test_a_folder_that_stays_taken_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import fcntl

    monkeypatch.setattr("planner.output.PAUSE", 0.0)
    handle = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(InputError) as failure:
            write_files(tmp_path, {"one": "1"})
    finally:
        os.close(handle)
    assert str(failure.value) == f"--out: another process writes into {tmp_path}; try again"
    assert write_files(tmp_path, {"one": "1"})


def test_an_interrupt_waits_until_the_files_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGINT comes between the two files."""
    fsync, calls = os.fsync, []

    def interrupted(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 1:
            os.kill(os.getpid(), signal.SIGINT)
        fsync(handle)

    monkeypatch.setattr("os.fsync", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background is born ignoring it
    try:
        with pytest.raises(KeyboardInterrupt):
            write_files(tmp_path, {"one": "1", "two": "2"})
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
