"""A picture into a file, in the form that the file's name says."""

from __future__ import annotations

from pathlib import Path

from planner.errors import InputError
from planner.output import is_taken, write_files
from planner.plot.picture import Picture

FORMS = (".svg", ".png", ".html")


def check_plot(path: Path, force: bool) -> None:
    """InputError for a form that is not drawn and for a file that exists, before anything is computed."""
    if path.suffix.lower() not in FORMS:
        raise InputError(f"cannot draw {path.name}", path="--plot", expected="a file ending in " + ", ".join(FORMS))
    if is_taken(path) and not force:
        raise InputError(f"{path} exists", path="--plot", hint="--force writes over it")


def write_plot(picture: Picture, path: Path, force: bool) -> Path:
    """Writes the picture; returns its path. Raises InputError as `check_plot` does."""
    from planner.plot.html import html_text
    from planner.plot.svg import svg_text

    check_plot(path, force)
    form = path.suffix.lower()
    if form == ".png":
        return _write_png(picture, path, force)
    text = svg_text(picture) if form == ".svg" else html_text(picture)
    return write_files(path.parent, {path.name: text}, force)[0]


def _write_png(picture: Picture, path: Path, force: bool) -> Path:
    """The PNG."""
    from planner.plot.png import png_bytes

    return write_files(path.parent, {path.name: png_bytes(picture)}, force)[0]
