"""Plans on the page are the evaluator's: bytes, microseconds and texts."""

from __future__ import annotations

from planner.page.plans import Plans, Strings, plan_entry
from planner.report import configuration_text
from planner.terms import BOOKS, PHASES
from tests.page.reports import failing, fitting


def test_books_are_those_of_the_ledger() -> None:
    best = fitting().shown
    assert best is not None
    entry = plan_entry(best, Strings())
    gpu = entry["devices"][0]
    for phase, shown in zip(PHASES, gpu["phases"], strict=True):
        moment = best.ledger["gpu"].phase(phase)
        assert dict(zip(BOOKS, shown["books"], strict=True)) == dict(moment.books)
        assert len(shown["lines"]) == len(moment.lines)
    assert sum(gpu["phases"][gpu["peak"]]["books"]) == best.peak_bytes
    assert (entry["fits"], entry["broken"], entry["file"]) == (True, [], configuration_text(best))
    assert entry["time"]["total"] == best.step_time.microseconds
    assert sum(length for _, _, length, _ in entry["time"]["windows"]) == best.step_time.microseconds


def test_a_plan_that_does_not_fit_says_by_how_much_and_has_no_file() -> None:
    miss = failing().shown
    assert miss is not None
    entry = plan_entry(miss, Strings())
    gpu = entry["devices"][0]
    assert gpu["scale"] == miss.peak_bytes > gpu["usable"]
    assert gpu["phases"][gpu["peak"]]["over"].endswith(" over")
    assert (entry["verdict"], entry["file"], entry["fits"]) == ("does not fit", None, False)
    assert entry["broken"] == [item.because for item in miss.violations]


def test_a_plan_has_one_number() -> None:
    plans, points = Plans(), [point for _, point in fitting().points]
    first = [plans.number(point) for point in points]
    assert [plans.number(point) for point in points] == first == list(range(len(points)))
    stage = str(points[0].values["zero_stage"])
    techniques = points[0].job.techniques
    entry = techniques.entry("zero_stage", points[0].values["zero_stage"])
    assert entry is not None and plans.meanings["zero_stage"][stage] == entry.summary


def test_strings_are_kept_once() -> None:
    strings = Strings()
    assert [strings.number(text) for text in ("a", "b", "a")] == [0, 1, 0]
    assert strings.texts == ["a", "b"]
