"""Ways to spoil an input: data that a parser takes and a reader must not, text that no parser takes, odd files.

Everything is drawn from one seeded `Random`, so an input can be made again from its number.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import yaml

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -0.0, -1, 1, 2, 3, 7, 1.5, 1e-300, 5e-324, 1e15, 1e30, 1e300, 1e308, -1e308, 10**12, 10**18,
    10**19, 2**63, 2**64, 10**40, float("nan"), float("inf"), float("-inf"), "", " ", "x", "0", "-1", "1e999", "1e-999",
    "9" * 60, "nan", "inf", ".inf", "none", "auto", "same", "full", "~", "null", "true", "yes", "8 GiB", "1e30 GiB",
    "0 GiB", "-8 GiB", "8GiB", "8 XiB", "1e18 B", "200 Gbit/s", "1e-300 GB/s", "1e30 GB/s", "10 us", "1e-30 s",
    "7B", "1e400B", "é", "零", "٣", "²", "𝟗", "Ⅷ", "\u202e", "\u200b", "\U0001f600", "a\nb", "a\tb", "\x1b[31m",
    "../../x", "/etc/passwd", "config.json", "overlay.yaml", "nowhere.json", ".", "..", "~/x.json", "a" * 300,
    "a" * 5000,
    "<script>alert(1)</script>", "%s%n{0}{}", "$(id)", "`id`", "'; drop", "!!python/object:os.system", "*a", "&a", "<<",
    [], {}, [[]], [None], [{}], {"": None}, {"a": 1}, [1, 2], ["a"], [[[[1]]]], {"min": 8, "max": 1}, [0] * 1000,
    {"lora": {"rank": 0}}, {"parameters": 1, "layers": 1}, {"lora": {}, "qlora": {}}, ["none", "none"], [1, 1.0, True],
)  # fmt: skip
TEXTS = (
    "\x00", "\ufeff", "\r\n", "\r", "\t", "\x0b", "\x85", "\u2028", "\x1b[2J", "\ufffe", "🦄", "ı", "ß", "\"", "'",
    "{", "}", "[", "]", ":", ": ", ",", "#", "&a ", "*a", "<<: *a\n", "!!str ", "!!python/name:os.system ",
    "---\n", "...\n", "%YAML 9\n", "? ", "- ", "|\n", ">\n", "//x\n", "/*", "*/", "NaN", "-Infinity", "1e999",
    "9" * 5000, "\\", "\\u0000",
    "\\ud800", "@", "`",
)  # fmt: skip

DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
Place = tuple["str | int", ...]


def places(data: Any, at: Place = ()) -> list[Place]:
    """The path of every value inside the data, the whole first."""
    found: list[Place] = [at]
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for step, value in inside:
        found += places(value, (*at, step))
    return found


def value_at(data: Any, place: Place) -> Any:
    """The value at a path."""
    for step in place:
        data = data[step]
    return data


def put(data: Any, place: Place, value: Any) -> Any:
    """The data with another value at a path."""
    if not place:
        return value
    value_at(data, place[:-1])[place[-1]] = value
    return data


def strange(draw: Random) -> Any:
    """A value that fits nowhere, or only seems to; a copy, since it is changed later."""
    found = draw.choice(STRANGE)
    if isinstance(found, (dict, list)):
        return json.loads(json.dumps(found))
    return found


# ── data ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def replaced(draw: Random, data: Any) -> Any:
    """A strange value in place of another."""
    return put(data, draw.choice(places(data)), strange(draw))


def scaled(draw: Random, data: Any) -> Any:
    """A number changed by orders of magnitude, or by a little."""
    numbers = [place for place in places(data) if type(value_at(data, place)) in (int, float)]
    if not numbers:
        return replaced(draw, data)
    place = draw.choice(numbers)
    value = value_at(data, place)
    changes = (
        value + 1,
        value - 1,
        -value,
        value * 10 ** draw.randint(1, 20),
        value * 10.0 ** -draw.randint(1, 20),
        value / 3,
    )
    return put(data, place, draw.choice(changes))


def removed(draw: Random, data: Any) -> Any:
    """A key or an item less."""
    inner = [place for place in places(data) if place]
    if not inner:
        return strange(draw)
    place = draw.choice(inner)
    del value_at(data, place[:-1])[place[-1]]
    return data


def renamed(draw: Random, data: Any) -> Any:
    """A key spelled wrongly or strangely."""
    keyed = [place for place in places(data) if place and isinstance(place[-1], str)]
    if not keyed:
        return strange(draw)
    place = draw.choice(keyed)
    name, inside = str(place[-1]), value_at(data, place[:-1])
    cut = draw.randrange(len(name) + 1)
    names = (
        name[:cut] + name[cut + 1 :],
        name[:cut] + draw.choice("_xX.-é") + name[cut:],
        name.upper(),
        f"{name} ",
        "",
        "<<",
        "é",
    )
    inside[draw.choice(names)] = inside.pop(name)
    return data


def added(draw: Random, data: Any) -> Any:
    """A key or item that is not known, or many of them."""
    holders = [place for place in places(data) if isinstance(value_at(data, place), (dict, list))]
    if not holders:
        return strange(draw)
    inside = value_at(data, draw.choice(holders))
    for number in range(draw.choice((1, 1, 1, 2, 500))):
        if isinstance(inside, list):
            inside.append(strange(draw))
        else:
            inside[f"{draw.choice(('x', 'layers', 'needs', 'values', 'é', ' '))}{number or ''}"] = strange(draw)
    return data


def wrapped(draw: Random, data: Any) -> Any:
    """A value inside lists or mappings, up to a hundred of them."""
    place = draw.choice(places(data))
    value = value_at(data, place)
    for _ in range(draw.choice((1, 1, 2, 100))):
        value = [value] if draw.random() < 0.5 else {"x": value}
    return put(data, place, value)


def swapped(draw: Random, data: Any) -> Any:
    """One value in the place of another as well."""
    found = places(data)
    value = json.loads(json.dumps(value_at(data, draw.choice(found)), default=str))
    return put(data, draw.choice(found), value)


DATA: tuple[Callable[[Random, Any], Any], ...] = (
    replaced,
    replaced,
    scaled,
    scaled,
    removed,
    renamed,
    added,
    wrapped,
    swapped,
)


def spoiled_data(draw: Random, data: Any) -> Any:
    """The data after one to three changes."""
    data = json.loads(json.dumps(data))
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        data = draw.choice(DATA)(draw, data)
    return data


def as_text(draw: Random, data: Any, form: str) -> str:
    """The data as JSON, or as YAML in either style."""
    if form == "json":
        return json.dumps(data, indent=draw.choice((None, 1, 2)), ensure_ascii=draw.random() < 0.5)
    style = draw.choice((None, True, False))
    return str(yaml.dump(data, Dumper=DUMPER, sort_keys=False, allow_unicode=True, default_flow_style=style))


# ── text ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def inserted(draw: Random, text: str) -> str:
    """Something that does not belong there."""
    at = draw.randrange(len(text) + 1)
    return text[:at] + draw.choice(TEXTS) * draw.choice((1, 1, 1, 70)) + text[at:]


def cut(draw: Random, text: str) -> str:
    """A stretch less."""
    first, last = sorted((draw.randrange(len(text) + 1), draw.randrange(len(text) + 1)))
    return text[:first] + (text[last:] if draw.random() < 0.5 else "")


def doubled(draw: Random, text: str) -> str:
    """A line twice, or two lines in each other's place."""
    lines = text.splitlines(keepends=True) or [""]
    one, other = draw.randrange(len(lines)), draw.randrange(len(lines))
    if draw.random() < 0.5:
        return "".join([*lines[:one], lines[one], *lines[one:]])
    lines[one], lines[other] = lines[other], lines[one]
    return "".join(lines)


