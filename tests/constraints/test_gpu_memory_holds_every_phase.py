"""One GPU holds the ledger's peak within its planned capacity: usable memory over the allocator's margin."""

from __future__ import annotations

from dataclasses import replace

from constraints import gpu_memory_holds_every_phase as constraint
from planner.job import Job
from planner.ledger import ledger
from planner.terms import Limit
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan


def with_usable(found: Job, usable: int) -> Job:
    """The same job on GPUs with `usable` bytes."""
    return replace(found, cluster=replace(found.cluster, gpu=replace(found.cluster.gpu, usable_memory=usable)))


def smallest_usable(found: Job, planned: int) -> int:
    """The fewest usable bytes of which `planned` can be planned with."""
    usable = int(planned * found.runtime.fragmentation)
    while int(usable / found.runtime.fragmentation) < planned:
        usable += 1
    return usable


def test_the_limit_leaves_the_allocator_its_margin() -> None:
    """10.6 GB over a fragmentation of 1.06 are 10 GB to plan with."""
    found = with_usable(job(), 10_600_000_000)
    assert found.runtime.fragmentation == 1.06
    assert constraint.require(found) == (Limit(constraint.NAME, "gpu", 10_000_000_000),)


def test_accepts_and_the_boundary_is_exact() -> None:
    found = job()
    peak = ledger(found, plan(found))["gpu"].peak.total
    usable = smallest_usable(found, peak)
    assert constraint.because(with_usable(found, usable), plan(found)) is None
    assert constraint.because(with_usable(found, usable - 1), plan(found)) is not None


def test_rejects() -> None:
    """30 million parameters at stage 0 in the optimizer step: parameters 2, gradients 2, their fp32 forms 8, master 4
    and moments 8 bytes each: 720e6 bytes = 686.6 MiB. With context 921.6, NCCL 688 and cuBLAS 64 MiB: 2360.2 MiB.

    1 GiB over 1.06 is 966.0 MiB: 1394.2 MiB = 1.4 GiB too few.
    """
    found = with_usable(job(), 1 << 30)
    assert constraint.because(found, plan(found, zero_stage=0)) == (
        "optimizer_step needs 2.3 GiB of one GPU, 1.4 GiB over the 966.0 MiB that can be planned with; "
        "most of it is CUDA context 921.6 MiB, NCCL communicator 688.0 MiB, optimizer moments 228.9 MiB"
    )


def test_rules_agree_with_the_sentence() -> None:
    """The four stages differ in what they need; the median of their peaks leaves two."""
    one = {"optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
           "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip
    found = job(choices=one)
    peaks = sorted(ledger(found, plan(found, zero_stage=stage))["gpu"].peak.total for stage in range(4))
    assert len(set(peaks)) == 4
    assert verdicts(constraint, with_usable(found, smallest_usable(found, peaks[1]))) == (2, 2)
