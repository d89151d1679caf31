"""Tries many spoiled inputs in a few processes and keeps the outcome of each: accepted, refused with a place, or bad.

`python -m tests.fuzz.driver --inputs 100000 --record docs/quality.md` writes the record; `--first NUMBER --inputs 1`
tries one input again.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import process_time
from types import FrameType

from planner.cli import TRACEBACK
from planner.cli import main as command
from planner.errors import InputError, PlannerError
from tests.fuzz.kinds import KINDS, Kind
from tests.fuzz.mutators import ODD

# Of the processor; what waits without working is stopped after a minute of the clock.
SECONDS = 5.0
WAITING = 60.0
SOLVE_SECONDS = 30.0
MEBIBYTE = 2**20
LONGEST_MESSAGE = 2000
CODES = (0, 1, 2, 3, 4)
# A message that names what should stand there needs no more advice.
ADVICE = re.compile(r"\bexpected\b|^missing key ")
ODD_SHARE = 0.03
# After so many inputs the record is written again.
STRETCH = 1000
SECTION = "## Fuzz\n"


class Hang(BaseException):
    """An input took longer than it may."""


@dataclass(frozen=True)
class Bad:
    """An input that was answered wrongly: how it can be made again, and what happened."""

    number: int
    kind: str
    what: str

    def __str__(self) -> str:
        return f"input {self.number} ({self.kind}): {self.what}"


@dataclass
class Tally:
    """What became of the inputs of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    worst: float = 0.0
    slowest: int = -1
    solve_worst: float = 0.0

    def add(self, outcome: str, seconds: float, number: int) -> None:
        """Counts one reading."""
        self.outcomes[outcome] += 1
        if seconds > self.worst:
            self.worst, self.slowest = seconds, number

    def join(self, other: Tally) -> None:
        """Counts what another process tried."""
        self.outcomes += other.outcomes
        if other.worst > self.worst:
            self.worst, self.slowest = other.worst, other.slowest
        self.solve_worst = max(self.solve_worst, other.solve_worst)


@dataclass
class Record:
    """The outcomes by kind, every bad input, and the most memory that one process held, in bytes."""

    tallies: dict[str, Tally] = field(default_factory=lambda: {kind.name: Tally() for kind in KINDS})
    bad: list[Bad] = field(default_factory=list)
    memory: int = 0

    @property
    def inputs(self) -> int:
        """How many were tried."""
        return sum(tally.outcomes.total() - tally.outcomes["solved"] for tally in self.tallies.values())

    def join(self, other: Record) -> None:
        """Counts what another process tried."""
        for name, tally in other.tallies.items():
            self.tallies[name].join(tally)
        self.bad = sorted([*self.bad, *other.bad], key=lambda bad: bad.number)
        self.memory = max(self.memory, other.memory)


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raises Hang where the block takes longer, in time of the processor or in waiting."""

    def ring(_: int, __: FrameType | None) -> None:
        raise Hang

    before = [(number, signal.signal(number, ring)) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.setitimer(signal.ITIMER_REAL, WAITING + seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before:
            signal.signal(number, handler)


def run(
    first: int, inputs: int, seed: int = 0, solved: float = 0.0, say: Callable[[str], None] = lambda _: None
) -> Record:
    """Tries inputs by number; of those accepted the share `solved` goes through its whole command too."""
    record = Record()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        for number in range(first, first + inputs):
            known = len(record.bad)
            _try(record, number, seed, solved, folder / "in")
            for bad in record.bad[known:]:
                say(str(bad))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    record.memory = peak_bytes()
    return record


def peak_bytes() -> int:
    """The most memory that this process held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def make(number: int, seed: int, folder: Path) -> tuple[Kind, Path, Random]:
    """The input of a number in an empty folder, its kind, and the draw after it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    draw = Random(f"{seed}/{number}")
    kind = draw.choices(KINDS, [4, 3, 4, 1, 4, 3, 1, 1])[0]
    path = kind.make(draw, folder)
    if draw.random() < ODD_SHARE and kind.name != "command line":
        path.unlink()
        ODD[draw.choice(tuple(ODD))](path)
    return kind, path, draw


def _try(record: Record, number: int, seed: int, solved: float, folder: Path) -> None:
    """One input."""
    kind, path, draw = make(number, seed, folder)
    tally, before, start = record.tallies[kind.name], peak_bytes(), process_time()
    outcome, wrong = outcome_of(lambda: kind.read(path), SECONDS)
    seconds = process_time() - start
    tally.add(outcome, seconds, number)
    grown = peak_bytes()
    if grown > 1024 * MEBIBYTE and grown > before:
        wrong = wrong or f"memory grew to {grown / MEBIBYTE:.0f} MiB"
    if not wrong and kind.words and (outcome == "accepted" or draw.random() < 0.1) and draw.random() < solved:
        start = process_time()
        wrong = whole(kind.words(path))
        tally.outcomes["solved"] += 1
        tally.solve_worst = max(tally.solve_worst, process_time() - start)
    if wrong:
        record.bad.append(Bad(number, kind.name, wrong))


def outcome_of(read: Callable[[], None], seconds: float) -> tuple[str, str]:
    """`accepted` or `refused`, and what is wrong with that; empty where nothing is."""
    try:
        with limited(seconds):
            read()
    except InputError as error:
        return "refused", message_fault(error)
    except PlannerError as error:
        code = type(error).exit_code
        return ("refused", "") if code in CODES else ("bad", f"{type(error).__name__}: {error}")
    except Hang:
        return "bad", f"more than {seconds:g} s"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "bad", "".join(traceback.format_exception(error)[-4:])
    return "accepted", ""


def message_fault(error: InputError) -> str:
    """What is wrong with a message: no place, no advice, too long, or characters that a terminal obeys."""
    text = str(error)
    if not (error.file or error.path):
        return f"no place: {text}"
    if not (error.expected or error.hint or ADVICE.search(error.message)):
        return f"no hint: {text}"
    if len(text) > LONGEST_MESSAGE:
        return f"a message of {len(text)} characters: {text[:300]}"
    shown = text.replace(error.file, "")
    if not shown.isprintable():
        return f"characters that do not print: {shown!r}"
    return ""


def whole(words: list[str]) -> str:
    """What is wrong with the answer of a whole command; empty where nothing is."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    try:
        with limited(SOLVE_SECONDS), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            command([*words, *(["--time-limit", "1"] if words[0] == "solve" else [])])
    except SystemExit as leaving:
        code = leaving.code or 0
    except Hang:
        return f"{words}: more than {SOLVE_SECONDS:g} s"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return f"{words}: " + "".join(traceback.format_exception(error)[-4:])
    finally:
        gc.enable()  # a command switches it off
    return "" if code in CODES else f"{words}: exit code {code}: {err.getvalue()[-2000:]}"


