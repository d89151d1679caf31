"""Conflicts: one rule that nothing satisfies, and what the deletion filter finds where none does alone."""

from __future__ import annotations

from planner.conflict import minimal_conflict
from planner.explain.conflicts import conflict
from planner.specification import specify
from tests.jobs import job


def test_a_rule_that_nothing_satisfies_is_the_conflict() -> None:
    """Three sequences at once on two ranks: eight are no multiple of six."""
    found = specify(job(choices={"micro_batch": 3}))
    assert conflict(found) == minimal_conflict(found)[0] == ("batch_divides_over_ranks",)


def test_limits_are_left_to_the_deletion_filter() -> None:
    found = specify(job(cluster={"host_memory": "4 GiB"}))
    assert conflict(found) == ("host_memory_holds_every_phase",)
