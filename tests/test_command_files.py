"""Every command given a missing file, a folder or an empty file in the place of each it reads: the whole message."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.cli import cli
from tests.commands import run

ROOT = Path(__file__).parents[1]
TINY = str(ROOT / "examples" / "tiny.yaml")
DOCUMENT, MAPPING = "a YAML or JSON file", "a mapping"
RUNS, HEADER = "a CSV file", "a header line with column names"
CONFIGURATION = "a DeepSpeed JSON file"

# Commands with PATH where the file stands, what they expect there, and what of an empty one.
READING = {
    "solve": (("solve", "PATH"), DOCUMENT, MAPPING),
    "ledger": (("ledger", "PATH"), DOCUMENT, MAPPING),
    "pareto": (("pareto", "PATH"), DOCUMENT, MAPPING),
    "explain": (("explain", "PATH"), DOCUMENT, MAPPING),
    "compare": (("compare", "PATH", TINY), DOCUMENT, MAPPING),
    "report": (("report", "PATH", "-o", "OUT.html"), DOCUMENT, MAPPING),
    "emit": (("emit", "PATH", "--to", "deepspeed"), DOCUMENT, MAPPING),
    "launch": (("launch", "PATH", "--dry-run", "--", "train.py"), DOCUMENT, MAPPING),
    "verify": (("verify", "PATH"), DOCUMENT, MAPPING),
    "check": (("check", "PATH"), CONFIGURATION, ""),
    "check --job": (("check", str(ROOT / "examples" / "tiny" / "config.json"), "--job", "PATH"), DOCUMENT, MAPPING),
    "sweep": (("sweep", "PATH"), DOCUMENT, MAPPING),
    "accuracy": (("accuracy", "PATH"), RUNS, HEADER),
    "calibrate": (("calibrate", "PATH"), RUNS, HEADER),
}
CATALOGS = {
    name: (command, "--catalog", "PATH", *more)
    for name, command, *more in (
        ("solve", "solve", TINY), ("ledger", "ledger", TINY), ("pareto", "pareto", TINY), ("explain", "explain", TINY),
        ("compare", "compare", TINY, "--gpu", "h100-sxm-80gb"),
        ("report", "report", TINY, "-o", "OUT.html"),
        ("emit", "emit", TINY, "--to", "deepspeed"), ("launch", "launch", TINY, "--dry-run"),
        ("verify", "verify", TINY),
    )
}  # fmt: skip
# Commands that read no file of the user.
OTHERS = {"catalog", "schema", "trace"}


def told(capsys: pytest.CaptureFixture[str], words: tuple[str, ...], path: Path) -> str:
    """The message of a command that refuses; nothing goes to standard output."""
    given = [str(path) if word == "PATH" else word.replace("OUT", str(path.parent / "out")) for word in words]
    code, out, err = run(capsys, *given)
    assert (code, out) == (2, ""), err
    return err.replace(str(path), "PATH")


@pytest.mark.parametrize("name", READING)
def test_a_missing_file(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words, expected, _ = READING[name]
    assert told(capsys, words, tmp_path / "it") == f"planner: PATH: there is no such file; expected {expected}\n"


@pytest.mark.parametrize("name", READING)
def test_a_folder(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words, expected, _ = READING[name]
    (tmp_path / "it").mkdir()
    empty = "the folder holds no job file; expected files *.yaml, *.yml or *.json"
    message = empty if name in ("sweep", "verify") else f"this is a directory; expected {expected}"
    assert told(capsys, words, tmp_path / "it") == f"planner: PATH: {message}\n"


@pytest.mark.parametrize("name", [name for name, (_, _, empty) in READING.items() if empty])
def test_an_empty_file(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words, _, expected = READING[name]
    (tmp_path / "it").write_bytes(b"")
    assert told(capsys, words, tmp_path / "it") == f"planner: PATH: the file is empty; expected {expected}\n"


def test_an_empty_configuration_is_an_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What DeepSpeed makes of it is what was asked."""
    path = tmp_path / "ds.json"
    path.write_bytes(b"")
    code, out, err = run(capsys, "check", str(path))
    assert (code, err) == (0, "")
    assert out.startswith(f"{path}: error (1 errors, 0 warnings, 0 notes)\n")


@pytest.mark.parametrize("name", CATALOGS)
def test_catalogs(name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words, path = CATALOGS[name], tmp_path / "it"
    assert told(capsys, words, path) == "planner: PATH: there is no such file; expected a YAML or JSON file\n"
    path.write_bytes(b"")
    assert told(capsys, words, path) == "planner: PATH: the file is empty; expected a mapping\n"
    path.unlink()
    path.mkdir()
    assert told(capsys, words, path) == (
        "planner: PATH: the folder holds no YAML file; expected files ending in .yaml\n"
    )


@pytest.mark.parametrize("reason", ["missing", "folder", "empty"])
def test_a_model_beside_the_job(reason: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    job, path = tmp_path / "job.yaml", tmp_path / "config.json"
    job.write_text(Path(TINY).read_text().replace("tiny/config.json", "config.json"))
    message = {
        "missing": "there is no such file; expected a YAML or JSON file",
        "folder": "this is a directory; expected a YAML or JSON file",
        "empty": "the file is empty; expected a mapping",
    }[reason]
    if reason == "folder":
        path.mkdir()
    elif reason == "empty":
        path.write_bytes(b"")
    code, out, err = run(capsys, "solve", str(job))
    assert (code, out, err) == (2, "", f"planner: {path}: {message}\n")


def test_every_command_is_here() -> None:
    known = {words[0] for words, _, _ in READING.values()} | OTHERS
    assert [name for name in cli.commands if name not in known] == []
