"""A GPU with headroom is planned as one with that much less memory."""

from __future__ import annotations

from dataclasses import replace

from constraints import gpu_memory_holds_every_phase, gpu_memory_leaves_the_headroom
from planner.job import Job, Limits
from planner.ledger import ledger
from planner.terms import Limit
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan

constraint = gpu_memory_leaves_the_headroom
ONE = {"optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
       "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip
GIB = 1 << 30


def leaving(found: Job, headroom: int) -> Job:
    """The job with that many bytes of headroom."""
    return replace(found, limits=Limits(memory_headroom=headroom))


def test_without_headroom_nothing_is_asked() -> None:
    assert constraint.require(job()) == ()
    assert constraint.because(job(), plan(job())) is None


def test_the_plan_is_one_for_a_smaller_gpu() -> None:
    """Usable memory less 5 GiB, over the allocator's margin: what a GPU of that size can plan with."""
    found = job(limits={"memory_headroom": "5 GiB"})
    usable = found.cluster.gpu.usable_memory - 5 * GIB
    smaller = replace(found, cluster=replace(found.cluster, gpu=replace(found.cluster.gpu, usable_memory=usable)))
    (limit,), (other,) = constraint.require(found), gpu_memory_holds_every_phase.require(smaller)
    assert limit == replace(other, constraint=constraint.NAME)


def test_a_share_is_one_of_the_usable_memory() -> None:
    """10 % of 10.6 GB are 1.06 GB; the other 9.54 GB over a margin of 1.06 are 9 GB to plan with."""
    found = job(cluster={"gpu_memory": "10.6 GB"}, limits={"memory_headroom": "10 %"})
    assert found.limits.memory_headroom == 1_060_000_000
    assert constraint.require(found) == (Limit(constraint.NAME, "gpu", 9_000_000_000),)


def test_headroom_beyond_the_gpu_leaves_nothing() -> None:
    assert constraint.require(leaving(job(), 1 << 50)) == (Limit(constraint.NAME, "gpu", 0),)


def test_rejects() -> None:
    """All but 2.12 GiB of the GPU stay free, of which 2 GiB can be planned with; CUDA alone takes nearly half."""
    found = job()
    tight = leaving(found, found.cluster.gpu.usable_memory - int(2.12 * GIB) - 1)
    peak = ledger(found, plan(found))["gpu"].peak
    text = constraint.because(tight, plan(found))
    assert text is not None
    assert text.startswith(f"{peak.phase} needs {peak.total / GIB:.1f} GiB of one GPU, ")
    assert " over the 2.0 GiB that the headroom leaves; most of it is " in text


def test_rules_agree_with_the_sentence() -> None:
    """Stage 2 holds less than stage 0."""
    found = job(choices={**ONE, "zero_stage": [0, 2]})
    least = ledger(found, plan(found, zero_stage=2))["gpu"].peak.total
    usable = int(least * found.runtime.fragmentation) + 1
    assert verdicts(constraint, leaving(found, found.cluster.gpu.usable_memory - usable)) == (1, 1)
    assert verdicts(constraint, leaving(found, found.cluster.gpu.usable_memory - usable + 8)) == (0, 2)
