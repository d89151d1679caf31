"""Files that a user names: what stands there instead of one, how much is read, and names that do not print."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.files import file_bytes, printable, yaml_files


def refused(path: Path, most: int = 100) -> str:
    with pytest.raises(InputError) as caught:
        file_bytes(path, most, "a list")
    return str(caught.value).replace(str(path.parent), "DIR")


def test_a_file_is_read_up_to_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_bytes(b"12345")
    assert file_bytes(path, 5, "a list") == b"12345"
    assert refused(path, 4) == "DIR/list: the file is too large; expected at most 4 bytes"


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "list").write_bytes(b"1")
    (tmp_path / "link").symlink_to("list")
    assert file_bytes(tmp_path / "link", 5, "a list") == b"1"


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    """Nobody writes to the pipe, and /dev/zero never ends."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    advice = "this is no regular file; expected a list; write it to a file first"
    assert refused(tmp_path / "pipe") == f"DIR/pipe: {advice}"
    assert refused(tmp_path / "endless") == f"DIR/endless: {advice}"
    assert refused(tmp_path / "folder") == "DIR/folder: this is a directory; expected a list"
    assert refused(tmp_path / "loop") == (
        "DIR/loop: cannot be read: Too many levels of symbolic links; expected a list"
    )
    assert refused(tmp_path / ("a" * 300)).endswith(": cannot be read: File name too long; expected a list")


def test_a_file_that_vanishes_is_a_missing_one(tmp_path: Path) -> None:
    path = tmp_path / "list"
    path.write_text("1")
    path.unlink()
    assert refused(path) == "DIR/list: there is no such file; expected a list"


def test_a_file_that_fails_while_it_is_read(tmp_path: Path) -> None:
    """A disk that fails: reading one's own memory at address 0 does the same."""
    if not Path("/proc/self/mem").exists():
        pytest.skip("no /proc here")
    (tmp_path / "list").symlink_to("/proc/self/mem")
    assert refused(tmp_path / "list") == "DIR/list: cannot be read: Input/output error; expected a list"


def test_folders_of_catalogs(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        yaml_files(tmp_path)
    assert str(caught.value) == f"{tmp_path}: the folder holds no YAML file; expected files ending in .yaml"
    for name in ("b.yaml", "a.yaml", "c.txt"):
        (tmp_path / name).write_text("")
    assert [path.name for path in yaml_files(tmp_path)] == ["a.yaml", "b.yaml"]
    assert yaml_files(tmp_path / "c.txt") == [tmp_path / "c.txt"]


@pytest.mark.parametrize(
    ("name", "shown"), [("llama", "llama"), ("a\nb", "a?b"), ("\x1b[31m", "?[31m"), ("\udc80", "?"), ("é", "é")]
)
def test_names_that_do_not_print(name: str, shown: str) -> None:
    assert printable(name) == shown
