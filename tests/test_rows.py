"""Rows of points: the least value within bounds, and its row, by hand and against every row one by one."""

from __future__ import annotations

import pytest

from planner import compile as compiler
from planner.compile import Question, ask
from planner.forms import LARGEST, Form, Reader
from planner.plan import Value, whole
from planner.points import Point, Points, enumerate_points
from planner.relations import Relation
from planner.rows import Rows, least_rows
from planner.space import job_space
from planner.specification import specify
from planner.terms import MemoryTerm, TimeTerm
from tests.jobs import PLAIN, job

KEY: tuple[Value, ...] = (1,)


def one_point() -> tuple[Points, Point]:
    """One inner choice at places 0 to 3 with the measure 0, 2, 4, 6."""
    space = job_space(job())
    relation = Relation(((0, 0), (1, 2), (2, 4), (3, 6)), ((0, 6),))
    point = Point({}, KEY, 70, {}, ())
    return Points(space, (space.choices[-1],), (5,), ("layers",), (point,), {KEY: relation}), point


def test_the_least_value_within_the_bounds() -> None:
    """10 - m is least at 6, where m <= 4 leaves 10 - 4 = 6 in row 2; of two forms the larger counts: 7 + m at row 0."""
    points, point = one_point()
    rows, falling, rising = Rows(points), Form(10, (-1,)), Form(7, (1,))
    assert rows.best(point, [], [falling]) == (4, 3)
    assert rows.best(point, [(Form(0, (1,)), 4)], [falling]) == (6, 2)
    assert rows.best(point, [], [falling, rising]) == (9, 1)  # 10, 9, 11, 13
    assert rows.best(point, [(Form(0, (1,)), -1)], [falling]) == (LARGEST, 0)


def test_ranks_count_the_inner_choices() -> None:
    """70 for the point and 5 for each place; where m >= 3 (-m <= -3) the first is place 2."""
    points, point = one_point()
    assert Rows(points).best(point, [], None) == (70, 0)
    assert Rows(points).best(point, [(Form(0, (-1,)), -3)], None) == (80, 2)


@pytest.mark.parametrize("objective", ["time", "memory", "rank"])
def test_rows_and_solver_come_to_the_same(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of all points, which the rows say nothing about, has the optimum that they say."""
    specification = specify(job(model={"parameters": 900_000_000, "layers": 12, "vocabulary": 32000}, choices=PLAIN))
    points = enumerate_points(specification)
    question = Question(objective, specification.capacities, 30.0)  # type: ignore[arg-type]
    told = ask(points, question)
    monkeypatch.setattr(compiler._Model, "_kept", lambda _, possible: possible)
    alone = ask(points, question)
    assert (told.status, told.value, told.bound) == ("optimal", alone.value, alone.bound)


def test_the_fastest_rows_of_points() -> None:
    """Micro-batches of 1 and 2 sequences; m layers are made again, at places m = 0 to 3.

    Memory 6 b - 2 m: 6, 4, 2, 0 and 12, 10, 8, 6. Time max(4, 6) + 2 + 3 m: 8, 11, 14, 17. In 4 bytes the first takes
    11 and the second does not hold; in 7 bytes they take 8 and 17, which is too late for a deadline of 16.
    """
    book = MemoryTerm(
        "kept", ("b",), ("m",), lambda v: 6 * whole(v, "b") - 2 * whole(v, "m"), "gpu", "activations", ("loss",)
    )
    lanes = [("forward", "compute", 4, 0), ("forward", "communication", 6, 0), ("backward", "serial", 2, 3)]
    times = [
        TimeTerm("work", (), ("m",), lambda v, c=constant, s=slope: c + s * whole(v, "m"), window, lane)  # type: ignore[misc]
        for window, lane, constant, slope in lanes
    ]
    readers = Reader([book], ["m"]), Reader(times, ["m"])
    points = [{"b": 1}, {"b": 2}]
    relation = Relation(((0, 0), (1, 1), (2, 2), (3, 3)), ((0, 3),))

    def fastest(**capacities: int) -> list[int]:
        sums = readers[0].sums(points), readers[1].sums(points)
        return least_rows("time", readers, sums, [relation, relation], 1, capacities).tolist()

    def leanest(**capacities: int) -> list[int]:
        sums = readers[0].sums(points), readers[1].sums(points)
        return least_rows("memory", readers, sums, [relation, relation], 1, capacities).tolist()

    assert leanest() == [0, 6]
    assert leanest(time=12) == [4, 10]  # 8 and 11 are in time: m = 0 and 1
    assert leanest(gpu=5) == [0, LARGEST]
    assert fastest() == [8, 8]
    assert fastest(gpu=4) == [11, LARGEST]
    assert fastest(gpu=7) == [8, 17]
    assert fastest(gpu=7, time=16) == [8, LARGEST]