# ── the record ───────────────────────────────────────────────────────────────────────────────────────────────────────


def record_text(record: Record, seed: int) -> str:
    """The record as a section of a document."""
    lines = [
        SECTION,
        f"`make fuzz` tried {record.inputs:,} spoiled inputs (seed {seed}): data with keys and values changed, text "
        "with bytes, line ends, aliases and nesting changed, and odd things in the place of files. None may end in a "
        f"traceback, in more than {SECONDS:g} s of reading, in more than 1 GiB of memory, or in a message without "
        "place and advice. Of one input in six that is accepted a plan is evaluated, and few go through a whole "
        "command.\n",
        "| input | tried | accepted | refused | bad | slowest reading | whole commands | slowest command |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    bad = Counter(item.kind for item in record.bad)
    for name, tally in record.tallies.items():
        solves = tally.outcomes["solved"]
        tried = tally.outcomes.total() - solves
        took = f"{tally.solve_worst:.1f} s" if solves else "–"
        lines.append(
            f"| {name} | {tried:,} | {tally.outcomes['accepted']:,} | {tally.outcomes['refused']:,} | {bad[name]} | "
            f"{tally.worst:.2f} s | {solves} | {took} |"
        )
    most = record.memory / MEBIBYTE
    lines.append(f"\nBad: {len(record.bad) or 'none'}. Most memory that a process held: {most:.0f} MiB.")
    return "\n".join([*lines, *(f"- {item}" for item in record.bad[:20])]) + "\n"


def with_section(text: str, section: str) -> str:
    """A document with the section in the place of the one of the same name, or at the end."""
    before, found, after = text.partition(SECTION)
    rest = after.partition("\n## ") if found else ("", "", "")
    return before.rstrip("\n") + "\n\n" + section + (f"\n## {rest[2]}" if rest[1] else "")


def _said(line: str) -> None:
    """A line on standard error."""
    print(line, file=sys.stderr, flush=True)


def _parts(first: int, inputs: int, seed: int, solved: float, workers: int) -> Iterator[Record]:
    """The records of stretches of the inputs, as processes finish them."""
    end = first + inputs
    with ProcessPoolExecutor(workers) as pool:
        waiting = [
            pool.submit(run, start, min(STRETCH, end - start), seed, solved, _said)
            for start in range(first, end, STRETCH)
        ]
        yield from (done.result() for done in as_completed(waiting))


def main() -> None:
    """Tries inputs and writes the record; leaves with 1 where one was bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--solved", type=float, default=0.01, help="share of accepted inputs that are solved")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that share the inputs")
    given = parser.parse_args()
    os.environ |= {"COLUMNS": "120", TRACEBACK: "1"}
    record = Record()
    for part in _parts(given.first, given.inputs, given.seed, given.solved, given.workers):
        record.join(part)
        _said(f"{record.inputs} inputs, {len(record.bad)} bad, {record.memory / MEBIBYTE:.0f} MiB")
        if given.record is not None:
            text = given.record.read_text(encoding="utf-8") if given.record.exists() else "# Quality\n"
            given.record.write_text(with_section(text, record_text(record, given.seed)), encoding="utf-8")
    if given.record is None:
        print(record_text(record, given.seed))
    sys.exit(1 if record.bad else 0)


if __name__ == "__main__":
    main()
