"""Where a machine is not what the job says."""

from __future__ import annotations

from jobs import job, plan

from planner.evaluate import Evaluation, evaluate
from planner.launch.machine import Machine, disagreements, processor_bytes, processor_disagreements
from planner.units import GIB

A100 = ("NVIDIA A100-SXM4-80GB", 85_000_000_000)


def planned(**overrides: object) -> Evaluation:
    found = job(**overrides)
    return evaluate(found, plan(found))


def test_what_the_job_says_is_here() -> None:
    assert disagreements(planned(), Machine((A100, A100), 2048 * GIB)) == ()


def test_fewer_gpus() -> None:
    assert disagreements(planned(), Machine((A100,), 2048 * GIB)) == ("1 GPU here, the job's node has 2",)
    assert disagreements(planned(), Machine((), 2048 * GIB)) == ("no GPU here, the job's node has 2",)


def test_smaller_gpus() -> None:
    half = ("NVIDIA A100-SXM4-40GB", 40 * GIB)
    assert disagreements(planned(), Machine((A100, half), 2048 * GIB)) == (
        "40.0 GiB of memory on a GPU here, the job's a100-sxm-80gb has 79.2 GiB",
    )


def test_host_memory_counts_where_the_plan_needs_it() -> None:
    """Two processes of 3 GiB and the model twice: 6.1 GiB. Less than the job says but enough is no matter."""
    found = planned(cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 2, "host_memory": "64 GiB"})
    assert disagreements(found, Machine((A100, A100), 32 * GIB)) == ()
    assert disagreements(found, Machine((A100, A100), 4 * GIB)) == (
        "4.0 GiB of host memory here, the plan needs 6.1 GiB and the job's node has 64.0 GiB",
    )


def test_small_jobs_are_rehearsed_on_processors() -> None:
    """30 million parameters and 16 GiB: everything of two GPUs lies in host memory, without what drivers take."""
    found = planned()
    assert processor_disagreements(found, Machine((), 64 * GIB)) == ()
    peak, host = found.ledger["gpu"].peak, found.ledger["host"].peak
    assert processor_bytes(found) == 2 * (peak.total - peak.books["reserve"]) + host.total
    assert processor_disagreements(found, Machine((), GIB))[0].startswith("1.0 GiB of host memory here, the ranks need")


def test_large_jobs_are_not() -> None:
    found = planned(model={"parameters": 60_000_000, "layers": 4})
    (reason,) = processor_disagreements(found, Machine((), 64 * GIB))
    assert reason.endswith("parameters, processors rehearse up to 50,000,000")
