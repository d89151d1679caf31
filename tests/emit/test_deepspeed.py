"""The DeepSpeed configuration says what the plan says. DeepSpeed's own parser is asked in tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.emit.deepspeed import configuration
from planner.job import Job
from planner.plan import Layout
from planner.resolve import plain_plan, read_job

JOB = Path(__file__).parents[2] / "examples" / "llama-2-7b-8xa100.yaml"


@pytest.fixture(scope="module")
def job() -> Job:
    return read_job(JOB)


def test_batch_equation(job: Job) -> None:
    """64 sequences over 8 ranks with micro-batch 2: 64 / (8 × 2) = 4 micro-batches."""
    found = configuration(job, plain_plan(job).changed(micro_batch=2))
    assert found["train_batch_size"] == 64
    assert found["train_micro_batch_size_per_gpu"] == 2
    assert found["gradient_accumulation_steps"] == 4


def test_stage_3_with_offload(job: Job) -> None:
    plan = plain_plan(job).changed(zero_stage=3, optimizer_offload="cpu", parameter_offload="nvme")
    block = configuration(job, plan)["zero_optimization"]
    assert block["stage"] == 3
    assert block["offload_optimizer"] == {"device": "cpu", "pin_memory": True}
    assert block["offload_param"] == {
        "device": "nvme", "pin_memory": True, "nvme_path": "/local_nvme", "buffer_count": 5,
        "buffer_size": 131_072_000, "max_in_cpu": 0,
    }  # fmt: skip  # the embedding, 32000 × 4096, is the largest tensor


def test_buckets_are_the_ledgers(job: Job) -> None:
    block = configuration(job, plain_plan(job).changed(zero_stage=3))["zero_optimization"]
    assert block["reduce_bucket_size"] == job.reduce_bucket_size
    assert block["stage3_prefetch_bucket_size"] == job.prefetch_bucket_size
    assert block["sub_group_size"] == job.sub_group_size


def test_stage_0_has_no_buckets(job: Job) -> None:
    assert configuration(job, plain_plan(job))["zero_optimization"] == {"stage": 0, "contiguous_gradients": True}


def test_defaults_that_changed_between_versions_are_written_out(job: Job) -> None:
    found = configuration(job, plain_plan(job).changed(zero_stage=2, optimizer_offload="cpu"))
    assert found["gradient_clipping"] == 1.0
    assert found["bf16"]["check_grad_overflow"] is True
    assert found["zero_optimization"]["overlap_comm"] is True
    assert found["zero_optimization"]["offload_optimizer"]["pin_memory"] is True
    assert found["data_types"] == {"grad_accum_dtype": "bf16"}


def test_ranks_that_share_a_model_or_a_sequence(job: Job) -> None:
    """64 over 2 data-parallel ranks and 2 sequences: 16 times; the total is left out, DeepSpeed counts it otherwise."""
    layout = Layout(tensor=2, sequence=2, data=2, whole_stream=True)
    found = configuration(job, plain_plan(job).changed(layout=layout, micro_batch=2))
    assert "train_batch_size" not in found
    assert found["tensor_parallel"] == {"autotp_size": 2}
    assert (found["sequence_parallel_size"], found["data_parallel_size"]) == (2, 2)
    assert (found["train_micro_batch_size_per_gpu"], found["gradient_accumulation_steps"]) == (2, 16)
