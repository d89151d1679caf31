"""The file's name says the form; nothing is written over unless told so."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.plot.files import check_plot, write_plot
from tests.plot.pictures import PICTURE


@pytest.mark.parametrize(("name", "start"), [("a.svg", b"<svg"), ("a.html", b"<!DOCTYPE html>"), ("A.PNG", b"\x89PNG")])
def test_the_form_follows_the_name(tmp_path: Path, name: str, start: bytes) -> None:
    if name.lower().endswith("png"):
        pytest.importorskip("PIL")
    path = write_plot(PICTURE, tmp_path / "pictures" / name, force=False)
    assert path.read_bytes().startswith(start)
    assert [item.name for item in path.parent.iterdir()] == [name]


def test_an_unknown_form(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        check_plot(tmp_path / "a.pdf", force=False)
    assert str(caught.value) == "--plot: cannot draw a.pdf; expected a file ending in .svg, .png, .html"


def test_a_file_that_exists_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    path.write_text("mine")
    with pytest.raises(InputError) as caught:
        write_plot(PICTURE, path, force=False)
    assert str(caught.value) == f"--plot: {path} exists; --force writes over it"
    assert path.read_text() == "mine"
    write_plot(PICTURE, path, force=True)
    assert path.read_text().startswith("<svg")
