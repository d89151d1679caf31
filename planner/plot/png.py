"""A picture as PNG, painted with Pillow on a canvas of twice the size."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

from planner.errors import InputError
from planner.plot.drawing import HEIGHT, WIDTH, Line, Marker, Place, Words, draw
from planner.plot.picture import Picture
from planner.plot.svg import RADIUS, corners_of

if TYPE_CHECKING:
    from PIL import ImageDraw, ImageFont
    from PIL.Image import Image

SIZE = 2  # pixels for one of the drawing's
INK = {"frame": "#555555", "grid": "#e3e3e3", "label": "#333333", "axis": "#333333", "title": "#111111"}
LETTERS = {"label": 13, "axis": 14, "title": 17}
ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
DASH = 6.0


def png_bytes(picture: Picture) -> bytes:
    """The whole PNG file. Raises InputError where Pillow is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        hint = "pip install 'planner[plot]', or take --plot FILE.svg"
        raise InputError("PNG needs Pillow, which is not installed", path="--plot", hint=hint) from None
    image = Image.new("RGB", (WIDTH * SIZE, HEIGHT * SIZE), "white")
    pen = ImageDraw.Draw(image)
    for shape in draw(picture):
        if isinstance(shape, Line):
            _line(pen, shape)
        elif isinstance(shape, Marker):
            _marker(pen, shape)
        else:
            _words(image, pen, shape)
    out = BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()


def _scaled(places: tuple[Place, ...]) -> list[Place]:
    """Places in pixels of the image."""
    return [(x * SIZE, y * SIZE) for x, y in places]


def _line(pen: ImageDraw.ImageDraw, line: Line) -> None:
    """A polyline; limits are dashed."""
    colour = line.colour or INK[line.role]
    if line.role != "limit":
        pen.line(_scaled(line.places), fill=colour, width=SIZE * (2 if line.role == "series" else 1), joint="curve")
        return
    (x, bottom), (_, top) = line.places
    while bottom > top:
        end = max(top, bottom - DASH)
        pen.line(_scaled(((x, bottom), (x, end))), fill=colour, width=SIZE)
        bottom = end - DASH * 2 / 3


def _marker(pen: ImageDraw.ImageDraw, marker: Marker) -> None:
    """A filled marker."""
    x, y = marker.place
    if marker.shape == "circle":
        pen.ellipse(_scaled(((x - RADIUS, y - RADIUS), (x + RADIUS, y + RADIUS))), fill=marker.colour)
        return
    pen.polygon(_scaled(corners_of(marker.place, marker.shape, RADIUS)), fill=marker.colour)


def _words(image: Image, pen: ImageDraw.ImageDraw, words: Words) -> None:
    """Text, turned upwards where it says so."""
    from PIL import Image as Images
    from PIL import ImageDraw

    font, ink = _font(LETTERS[words.role] * SIZE), INK[words.role]
    (x, y) = _scaled((words.place,))[0]
    if not words.turned:
        pen.text((x, y), words.text, fill=ink, font=font, anchor=ANCHORS[words.anchor])
        return
    length, height = int(pen.textlength(words.text, font=font)) + 4, LETTERS[words.role] * SIZE * 2
    strip = Images.new("RGB", (length, height), "white")
    ImageDraw.Draw(strip).text((2, height * 3 // 4), words.text, fill=ink, font=font, anchor="ls")
    turned = strip.rotate(90, expand=True)
    image.paste(turned, (int(x - height * 3 / 4), int(y - length / 2)))


def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    """Pillow's own font at a size."""
    from PIL import ImageFont

    return ImageFont.load_default(size)
