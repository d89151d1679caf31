"""The ranks of a node keep at most as much in its memory as the job allows, to the byte."""

from __future__ import annotations

from dataclasses import replace

from constraints import host_memory_is_within_the_limit as constraint
from planner.job import Job, Limits
from planner.ledger import ledger
from planner.terms import Limit
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

ONE = {"parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0, "gradient_accumulation_dtype": "bf16",
       "checkpoint_count": 0, **PLAIN}  # fmt: skip
GIB = 1 << 30


def within(found: Job, size: int) -> Job:
    """The job with a limit on host memory."""
    return replace(found, limits=Limits(host_memory_at_most=size))


def test_without_a_limit_nothing_is_asked() -> None:
    assert constraint.require(job()) == ()
    found = job()
    small = replace(found.cluster, node=found.cluster.node.overridden(host_memory=GIB))
    assert constraint.because(replace(found, cluster=small), plan(found)) is None  # another constraint's concern


def test_the_limit_is_as_written() -> None:
    found = job(limits={"host_memory_at_most": "400 GiB"})
    assert constraint.require(found) == (Limit(constraint.NAME, "host", 400 * GIB),)


def test_accepts_and_the_boundary_is_exact() -> None:
    found = job()
    peak = ledger(found, plan(found))["host"].peak.total
    assert constraint.because(within(found, peak), plan(found)) is None
    assert constraint.because(within(found, peak - 1), plan(found)) is not None


def test_rejects() -> None:
    """Two processes of 3 GiB, and while loading 30e6 × 2 bytes × 2 ranks = 114.4 MiB: 6.11 GiB, 2.11 GiB over 4."""
    found = within(job(), 4 * GIB)
    assert constraint.because(found, plan(found)) == (
        "load needs 6.1 GiB of the host memory of one node, 2.1 GiB over the 4.0 GiB that the job may take; "
        "most of it is training process 6.0 GiB, model copy while loading 114.4 MiB"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Stage 2 with states on the GPU needs less host memory than with states moved there."""
    found = job(choices={**ONE, "zero_stage": 2, "optimizer_offload": ["none", "cpu"]})
    least = ledger(found, plan(found, zero_stage=2))["host"].peak.total
    assert verdicts(constraint, within(found, least)) == (1, 1)
    assert verdicts(constraint, within(found, least - 1)) == (0, 2)
