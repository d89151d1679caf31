"""The step time that a run states, and whether its GPUs can have been that fast."""

from __future__ import annotations

from planner.accuracy.run_log import Run
from planner.job import Job


def seconds_measured(run: Run) -> float | None:
    """Seconds of the step to score, from the throughput where only that is stated; None where there is none."""
    if run.score_time is False or run.fits == "oom":
        return None
    if run.step_seconds is not None:
        return run.step_seconds
    if None in (run.tokens_per_second_per_gpu, run.global_batch, run.sequence_length, run.gpus):
        return None
    tokens = int(run.global_batch or 0) * int(run.sequence_length or 0)
    return tokens / float(run.tokens_per_second_per_gpu or 1.0) / int(run.gpus or 1)


def beats_the_peak(run: Run, job: Job) -> bool:
    """Whether a run states a step in which its GPUs would do more FLOP per second than the vendor's dense peak."""
    seconds = seconds_measured(run)
    peak = job.cluster.gpu.peak[job.training.precision.peak]
    return seconds is not None and least_flops(run, job) > seconds * peak * job.cluster.gpus


def least_flops(run: Run, job: Job) -> float:
    """FLOP that a step takes on all GPUs together at the least.

    One forward pass, as much again for the gradients of inputs, for those of weights where all are trained, and for
    layers that are all recomputed.
    """
    training = job.training
    tokens = training.global_batch * training.sequence_length
    counted = ((count, job.flops_of(kind)) for kind, count in job.kind_counts)
    layers = sum(count * (flops.matmul_per_token + flops.attention_per_token) for count, flops in counted)
    passes = 3 if training.method == "full" else 2
    again = 1 if run.recompute == "full" else 0
    return float(tokens * ((passes + again) * layers + passes * job.flops.head_per_token))
