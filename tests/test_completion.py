"""Shell completion: the scripts are printed, and what they ask for is answered."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import get_completion_class

from planner.cli import cli

ROOT = Path(__file__).parents[1]
START = "import sys; sys.argv = ['planner']; from planner.cli import main; main()"


def started(**variables: str) -> str:
    """What the installed command prints under these variables."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    done = subprocess.run(
        [sys.executable, "-c", START], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", "complete -o nosort -F _planner_completion planner"),
        ("zsh", "compdef _planner_completion planner"),
        ("fish", 'complete --no-files --command planner --arguments "(_planner_completion)"'),
    ],
)
def test_the_script_of_each_shell(shell: str, line: str) -> None:
    """Words in the order of the script; spaces and quotes differ between versions of click."""
    words = "".join(character if character.isalnum() or character in "_-" else " " for character in line).split()
    script = started(_PLANNER_COMPLETE=f"{shell}_source")
    at = 0
    for word in words:
        assert word in script[at:], word
        at = script.index(word, at)


def test_the_script_gets_its_answers() -> None:
    """`planner sol` and Tab."""
    answer = started(_PLANNER_COMPLETE="bash_complete", COMP_WORDS="planner sol", COMP_CWORD="1")
    assert answer == "plain,solve\n"


@pytest.mark.parametrize(
    ("before", "part", "expected"),
    [
        ([], "ver", ["verify"]),
        (["catalog"], "", ["check", "list", "show"]),
        (["solve"], "--fo", ["--format", "--force"]),
        (["solve", "--format"], "j", ["json"]),
    ],
)
def test_commands_options_and_values(before: list[str], part: str, expected: list[str]) -> None:
    kind = get_completion_class("zsh")
    assert kind is not None
    found = kind(cli, {}, "planner", "_PLANNER_COMPLETE").get_completions(before, part)
    assert [item.value for item in found] == expected
