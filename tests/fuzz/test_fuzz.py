"""A share of the spoiled inputs on each run: no traceback, no hang, no message without place and advice."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from planner.cli import TRACEBACK
from planner.errors import InputError, InternalError
from tests.fuzz.driver import (
    SECTION,
    Bad,
    Hang,
    Record,
    limited,
    make,
    message_fault,
    outcome_of,
    record_text,
    run,
    whole,
    with_section,
)
from tests.fuzz.kinds import KINDS
from tests.fuzz.mutators import ODD, bomb

# 2,000 inputs in four parts, so that a slow one is seen by its part.
PART = 500


@pytest.mark.parametrize("part", range(4))
def test_spoiled_inputs_are_refused_with_place_and_advice(part: int) -> None:
    record = run(part * PART, PART, seed=2026)
    assert [str(bad) for bad in record.bad] == []
    assert record.inputs == PART


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("odd", [name for name in ODD if name != "unreadable" or os.getuid()])
def test_what_is_no_file_is_refused(kind: object, odd: str, tmp_path: Path) -> None:
    """Pipes that nobody writes to and endless devices too, without waiting and without reading 100 MB."""
    from random import Random

    assert hasattr(kind, "make") and hasattr(kind, "read")
    path = kind.make(Random(1), tmp_path)
    if kind.name == "command line":
        pytest.skip("it comes in no file")
    path.unlink()
    ODD[odd](path)
    outcome, wrong = outcome_of(lambda: kind.read(path), 5.0)
    # No host at all, which the launch then tells; no JSON, which is an answer of `planner check`.
    accepted = {(name, what) for name in ("host file", "DeepSpeed file") for what in ("empty", "blank")}
    assert (outcome, wrong) == ("accepted" if (kind.name, odd) in accepted else "refused", "")


def test_an_input_is_made_again_from_its_number(tmp_path: Path) -> None:
    for number in (3, 14, 15):
        found = [make(number, 0, tmp_path / name)[1] for name in ("a", "b")]
        if all(path.is_file() for path in found):
            assert found[0].read_bytes() == found[1].read_bytes()


def test_a_hang_is_noticed() -> None:
    with pytest.raises(Hang), limited(0.05):
        while True:
            time.perf_counter()


def _raise(error: BaseException) -> None:
    raise error


def test_outcomes() -> None:
    assert outcome_of(lambda: None, 1) == ("accepted", "")
    assert outcome_of(lambda: _raise(InputError("no", "f", hint="yes")), 1) == ("refused", "")
    assert outcome_of(lambda: _raise(InternalError("no")), 1) == ("bad", "InternalError: internal error: no")
    assert outcome_of(lambda: _raise(KeyError("x")), 1)[0] == "bad"


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (InputError("no", "f", expected="yes"), ""),
        (InputError("missing key 'a'", "f"), ""),
        (InputError("did not find expected ','", "f"), ""),
        (InputError("no", path="a", hint="yes"), ""),
        (InputError("no", hint="yes"), "no place: no; yes"),
        (InputError("no", "f"), "no hint: f: no"),
        (InputError("found unexpected end", "f"), "no hint: f: found unexpected end"),
        (InputError("no\x1b[2J", "f", hint="yes"), "characters that do not print: ': no\\x1b[2J; yes'"),
    ],
)
def test_messages(error: InputError, fault: str) -> None:
    assert message_fault(error) == fault


def test_a_whole_command_that_fails_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TRACEBACK, raising=False)
    monkeypatch.setattr("planner.shipped.names", lambda kind: _raise(KeyError("x")))
    assert whole(["catalog", "list"]) == (
        "['catalog', 'list']: exit code 70: planner: a bug of the planner: KeyError: 'x'; PLANNER_TRACEBACK=1 shows "
        "where\n"
    )


def test_records_of_processes_add_up() -> None:
    whole, parts = run(0, 40, seed=3), [run(start, 20, seed=3) for start in (20, 0)]
    joined = Record()
    for part in parts:
        part.bad.append(Bad(part.inputs + len(joined.bad), "job", "x"))
        joined.join(part)
    assert all(tally.outcomes == whole.tallies[name].outcomes for name, tally in joined.tallies.items())
    assert (joined.inputs, [bad.number for bad in joined.bad]) == (40, [20, 21])
    assert joined.memory == max(part.memory for part in parts) > 0
    text = record_text(joined, 3)
    assert "tried 40 spoiled inputs (seed 3)" in text
    assert text.endswith("- input 20 (job): x\n- input 21 (job): x\n")


def test_the_record_takes_the_place_of_the_last_one() -> None:
    text = record_text(Record(), 0)
    assert text.startswith(SECTION) and "Bad: none." in text
    page = with_section("# Quality\n\n## Fuzz\n\nold\n\n## Other\n\nkept\n", "## Fuzz\nnew\n")
    assert page == "# Quality\n\n## Fuzz\nnew\n\n## Other\n\nkept\n"
    assert with_section("# Quality\n", "## Fuzz\nnew\n") == "# Quality\n\n## Fuzz\nnew\n"


def test_a_bomb_of_aliases_is_text_of_a_few_kilobytes() -> None:
    from random import Random

    assert len(bomb(Random(0), "")) < 20_000
