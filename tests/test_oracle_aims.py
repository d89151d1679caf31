"""The search against the oracle on jobs with every pair of choices, runtimes, layouts, objectives and limits."""

from __future__ import annotations

import pytest

from planner.errors import NoPlan
from planner.evaluate import Evaluation
from planner.search import Solution, solve
from planner.terms import TIME
from tests.aimed_jobs import aimed_job, drafts, wanted_pairs
from tests.oracle import Oracle, check_conflict

JOBS, BATCHES, TOP = 540, 20, 3


def test_every_pair_of_traits_meets_in_some_job() -> None:
    """Choice values, runtimes, layouts, objectives and limits: 2,400 pairs and more, each in at least one job."""
    met = set().union(*(draft.pairs for draft in drafts(JOBS)))
    assert len(wanted_pairs()) > 2000
    assert sorted(wanted_pairs() - met, key=repr) == []


@pytest.mark.parametrize("batch", range(BATCHES))
def test_the_search_finds_what_the_oracle_finds(batch: int) -> None:
    found = [_agree(seed) for seed in range(batch, JOBS, BATCHES)]
    assert found.count(True) >= len(found) // 4, "most of these jobs should have a plan"


def _agree(seed: int) -> bool:
    """Whether a job has a plan, after holding the answer against the oracle's."""
    draft = drafts(JOBS)[seed]
    oracle = Oracle(aimed_job(draft))
    expected = oracle.ranking(TOP)
    try:
        solution = solve(oracle.specification.job, TOP)
    except NoPlan as error:
        assert expected == [], seed
        check_conflict(seed, oracle, error)
        _check_miss(seed, oracle, error)
        return False
    assert [found.plan for found in solution.plans] == expected, seed
    assert solution.proof.optimal and solution.ordered, seed
    _check_proof(seed, solution)
    return True


def _check_proof(seed: int, solution: Solution) -> None:
    """The plan of a pair is within the tolerance of what is proven, and its second value is the one that is proven."""
    job, proof, best = solution.best.job, solution.proof, solution.best
    if job.then:
        assert proof.then is not None and proof.then.optimal, seed
        assert _value(best, proof.unit) <= (proof.bound + _grain(proof.unit)) * (1 + float(job.within)) + 1e-6, seed
        proof = proof.then
    assert 0 <= _value(best, proof.unit) - proof.bound <= _grain(proof.unit), seed


def _value(found: Evaluation, unit: str) -> float:
    return found.step_time.seconds if unit == "seconds" else found.peak_bytes


def _grain(unit: str) -> float:
    """What a bound may be below the value: binary fractions of a microsecond, or one MiB."""
    return 1e-9 if unit == "seconds" else 1 << 20


def _check_miss(seed: int, oracle: Oracle, error: NoPlan) -> None:
    """Where only a deadline is in the way: no plan that keeps all else is faster than the nearest miss."""
    limits = oracle.specification.every_limit
    if [limit.device for limit in limits if limit.constraint in error.conflict] != [TIME]:
        return
    others = tuple(limit for limit in limits if limit.device != TIME)
    legal = (oracle.figures(plan) for plan in oracle.specification.space.plans() if oracle.legal(plan))
    late = [microseconds for peaks, microseconds in legal if oracle.fits((peaks, microseconds), others)]
    if late:
        assert error.nearest_miss.step_time.microseconds == min(late), seed
        assert [item.constraint for item in error.nearest_miss.violations] == ["step_time_is_within_the_deadline"]
