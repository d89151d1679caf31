"""One step takes at most the job's deadline, to the microsecond."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from constraints import step_time_is_within_the_deadline as constraint
from planner.evaluate import evaluate
from planner.job import Job, Limits
from planner.terms import Limit
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

ONE = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "gradient_accumulation_dtype": "bf16",
       "checkpoint_interval": 0, "checkpoint_count": 0, **PLAIN}  # fmt: skip


def by(found: Job, microseconds: int) -> Job:
    """The job with a deadline."""
    return replace(found, limits=Limits(step_time_at_most=microseconds))


def test_without_a_deadline_nothing_is_asked() -> None:
    assert constraint.require(job()) == ()
    assert constraint.because(job(), plan(job())) is None


def test_the_deadline_is_read_in_microseconds() -> None:
    found = job(limits={"step_time_at_most": "2.5 ms"})
    assert constraint.require(found) == (Limit(constraint.NAME, "time", 2500),)


def test_accepts_and_the_boundary_is_exact() -> None:
    found = job()
    taken = evaluate(found, plan(found)).step_time.microseconds
    assert constraint.because(by(found, taken), plan(found)) is None
    assert constraint.because(by(found, taken - 1), plan(found)) is not None


def test_rejects() -> None:
    """The whole step over a deadline of one microsecond: all but that one is over it."""
    found = job(choices={**ONE, "micro_batch": 1})
    step = evaluate(found, plan(found)).step_time
    text = constraint.because(by(found, 1), plan(found))
    assert text is not None
    taken = f"{step.seconds * 1e3:.1f} ms"
    assert text.startswith(f"a step takes {taken}, {taken} over the deadline of 1 ")
    assert "; most of it is compute " in text


@pytest.mark.parametrize(
    ("terms", "most"),
    [
        ({"gather": 9.0, "compute": 180.0, "rest": 1.0, "update": 50.0}, "compute 3 min, update 50 s, gather 9 s"),
        ({"copies": 0.0, "compute": 240.0, "gather": 0.0}, "compute 4 min"),
    ],
)
def test_the_sentence_names_the_longest_of_a_step(
    monkeypatch: pytest.MonkeyPatch, terms: dict[str, float], most: str
) -> None:
    """240 s where 120 s are allowed: at most three terms, the longest first, none of nothing."""
    step = SimpleNamespace(seconds=240.0, microseconds=240_000_000, terms=terms)
    monkeypatch.setattr(constraint, "step_time", lambda job, values: step)
    found = job()
    assert constraint.because(by(found, 120_000_000), plan(found)) == (
        f"a step takes 4 min, 2 min over the deadline of 2 min; most of it is {most}"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Of micro-batches of 1 and 4 sequences the larger one takes less time, being fewer."""
    found = job(choices={**ONE, "micro_batch": [1, 4]})
    fast = evaluate(found, plan(found, micro_batch=4)).step_time.microseconds
    assert verdicts(constraint, by(found, fast)) == (1, 1)
    assert verdicts(constraint, by(found, fast - 1)) == (0, 2)
