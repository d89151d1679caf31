"""The page as one file: style, script and data inside, and a policy that lets nothing be fetched."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from planner.errors import InputError, InternalError
from planner.output import is_taken
from planner.page.data import Report, script_data
from planner.page.plans import Plans, job_line
from planner.page.sections import items, main_html, section, what_if
from planner.units import format_count

FORMS = (".html", ".htm")
MOST_BYTES = 2_000_000
FEWEST_POINTS = 4


def check_page(path: Path, force: bool) -> None:
    """InputError for a name that is no page's and for a file that exists, before anything is computed."""
    if path.suffix.lower() not in FORMS:
        raise InputError(f"{path.name} is no page", path="--output", expected="a file ending in .html")
    if is_taken(path) and not force:
        raise InputError(f"{path} exists", path="--output", hint="--force writes over it")


def page_html(found: Report) -> str:
    """The whole page, at most MOST_BYTES long: a frontier of very many points is thinned until it is."""
    text = _page(found)
    while len(text.encode()) > MOST_BYTES:
        if found.most_points < FEWEST_POINTS:
            raise InternalError(f"the page is longer than {MOST_BYTES} bytes with few points")
        found = replace(found, most_points=found.most_points // 2)
        text = _page(found)
    return text


def _page(found: Report) -> str:
    """The page, however long."""
    plans = Plans()
    asked, body = what_if(found, plans), main_html(found, plans)
    style, script = _text("page.css"), _text("page.js")
    return Template(_text("page.html")).substitute(
        policy=policy(style, script),
        title=escape(f"{found.job.name}: training plan"),
        heading=escape(_heading(found)),
        job=escape(job_line(found.shown)) if found.shown is not None else "",
        verdict=escape(_verdict(found)),
        what_if=asked,
        body=body,
        assumptions=_assumptions(found),
        style=style,
        script=script,
        data=embedded(script_data(found, plans)),
    )


def policy(style: str, script: str) -> str:
    """A content security policy: this style and this script alone, and nothing from anywhere."""
    return (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        f"base-uri 'none'; form-action 'none'"
    )


def embedded(data: Any) -> str:
    """JSON that cannot end the element it stands in, nor start another."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    unsafe: dict[str, int | str | None] = {
        "<": "\\u003c",
        ">": "\\u003e",
        "&": "\\u0026",
        "\u2028": "\\u2028",
        "\u2029": "\\u2029",
    }
    return text.translate(str.maketrans(unsafe))


def _hash(text: str) -> str:
    """The name of an inline element's text in a policy."""
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@lru_cache(maxsize=4)
def _text(name: str) -> str:
    """A file that ships beside this module."""
    return files("planner.page").joinpath(name).read_text(encoding="utf-8")


def _heading(found: Report) -> str:
    """Model and machines."""
    architecture, cluster = found.job.architecture, found.job.cluster
    parameters = format_count(architecture.parameters)
    return f"{architecture.name} ({parameters} parameters) on {cluster.gpus} × {cluster.gpu.name}"


def _verdict(found: Report) -> str:
    """The answer in a sentence."""
    if found.failure is not None:
        return f"No plan exists: {', '.join(found.failure.conflict)} cannot hold together."
    proven = found.frontier.proof.configurations if found.frontier is not None else 0
    what = "holds the least memory" if found.job.objective == "memory" else "is the fastest"
    return f"It fits. The plan below {what} of {proven:,} configurations, proven."


def _assumptions(found: Report) -> str:
    """What was assumed."""
    listed = items(found.job.assumptions)
    return section("assumptions", "Assumed", listed) if listed else ""
