"""Rows of points: the least value within bounds, and its row, by hand and against every row one by one."""

from __future__ import annotations

import pytest

from planner import compile as compiler
from planner.compile import Question, ask
from planner.forms import LARGEST, Form
from planner.plan import Value
from planner.points import Point, Points, Relation, enumerate_points
from planner.rows import Rows
from planner.space import job_space
from planner.specification import specify
from tests.jobs import job

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
def test_answers_are_the_same_with_very_many_points(objective: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at rows first changes nothing but the solver's time."""
    model = {"parameters": 900_000_000, "layers": 12, "vocabulary": 32000, "heads": 16}
    cluster = {"gpu": "rtx3090-24gb", "gpus_per_node": 4, "nodes": 2, "interconnect": "100 Gbit/s"}
    training = {"runtime": "megatron", "global_batch": 16, "sequence_length": 1024}
    specification = specify(job(model=model, cluster=cluster, training=training))
    points = enumerate_points(specification)
    question = Question(objective, specification.capacities, 30.0)  # type: ignore[arg-type]
    assert len(points.points) > compiler.MANY_POINTS
    narrowed = ask(points, question)
    monkeypatch.setattr(compiler, "MANY_POINTS", 10**9)
    plain = ask(points, question)
    assert (narrowed.status, narrowed.value, narrowed.bound) == (plain.status, plain.value, plain.bound)