def line_ends(draw: Random, text: str) -> str:
    """Other line ends, tabs for spaces, or a byte order mark."""
    return draw.choice(
        ("\ufeff" + text, text.replace("\n", "\r\n"), text.replace("\n", "\r"), text.replace("  ", "\t"))
    )


def bomb(draw: Random, text: str) -> str:
    """Aliases of aliases of aliases."""
    width, depth = draw.choice(((10, 9), (2, 40), (100, 4)))
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * width)}]" for n in range(1, depth)]
    return "\n".join(lines) + "\n" + text


def deep(draw: Random, text: str) -> str:
    """Nested very deeply."""
    opening = draw.choice(("[", "{", '{"a":', "- ", "a: {", "[{"))
    return opening * draw.choice((60, 70, 1000, 20_000)) + text


def long(draw: Random, text: str) -> str:
    """Many lines, or a very long one."""
    line = draw.choice(("# x\n", "\n", "x: 1\n", "- \n", " ", "x", '"x": 1,\n', "//\n", "'"))
    return draw.choice((text + line * 20_000, line * 20_000 + text))


TEXT: tuple[Callable[[Random, str], str], ...] = (
    inserted,
    inserted,
    inserted,
    cut,
    cut,
    doubled,
    doubled,
    line_ends,
    bomb,
    deep,
)


def spoiled_bytes(draw: Random, text: str) -> bytes:
    """The text after one to three changes, now and then in another encoding or with other bytes."""
    for _ in range(draw.choice((1, 1, 2, 3))):
        text = (long if draw.random() < 0.02 else draw.choice(TEXT))(draw, text)
    if draw.random() < 0.03:
        return text.encode(draw.choice(("utf-16", "utf-32", "utf-7")), "surrogatepass")
    raw = bytearray(text.encode("utf-8", "surrogatepass"))
    for _ in range(draw.choice((0, 0, 0, 1, 5)) if raw else 0):
        raw[draw.randrange(len(raw))] = draw.randrange(256)
    return bytes(raw)


# ── files ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _fifo(path: Path) -> None:
    os.mkfifo(path)


def _huge(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(100_000_000)


def _loop(path: Path) -> None:
    path.symlink_to(path.name)


def _secret(path: Path) -> None:
    path.write_text("a: 1\n", encoding="utf-8")
    path.chmod(0)


# Things that may stand where a file is expected.
ODD: Mapping[str, Callable[[Path], None]] = {
    "nothing": lambda path: None,
    "empty": lambda path: path.write_bytes(b"") and None,
    "blank": lambda path: path.write_bytes(b" \n\t\n") and None,
    "directory": lambda path: path.mkdir(),
    "pipe": _fifo,
    "100 MB": _huge,
    "link to itself": _loop,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to a directory": lambda path: path.symlink_to("/tmp"),
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "null device": lambda path: path.symlink_to("/dev/null"),
    "process memory": lambda path: path.symlink_to("/proc/self/mem"),
    "unreadable": _secret,
}  # fmt: skip
