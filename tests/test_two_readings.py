"""Every term read twice: its value at a plan, and its affine form in the measures, over full spaces of drawn jobs.

The points, whose forms the solver sees, must give what the evaluator gives at every row of their relation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from random import Random

import pytest

from planner.evaluate import evaluate
from planner.forms import Form, affine
from planner.job import Job
from planner.ledger import ledger
from planner.memory import memory_terms
from planner.plan import Plan, Value
from planner.points import Point, Points, enumerate_points, inner_choices
from planner.space import job_space
from planner.specification import specify
from planner.step_time import time_terms
from planner.terms import Term
from planner.time_lines import step_time
from tests.jobs import random_job, random_plan

SEEDS = range(30)
PLANS = 10  # of each job: 300 pairs
POINTS, ROWS = 8, 8  # of each job: points, and rows of each


@lru_cache(maxsize=30)
def drawn(seed: int) -> Job:
    """The job of a seed, drawn once."""
    return random_job(seed)


def terms(job: Job) -> tuple[Term, ...]:
    """All terms of a job, both ranges of time included."""
    times = (term for outlook in ("low", "typical", "high") for term in time_terms(job, outlook))
    return (*memory_terms(job), *times)


def at(form: Form, measures: tuple[int, ...]) -> int:
    """A form's value."""
    return form.constant + sum(slope * value for slope, value in zip(form.slopes, measures, strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_terms_value_is_its_affine_form(seed: int) -> None:
    job, draw = drawn(seed), Random(seed)
    space = job_space(job)
    measures = tuple(measure.name for measure in space.measures)
    for _ in range(PLANS):
        values = space.complete(random_plan(job, draw))
        counted = tuple(int(str(values[name])) for name in measures)
        for term in terms(job):
            form = affine(term, {name: values[name] for name in term.scope}, measures)
            assert term.value(values) == at(form, counted), (term.name, values)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_term_reads_its_scope_and_nothing_else(seed: int) -> None:
    job, draw = drawn(seed), Random(seed)
    space = job_space(job)
    names = {choice.name for choice in space.choices}
    values = space.complete(random_plan(job, draw))
    for term in terms(job):
        assert set(term.scope) <= names, term.name
        assert set(term.measures) <= {measure.name for measure in space.measures}, term.name
        term.body({name: values[name] for name in (*term.scope, *term.measures)})
    for measure in space.measures:
        assert 0 <= measure.body({name: values[name] for name in measure.scope}) <= measure.largest, measure.name
    for rule in specify(job).rules:
        rule.holds({name: values[name] for name in rule.scope})


@pytest.mark.parametrize("seed", SEEDS)
def test_a_points_forms_give_what_the_evaluator_gives_at_every_row(seed: int) -> None:
    job = drawn(seed)
    for (point, measures), plan in _sampled(enumerate_points(specify(job)), Random(seed)):
        values = job_space(job).complete(plan)
        books, time = ledger(job, plan), step_time(job, values)
        for device, found in books.items():
            forms = point.memory.get(device, (Form(0, (0,) * len(measures)),))
            assert max(at(form, measures) for form in forms) == found.peak.total, (device, plan)
        assert max(at(form, measures) for form in point.time) == time.microseconds, plan
        for term in memory_terms(job):
            assert type(term.value(values)) is int and term.value(values) >= 0, (term.name, plan)


@pytest.mark.parametrize("seed", range(0, 30, 6))
def test_evaluate_has_the_figures_of_ledger_and_step_time(seed: int) -> None:
    job, draw = drawn(seed), Random(seed)
    plan = random_plan(job, draw)
    found, values = evaluate(job, plan), job_space(job).complete(plan)
    assert found.peak_bytes == ledger(job, plan)["gpu"].peak.total
    assert found.step_time.microseconds == step_time(job, values).microseconds
    assert found.low_seconds == step_time(job, values, "low").seconds
    assert found.high_seconds == step_time(job, values, "high").seconds
    assert found.low_seconds <= found.step_time.seconds <= found.high_seconds


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_points_and_rows_are_the_plans_that_the_rules_allow(seed: int) -> None:
    job = random_job(seed, small=True)
    specification = specify(job)
    points = enumerate_points(specification, frozenset(rule.constraint for rule in specification.rules))
    found = [plan for point in points.points for _, plan in _rows(points, point)]
    legal = [
        plan for plan in specification.space.plans() if all(rule.satisfied(plan) for rule in specification.rules)
    ]
    assert len(found) == len(set(found)) == len(legal)
    assert set(found) == set(legal)


@pytest.mark.parametrize("seed", range(0, 30, 6))
def test_only_the_checkpoint_count_is_inner(seed: int) -> None:
    assert [choice.name for choice in inner_choices(specify(drawn(seed)))] == ["checkpoint_count"]


# ── points and their rows ────────────────────────────────────────────────────────────────────────────────────────────


def _rows(points: Points, point: Point) -> Iterator[tuple[tuple[int, ...], Plan]]:
    """Each row of a point's relation: the measures, and the plan they are found at."""
    relation = points.relations[point.key]
    inner = len(points.inner)
    for row in relation.rows:
        values = {**point.values, **_inner_values(points, row)}
        yield row[inner:], Plan({choice.name: values[choice.name] for choice in points.space.choices})


def _inner_values(points: Points, row: tuple[int, ...]) -> dict[str, Value]:
    """The values of the inner choices in a row, which starts with their positions."""
    return {choice.name: choice.values[place] for choice, place in zip(points.inner, row, strict=False)}


def _sampled(points: Points, draw: Random) -> Iterator[tuple[tuple[Point, tuple[int, ...]], Plan]]:
    """Some points and rows, the ends of each point's rows among them."""
    for point in draw.sample(points.points, min(POINTS, len(points.points))):
        rows = list(_rows(points, point))
        chosen = rows if len(rows) <= ROWS else [rows[0], rows[-1], *draw.sample(rows, ROWS - 2)]
        for measures, plan in chosen:
            yield (point, measures), plan
