"""States move to NVMe only where there are drives, and stay within their capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from constraints import nvme_holds_what_is_moved_there as constraint
from planner.job import Job
from planner.ledger import ledger
from planner.terms import Limit, Rule
from tests.constraints.agreement import verdicts
from tests.jobs import NVME, PLAIN, job, plan

ONE = {"micro_batch": 1, "checkpoint_interval": 0, "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0,
       **PLAIN}  # fmt: skip
OFFLOADED = {"zero_stage": 3, "optimizer_offload": "nvme"}


def with_capacity(found: Job, capacity: int) -> Job:
    """The same job with drives of `capacity` bytes."""
    node = found.cluster.node
    assert node.nvme is not None
    drives = replace(node.nvme, capacity=capacity)
    return replace(found, cluster=replace(found.cluster, node=node.overridden(nvme=drives)))


def test_accepts_what_fits() -> None:
    found = job(cluster={"nvme": NVME})
    assert constraint.because(found, plan(found, **OFFLOADED)) is None


@pytest.mark.parametrize("choice", ["optimizer_offload", "parameter_offload"])
def test_rejects_where_there_is_no_drive(choice: str) -> None:
    found = job()
    assert constraint.because(found, plan(found, **{choice: "nvme"})) == "node 2x-a100-sxm-80gb has no NVMe drive"
    assert constraint.because(found, plan(found, **{choice: "cpu"})) is None


def test_the_boundary_is_the_capacity() -> None:
    """30 million parameters on two ranks: 15 million each of master weights, two moments and gradients in fp32.

    15e6 × (4 + 8 + 4) bytes × 2 ranks of the node = 480e6 bytes = 457.8 MiB; a byte less does not hold them.
    """
    found = job(cluster={"nvme": NVME})
    assert ledger(found, plan(found, **OFFLOADED))["nvme"].peak.total == 480_000_000
    assert constraint.because(with_capacity(found, 480_000_000), plan(found, **OFFLOADED)) is None
    assert constraint.because(with_capacity(found, 479_999_999), plan(found, **OFFLOADED)) == (
        "forward needs 457.8 MiB of the NVMe of one node, 1 B over the 457.8 MiB that can be planned with; "
        "most of it is optimizer moments 228.9 MiB, master weights 114.4 MiB, fp32 gradients on NVMe 114.4 MiB"
    )


def test_drives_have_a_limit_and_no_drives_a_rule() -> None:
    found = with_capacity(job(cluster={"nvme": NVME}), 480_000_000)
    assert constraint.require(found) == (Limit(constraint.NAME, "nvme", 480_000_000),)
    (rule,) = constraint.require(job())
    assert isinstance(rule, Rule)
    assert rule.scope == ("optimizer_offload", "parameter_offload")


def test_rules_agree_with_the_sentence() -> None:
    """Without drives: nvme in neither of two choices leaves 2 × 2 of 3 × 3 plans; tiny drives leave the same."""
    assert verdicts(constraint, job(choices={"zero_stage": 3, **ONE})) == (4, 5)
    tiny = with_capacity(job(cluster={"nvme": NVME}, choices={"zero_stage": 3, **ONE}), 1_000_000)
    assert verdicts(constraint, tiny) == (4, 5)
