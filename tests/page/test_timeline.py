"""The line of time: nothing is lost between step time and segments, and what is hidden is what overlap hides."""

from __future__ import annotations

from planner.page.timeline import Segment, _window, row_of, timeline
from planner.time_lines import StepTime, TimeLine
from tests.page.reports import fitting

KINDS = {"all-reduce": "communication", "to the host": "offload", "optimizer": "optimizer"}


def window(*lines: tuple[str, str, int]) -> list[tuple[str, str, int, int]]:
    """Row, state, start and length of the segments of a window that starts at 100."""
    found = [TimeLine(name, "backward", lane, size) for name, lane, size in lines]
    segments = list(_window(found, KINDS, 100))
    exposed = sum(one.length for one in segments if one.state != "hidden")
    assert exposed == StepTime(tuple(found)).window("backward")
    return [(one.row, one.state, one.start, one.length) for one in segments]


def test_a_collective_that_ends_before_compute_is_hidden() -> None:
    found = window(("compute", "compute", 50), ("all-reduce", "communication", 30))
    assert found == [("compute", "work", 100, 50), ("communication", "hidden", 100, 30)]


def test_what_is_longer_than_compute_is_exposed_from_there() -> None:
    """50 of compute hide 50 of 80; the copy of 90 then waits for 80 of them: 10 exposed."""
    lines = (("compute", "compute", 50), ("all-reduce", "communication", 80), ("to the host", "host_link", 90))
    assert window(*lines) == [
        ("compute", "work", 100, 50),
        ("communication", "hidden", 100, 50),
        ("communication", "exposed", 150, 30),
        ("offload", "hidden", 100, 80),
        ("offload", "exposed", 180, 10),
    ]


def test_serial_work_follows_on_the_row_of_its_kind() -> None:
    lines = (("compute", "compute", 50), ("to the host", "serial", 5), ("optimizer", "serial", 7))
    assert window(*lines)[1:] == [("offload", "exposed", 150, 5), ("optimizer", "work", 155, 7)]


def test_rows_by_name() -> None:
    assert row_of("all-reduce, once more", KINDS) == "communication"
    assert row_of("tensor-parallel exchange", KINDS) == "communication"
    assert row_of("copies around collectives", KINDS) == "communication"
    assert row_of("recompute", KINDS) == "compute"


def test_segments_fill_the_step_and_hide_what_overlap_hides() -> None:
    for _, point in fitting().points:
        segments = timeline(point)
        seen = sorted((one for one in segments if one.state != "hidden"), key=lambda one: one.start)
        assert _without_gaps(seen) == point.step_time.microseconds
        assert sum(one.length for one in segments if one.state == "hidden") == point.step_time.hidden


def _without_gaps(segments: list[Segment]) -> int:
    """Where the segments end, each starting where the one before ends."""
    end = 0
    for segment in segments:
        assert segment.start == end
        end += segment.length
    return end
