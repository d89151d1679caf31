"""Every page of docs/how-to/ and the tutorial does what it says: its files are written, its commands run in order.

A ```LANGUAGE file=NAME block is a file. In a ```console block a line `$ COMMAND` is run (`# exits with N` says another
exit code than 0), and each line below it stands in the output, in that order; `...` stands for any text.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from commands import run as run_planner

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs" / "how-to").glob("[a-z]*.md")), ROOT / "docs" / "tutorial.md"]
BLOCK = re.compile(r"^```(\w+)(?: file=(\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# As the installed command is started: the folder it is run in is no place that modules come from.
SCRIPT = f"""#!{sys.executable}
import sys
sys.path.append({str(ROOT)!r})
"""
PLANNER = f"{SCRIPT}from planner.cli import main\nmain()\n"
PYTHON = f"{SCRIPT}exec(sys.argv[2])\n"
# What stands in for Slurm's own command, which names the nodes of a job.
SCONTROL = "#!/bin/sh\nprintf 'a01\\na02\\n'\n"


@dataclass(frozen=True)
class Command:
    """A command of a page, the exit code that it ends with, and the lines of its output."""

    text: str
    code: int
    lines: tuple[str, ...]


def steps(page: Path) -> Iterator[tuple[str, str] | Command]:
    """(name, content) of the files and the commands of a page, in order."""
    for language, name, content in BLOCK.findall(page.read_text(encoding="utf-8")):
        if name:
            yield name, content
        elif language == "console":
            yield from commands(content)


def commands(block: str) -> Iterator[Command]:
    """The commands of a block with the lines below each."""
    for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        first, *lines = part.splitlines()
        text, _, comment = first.partition("  # exits with ")
        yield Command(text, int(comment or 0), tuple(line.strip() for line in lines if line.strip()))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder beside one with the commands that pages use."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, content in (("planner", PLANNER), ("python3", PYTHON), ("scontrol", SCONTROL)):
        (folder / name).write_text(content, encoding="utf-8")
        (folder / name).chmod(0o755 | stat.S_IXUSR)
    (tmp_path / "empty").mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "a[01-02]")
    monkeypatch.chdir(tmp_path / "empty")
    return tmp_path / "empty"


def run(command: Command, place: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Standard output and error of a command, with the exit code that the page says; planner's own in this process."""
    words = shlex.split(command.text)
    if words[0] == "planner":
        code, answer, rest = run_planner(capsys, *words[1:])
        output = answer + rest
    else:
        code, output = run_in_shell(command.text, place)
    assert code == command.code, f"{command.text}\n{output}"
    return output


def run_in_shell(command: str, place: Path) -> tuple[int, str]:
    """(exit code, output) of anything else."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run(
        ["bash", "-c", command], cwd=place, env=environment, text=True, timeout=120, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    return found.returncode, found.stdout


def missing(lines: tuple[str, ...], output: str) -> str:
    """The first line that does not stand in the output after those before it; empty where all do."""
    rest = iter([" ".join(line.split()) for line in output.splitlines()])
    for line in lines:
        pattern = re.escape(" ".join(line.split())).replace(r"\ \.\.\.\ ", ".* ").replace(r"\.\.\.", ".*")
        if not any(re.fullmatch(pattern, known) for known in rest):
            return line
    return ""


@pytest.mark.skipif(shutil.which("bash") is None, reason="the pages' commands are those of a POSIX shell")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_does_what_it_says(page: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ran = 0
    for step in steps(page):
        if isinstance(step, Command):
            output = run(step, place, capsys)
            assert not missing(step.lines, output), f"{step.text}: {missing(step.lines, output)}\n{output}"
            ran += 1
            continue
        name, content = step
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(content, encoding="utf-8")
    assert ran > 0


def test_every_page_is_listed() -> None:
    text = (ROOT / "docs" / "how-to" / "README.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.stem != "tutorial" and f"({page.name})" not in text] == []


def test_lines_are_found_in_order() -> None:
    assert missing(("a ... c", "d"), "a  b  c\n  d\n") == ""
    assert missing(("d", "a ... c"), "a b c\nd\n") == "a ... c"
    assert missing(("1 files: ...",), "11 files: ok\n") == "1 files: ..."
