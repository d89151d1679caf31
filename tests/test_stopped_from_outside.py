"""Commands that are stopped from outside: signals, full and read-only disks, readers that go, two at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from planner.cli import TRACEBACK, main
from tests.commands import run

ROOT = Path(__file__).parents[1]
JOB = str(ROOT / "examples" / "tiny.yaml")
LARGE = str(ROOT / "examples" / "llama-2-70b-64xa100.yaml")
PLANNER = (sys.executable, "-m", "planner")
FILES = ["deepspeed.json", "plan.json", "plan.txt"]


def names(folder: Path) -> list[str]:
    """What stands in a folder."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def started(*words: str, **more: object) -> subprocess.Popen[str]:
    """A command in a process of its own."""
    return subprocess.Popen(
        [*PLANNER, *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,  # type: ignore[call-overload]
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("seconds", [0.3, 1.2])
def test_a_signal_leaves_nothing_half_written(number: int, seconds: float, tmp_path: Path) -> None:
    """Wherever the signal comes, all files are there or none, and there is no traceback."""
    with started("solve", LARGE, "--out", str(tmp_path / "out")) as process:
        time.sleep(seconds)
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
    assert "Traceback" not in err or "planner" not in err  # while Python itself starts it has a word of its own
    assert names(tmp_path / "out") in ([], FILES)
    for name in names(tmp_path / "out"):
        assert (tmp_path / "out" / name).stat().st_size > 0
    allowed = (0, 4, -number, 130, 128 + number)
    assert process.returncode in allowed, err


def test_an_interrupt_while_the_solver_loads_is_no_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A library that is loading makes an error of its own of Ctrl-C, as extensions (ImportError) and pydantic do."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def interrupted(*_: object) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("initialization failed") from None

    monkeypatch.setattr("planner.shipped.names", interrupted)
    with pytest.raises(SystemExit) as left:
        main(["catalog", "list"])
    signal.signal(signal.SIGINT, before)
    assert (left.value.code, capsys.readouterr()) == (4, ("", ""))


def test_a_time_limit_that_is_too_short_still_answers(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The best plan so far, or word that there is none yet; files only with a plan."""
    code, out, err = run(
        capsys, "solve", LARGE, "--time-limit", "0.001", "--format", "json", "--out", str(tmp_path / "out")
    )
    assert code in (0, 4)
    if code == 0:
        assert json.loads(out)["status"] in ("optimal", "feasible")
        assert names(tmp_path / "out") == FILES
    else:
        assert err.startswith("planner: stopped without a plan: the time limit of 0.001 s")
        assert names(tmp_path / "out") == []


def test_a_reader_that_goes_ends_a_command_quietly() -> None:
    with started("catalog", "list") as process:
        assert process.stdout is not None
        process.stdout.close()
        err = process.stderr.read() if process.stderr else ""
        process.wait(timeout=60)
    assert (process.returncode in (0, 1), err) == (True, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_an_answer_that_does_not_fit_is_told() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run(
            [*PLANNER, "catalog", "list"], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    told = "planner: cannot read or write the answer: No space left on device\n"
    assert (process.returncode, process.stderr) == (2, told)


def test_a_full_disk_is_told_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    out = tmp_path / "out"
    for words, folder in (
        (("solve", JOB, "--out", str(out)), out),
        (("emit", JOB, "--to", "deepspeed", "--out", str(out)), out),
        (("report", JOB, "-o", str(out / "page.html")), out),
        (("pareto", JOB, "--plot", str(out / "plot.svg")), out),
    ):
        code, _, err = run(capsys, *words)
        assert (code, err.splitlines()[-1]) == (2, f"planner: --out: cannot write {folder}: No space left on device")
        assert names(folder) == []


@pytest.mark.skipif(os.getuid() == 0, reason="nothing is read-only for the root user")
def test_a_read_only_folder_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        code, _, err = run(capsys, "solve", JOB, "--out", str(tmp_path))
    finally:
        tmp_path.chmod(0o700)
    assert (code, err.splitlines()[-1]) == (2, f"planner: --out: cannot write {tmp_path}: Permission denied")
    assert names(tmp_path) == []


def test_a_folder_that_refuses_is_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the folder of another user or a disk mounted to be read only."""

    def refused(*_: object, dir: Path, **__: object) -> None:
        raise PermissionError(30, "Read-only file system", str(dir))

    monkeypatch.setattr("tempfile.mkstemp", refused)
    code, _, err = run(capsys, "solve", JOB, "--out", str(tmp_path))
    assert (code, err.splitlines()[-1]) == (2, f"planner: --out: cannot write {tmp_path}: Read-only file system")


def test_two_processes_never_mix_their_files(tmp_path: Path) -> None:
    """Both write into one folder, again and again; every set that is seen is that of one of them."""
    script = (
        "import sys; from pathlib import Path; from planner.output import write_files\n"
        "for number in range(40): write_files(Path(sys.argv[1]), {n: f'{sys.argv[2]}{number}' for n in 'abc'}, True)\n"
    )
    pair = [
        subprocess.Popen([sys.executable, "-c", script, str(tmp_path), who], cwd=ROOT) for who in ("one-", "other-")
    ]
    assert [process.wait(timeout=60) for process in pair] == [0, 0]
    assert names(tmp_path) == ["a", "b", "c"]
    assert len({(tmp_path / name).read_text() for name in "abc"}) == 1


def test_of_two_processes_the_second_does_not_write_over_the_first(tmp_path: Path) -> None:
    pair = [started("solve", JOB, "--out", str(tmp_path / "out")) for _ in range(2)]
    ends = []
    for process in pair:
        _, err = process.communicate(timeout=120)
        ends.append((process.returncode, err.splitlines()[-1]))
    ends.sort()
    assert [code for code, _ in ends] == [0, 2]
    assert ends[1][1].startswith(f"planner: --out: {tmp_path / 'out'}{os.sep}") and " exists; " in ends[1][1]
    assert names(tmp_path / "out") == FILES


def test_a_bug_is_told_in_one_line_and_raised_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(kind: str | None) -> None:
        raise KeyError("x")

    monkeypatch.setattr("planner.shipped.names", broken)
    monkeypatch.delenv(TRACEBACK, raising=False)
    told = "planner: a bug of the planner: KeyError: 'x'; PLANNER_TRACEBACK=1 shows where\n"
    assert run(capsys, "catalog", "list") == (70, "", told)
    monkeypatch.setenv(TRACEBACK, "1")
    with pytest.raises(KeyError):
        main(["catalog", "list"])
