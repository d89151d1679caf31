"""What no input may do: reach the network, write outside the folder it was given, run code, or break out of a page."""

from __future__ import annotations

import ast
import json
import re
import shutil
import socket
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from planner.emit.targets import NAMES
from tests.commands import run

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
SOURCES = sorted([*(ROOT / "planner").rglob("*.py"), *(ROOT / "constraints").rglob("*.py")])
SCRIPT = "<script>alert(1)</script>"


# ── the source ───────────────────────────────────────────────────────────────────────────────────────────────────────


@cache
def calls(path: Path) -> tuple[tuple[str, ast.Call], ...]:
    """Every call of a file with its dotted name."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return tuple((ast.unparse(node.func), node) for node in ast.walk(tree) if isinstance(node, ast.Call))


def found(wanted: re.Pattern[str]) -> list[str]:
    """Places of calls whose name matches."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno} {name}"
        for path in SOURCES
        for name, node in calls(path)
        if wanted.fullmatch(name)
    ]


def test_nothing_that_runs_text_is_called() -> None:
    pattern = r"eval|exec|compile|__import__|os\.system|os\.popen|pickle\.\w+|marshal\.\w+|shelve\.\w+|torch\.load"
    assert found(re.compile(pattern)) == []


def test_yaml_is_read_without_tags() -> None:
    """`yaml.parse` gives events only; objects are never made of them."""
    pattern = r"yaml\.(load|load_all|unsafe_load\w*|full_load\w*|UnsafeLoader|Loader|FullLoader|CLoader)"
    assert found(re.compile(pattern)) == []


def test_no_command_goes_through_a_shell() -> None:
    shells = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in SOURCES
        for _, node in calls(path)
        for word in node.keywords
        if word.arg == "shell"
    ]
    assert shells == []


def test_nothing_speaks_to_the_network() -> None:
    """Modules that open connections are imported nowhere but where ranks on this machine look for a free port."""
    names = r"socket|ssl|urllib\.request|http|ftplib|smtplib|requests|httpx|aiohttp"
    pattern = re.compile(rf"^\s*(?:import|from)\s+(?:{names})\b")
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in SOURCES
        if path.relative_to(ROOT).as_posix() != "planner/calibrate/measure.py"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1)
        if pattern.search(line)
    ]
    assert lines == []


