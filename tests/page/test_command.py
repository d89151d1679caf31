"""The command: one file, its exit codes, and pinned choices."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from planner.cli import main
from tests.page.reports import LARGE, SMALL, source


def run(*arguments: object) -> int:
    """The exit code of `planner report`."""
    try:
        main(["report", *map(str, arguments)])
    except SystemExit as leaving:
        return int(leaving.code or 0)
    return 0


def test_a_page_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job, out = source(SMALL).path, tmp_path / "report.html"
    assert run(job, "-o", out, "--set", "zero_stage=1") == 0
    assert capsys.readouterr() == ("", f"wrote {out}\n")
    text = out.read_text(encoding="utf-8")
    data = json.loads(re.findall(r'id="data">(.*?)</script>', text)[0])
    names = data["strings"]
    stages = {names[value] for plan in data["plans"] for name, value in plan["choices"] if names[name] == "zero_stage"}
    assert "1" in stages and "It fits." in text
    assert run(job, "-o", out) == 2
    assert out.read_text(encoding="utf-8") == text


def test_a_page_of_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "report.html"
    assert run(source(LARGE).path, "-o", out) == 3
    assert capsys.readouterr().err.startswith(f"wrote {out}\nplanner: no plan satisfies: ")
    assert "No plan exists: " in out.read_text(encoding="utf-8")
