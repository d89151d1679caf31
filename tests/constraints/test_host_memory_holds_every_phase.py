"""The host memory of one node holds what all its ranks keep there, less a margin for everything else."""

from __future__ import annotations

from dataclasses import replace

from constraints import host_memory_holds_every_phase as constraint
from planner.job import Job
from planner.ledger import ledger
from planner.terms import Limit
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

ONE = {"parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0, "gradient_accumulation_dtype": "bf16",
       "checkpoint_count": 0, **PLAIN}  # fmt: skip
GIB = 1 << 30


def with_host(found: Job, host_memory: int) -> Job:
    """The same job on nodes with `host_memory` bytes."""
    node = found.cluster.node.overridden(host_memory=host_memory)
    return replace(found, cluster=replace(found.cluster, node=node))


def smallest_host(found: Job, planned: int) -> int:
    """The fewest bytes of host memory of which `planned` can be planned with."""
    host = int(planned * found.runtime.host_margin)
    while int(host / found.runtime.host_margin) < planned:
        host += 1
    return host


def test_the_limit_leaves_a_margin() -> None:
    """11 GB over a margin of 1.10 are 10 GB to plan with."""
    found = with_host(job(), 11_000_000_000)
    assert found.runtime.host_margin == 1.10
    (limit,) = constraint.require(found)
    assert isinstance(limit, Limit) and (limit.constraint, limit.device) == (constraint.NAME, "host")
    assert 9_999_999_999 <= limit.capacity <= 10_000_000_000  # 1.10 is no binary fraction


def test_accepts_and_the_boundary_is_exact() -> None:
    found = job()
    peak = ledger(found, plan(found))["host"].peak.total
    host = smallest_host(found, peak)
    assert constraint.because(with_host(found, host), plan(found)) is None
    assert constraint.because(with_host(found, host - 1), plan(found)) is not None


def test_rejects() -> None:
    """Nothing offloaded: two processes of 3 GiB, and while loading 30e6 × 2 bytes × 2 ranks = 114.4 MiB.

    6 GiB + 114.4 MiB = 6.11 GiB; 4 GiB over 1.10 are 3.64 GiB: 2.48 GiB too few.
    """
    found = with_host(job(), 4 * GIB)
    assert constraint.because(found, plan(found)) == (
        "load needs 6.1 GiB of the host memory of one node, 2.5 GiB over the 3.6 GiB that can be planned with; "
        "most of it is training process 6.0 GiB, model copy while loading 114.4 MiB"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Stage 2 with states on the GPU needs less host memory than with states moved there."""
    found = job(choices={**ONE, "zero_stage": 2, "optimizer_offload": ["none", "cpu"]})
    least = ledger(found, plan(found, zero_stage=2))["host"].peak.total
    assert verdicts(constraint, with_host(found, smallest_host(found, least))) == (1, 1)
    assert verdicts(constraint, with_host(found, smallest_host(found, least) - 1)) == (0, 2)