# ── the network ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def unplugged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which every connection and every look-up of a name fails the test."""

    def refused(*_: Any, **__: Any) -> None:
        pytest.fail("a command used the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    monkeypatch.setattr(socket.socket, "connect_ex", refused)
    monkeypatch.setattr(socket.socket, "bind", refused)
    monkeypatch.setattr(socket.socket, "sendto", refused)
    monkeypatch.setattr(socket, "getaddrinfo", refused)
    monkeypatch.setattr(socket, "create_connection", refused)


TINY = str(EXAMPLES / "tiny.yaml")
FILE = str(ROOT / "tests" / "data" / "ds_configs" / "34_zero4.json")


@pytest.mark.usefixtures("unplugged")
@pytest.mark.parametrize(
    "words",
    [
        ("solve", TINY), ("ledger", TINY), ("pareto", TINY), ("explain", TINY), ("emit", TINY, "--to", "deepspeed"),
        ("check", FILE, "--job", TINY), ("compare", TINY, "--sequence-length", "64,128"), ("report", TINY, "-o", "OUT"),
        ("catalog", "list"), ("schema",),
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_no_command_uses_the_network(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, _ = run(capsys, *(str(tmp_path / "page.html") if word == "OUT" else word for word in words))
    assert code == 0
    assert out or (tmp_path / "page.html").exists()


# ── names that lead elsewhere ────────────────────────────────────────────────────────────────────────────────────────


def hostile(folder: Path, name: str) -> Path:
    """The tiny job under a file name, with its model in a folder of a name that is a script."""
    inside = folder / SCRIPT.replace("/", "∕")
    inside.mkdir(parents=True)
    shutil.copy(EXAMPLES / "tiny" / "config.json", inside)
    path = folder / f"{name}.yaml"
    text = Path(TINY).read_text(encoding="utf-8").replace("tiny/config.json", json.dumps(f"{inside.name}/config.json"))
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("target", [name for name in NAMES if name not in ("megatron", "fsdp2")])
def test_emitted_files_stay_in_their_folder(target: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The job is called `..`, with a line end, a command and a flag behind it."""
    path = hostile(tmp_path / "in", "..\n#SBATCH --uid=0; $(touch x) `id` '\"")
    code, _, err = run(capsys, "emit", str(path), "--to", target, "--out", str(tmp_path / "out"))
    assert code == 0, err
    assert sorted(item.name for item in tmp_path.iterdir()) == ["in", "out"]
    written = [item for item in (tmp_path / "out").rglob("*") if item.is_file()]
    assert written and all(item.parent == tmp_path / "out" for item in written)
    for item in written:
        if item.suffix in (".sh", ".sbatch"):
            assert "--uid=0;" not in item.read_text() and "$(touch" not in item.read_text()


@pytest.mark.parametrize("model", ["../../x", "/etc/passwd", "..", "a/../../b", "~/x"])
def test_a_model_is_a_name_and_no_path(model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        f"model: {json.dumps(model)}\ncluster: {{node: dgx-a100-80gb}}\n"
        "training: {sequence_length: 512, global_batch: 8}\n"
    )
    code, out, err = run(capsys, "solve", str(path), "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert err.startswith(f"planner: {path}:1:8: model: unknown model '{model}'; ")
    assert [item.name for item in tmp_path.iterdir()] == ["job.yaml"]


@pytest.mark.parametrize(
    "words",
    [("solve", "--set", "../x=1"), ("emit", "--to", "../../x"), ("catalog", "show", "models", "../../etc/passwd"),
     ("catalog", "list", "../techniques"), ("catalog", "show", "techniques", "../gpus")],
)  # fmt: skip
def test_words_of_the_command_line_are_no_paths(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    job = [] if words[0] == "catalog" else [TINY]
    code, out, err = run(capsys, words[0], *job, *words[1:])
    assert (code, out) == (2, "")
    assert "unknown" in err


def test_a_runtime_is_a_name_and_no_path(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "model: llama-2-7b\ncluster: {node: dgx-a100-80gb}\n"
        "training: {sequence_length: 512, global_batch: 8, runtime: ../gpus}\n"
    )
    code, _, err = run(capsys, "solve", str(path))
    assert code == 2
    assert err.startswith(f"planner: {path}:3:60: training.runtime: unknown runtime '../gpus'; expected one of ddp, ")


# ── pages ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Page(HTMLParser):
    """What stands on a page: elements with their attributes, and the text inside scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Every element."""
        self.elements.append((tag, dict(attrs)))

    def count(self, tag: str) -> int:
        """How many elements of a kind."""
        return sum(found == tag for found, _ in self.elements)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The page of a plain job, and that of one whose job and model are called like a script."""
    from planner.cli import main

    folder = tmp_path_factory.mktemp("pages")
    texts = []
    for number, job in enumerate((Path(TINY), hostile(folder / "in", SCRIPT.replace("/", "∕") + "\"'><img src=x>"))):
        page = folder / f"{number}.html"
        main(["report", str(job), "-o", str(page)])
        texts.append(page.read_text(encoding="utf-8"))
    return texts[0], texts[1]


def test_names_break_out_of_no_page(pages: tuple[str, str]) -> None:
    """The same elements with the same handlers, whatever the names."""
    plain, named = (Page(text) for text in pages)
    assert "alert(1)" in pages[1]
    assert "<script>alert" not in pages[1]
    for tag in ("script", "style", "img", "iframe", "a", "form", "link", "object", "svg"):
        assert named.count(tag) == plain.count(tag), tag
    for _, attributes in named.elements:
        assert not [name for name in attributes if name.startswith("on")]


def test_a_page_fetches_nothing(pages: tuple[str, str]) -> None:
    for tag, attributes in Page(pages[1]).elements:
        for name in ("src", "href", "action", "data", "xlink:href"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:")) or not value, (tag, name, value)
    assert "default-src 'none'" in pages[1]


def test_pictures_escape_names(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    import xml.etree.ElementTree as tree

    job = hostile(tmp_path / "in", SCRIPT.replace("/", "∕"))
    for name in ("plot.svg", "plot.html"):
        code, _, err = run(capsys, "pareto", str(job), "--plot", str(tmp_path / name))
        assert code == 0, err
        assert "<script>alert" not in (tmp_path / name).read_text(encoding="utf-8")
    tree.parse(tmp_path / "plot.svg")
