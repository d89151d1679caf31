"""Steps that no GPU of the kind could have made in the time."""

from __future__ import annotations

from pathlib import Path

import pytest
from logs import write_log

from planner.accuracy.run_job import run_case
from planner.accuracy.run_log import Run, read_run_log
from planner.accuracy.run_model import Skipped
from planner.accuracy.run_time import beats_the_peak, least_flops, seconds_measured
from planner.job import Job

# A layer of the small model: 2 FLOP for each of 65536 weights, and 4 heads of 16 + 16 over 128 tokens: 147456. Two
# layers 294912, head 2 x 1000 x 64 = 128000; 8 sequences of 128 tokens are 1024.
LAYERS, HEAD, TOKENS = 294_912, 128_000, 1024


def found(folder: Path, **cells: str) -> tuple[Run, Job]:
    """The small run with cells replaced, and its job."""
    (run,) = read_run_log(write_log(folder, cells))
    return run, run_case(run).job


@pytest.mark.parametrize(
    ("cells", "layers", "head"),
    [
        ({}, 3, 3),  # forward, gradients of inputs and of weights
        ({"recompute": "full"}, 4, 3),
        ({"recompute": "partial:1 of 2"}, 3, 3),
    ],
)
def test_what_a_step_takes_at_the_least(tmp_path: Path, cells: dict[str, str], layers: int, head: int) -> None:
    assert least_flops(*found(tmp_path, **cells)) == TOKENS * (layers * LAYERS + head * HEAD)


def test_adapters_alone_need_no_gradients_of_weights(tmp_path: Path) -> None:
    run, job = found(tmp_path, method="lora", lora_rank="8", gradient_bytes="", zero_stage="2")
    kinds = sum(n * (job.flops_of(kind).matmul_per_token + job.flops_of(kind).attention_per_token)
                for kind, n in job.kind_counts)  # fmt: skip
    assert least_flops(run, job) == TOKENS * 2 * (kinds + HEAD)


@pytest.mark.parametrize(
    ("cells", "beats"),
    [
        # 1.299e9 FLOP on 2 x 312 TFLOP/s take 2.08 us
        ({"step_seconds": "0.00000200"}, True),
        ({"step_seconds": "0.00000210"}, False),
        ({"step_seconds": "0.00000210", "recompute": "full"}, True),
        ({"step_seconds": "", "tokens_per_second_per_gpu": "250000000"}, True),  # 1024 tokens in 2.05 us
        ({"step_seconds": ""}, False),
    ],
)
def test_no_run_beats_the_peak(tmp_path: Path, cells: dict[str, str], beats: bool) -> None:
    _, job = found(tmp_path)
    (run,) = read_run_log(write_log(tmp_path, cells))
    assert beats_the_peak(run, job) is beats
    if beats:
        with pytest.raises(Skipped, match="^faster than its GPU's peak: not with what it states$"):
            run_case(run)
    else:
        assert run_case(run).time_unknown == ""


def test_seconds_follow_from_the_throughput() -> None:
    run = Run(2, "a-1", "a", tokens_per_second_per_gpu=100.0, global_batch=8, sequence_length=50, gpus=2)
    assert seconds_measured(run) == 2.0  # 400 tokens of two GPUs with 100 a second each
