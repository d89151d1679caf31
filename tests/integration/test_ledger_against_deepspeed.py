"""The ledger of a plan against what real DeepSpeed holds when it runs that plan's own configuration.

A tiny model on two CPU ranks; no activations are counted on either side (eight tokens leave a tenth of a byte per
parameter) and no reserve (a CPU has no context). Tolerance: two hundredths of the larger figure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

pytest.importorskip("deepspeed")

from measured_run import Record, Shape, measured

from planner.emit.deepspeed import configuration
from planner.job import Job
from planner.ledger import Moment, ledger
from planner.plan import Plan
from planner.resolve import plain_plan, read_job

TOLERANCE = 0.02
SHAPE = Shape()


class Case(NamedTuple):
    """A plan: ZeRO stage, micro-batches, accumulation dtype, optimizer offload, buffers that are not the job's own."""

    stage: int
    micro_batches: int
    dtype: str = "bf16"
    offload: str = "none"
    buffers: Mapping[str, int] = {}

    @property
    def name(self) -> str:
        """Such as `stage 2, 1 micro-batches, bf16, offload none, reduce_bucket 200000`."""
        told = f"stage {self.stage}, {self.micro_batches} micro-batches, {self.dtype}, offload {self.offload}"
        return ", ".join([told, *(f"{name} {size}" for name, size in self.buffers.items())])


# Matrices of 65 536, 176 128 and 524 288 elements, layers of 791 040: what the job's own buckets hold.
BUFFERS = [
    Case(1, 2, buffers={"reduce_bucket": 2_000_000}),
    Case(2, 1, buffers={"reduce_bucket": 200_000}),
    Case(2, 2, buffers={"reduce_bucket": 2_000_000}),
    Case(3, 1, buffers={"reduce_bucket": 400_000}),
    Case(3, 1, buffers={"reduce_bucket": 2_000_000}),
    Case(3, 1, buffers={"prefetch_bucket": 200_000, "live_parameters": 1_500_000}),
    Case(3, 1, buffers={"prefetch_bucket": 0, "live_parameters": 0}),
    Case(3, 1, buffers={"prefetch_bucket": 1_500_000, "live_parameters": 3_000_000}),
    Case(3, 1, buffers={"sub_group": 300_000}),
    Case(3, 1, buffers={"sub_group": 600_000}),
]
CASES = [
    Case(0, 1),
    Case(0, 2),
    *[Case(stage, count, dtype) for stage in (1, 2, 3) for count in (1, 2) for dtype in ("bf16", "fp32")],
    Case(1, 1, offload="cpu"),
    *[Case(stage, count, offload="cpu") for stage in (2, 3) for count in (1, 2)],
    *BUFFERS,
]
NAMES = [case.name for case in CASES]


def job_of(folder: Path, micro_batches: int) -> Job:
    """The tiny model of the measured run as a job on two GPUs of one node."""
    config = {
        "model_type": "llama",
        "hidden_size": SHAPE.hidden_size,
        "intermediate_size": SHAPE.intermediate_size,
        "num_hidden_layers": SHAPE.layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "vocab_size": SHAPE.vocabulary,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "job.yaml").write_text(
        "model: config.json\n"
        "cluster: {gpu: a100-sxm-80gb, gpus_per_node: 2, host_memory: 64 GiB}\n"
        f"training: {{sequence_length: {SHAPE.sequence}, global_batch: {2 * micro_batches}}}\n"
    )
    return read_job(folder / "job.yaml")


def plan_of(job: Job, case: Case) -> Plan:
    """The plain plan with the stage, accumulation dtype, offload and buffers of a case."""
    values = {"zero_stage": case.stage, "gradient_accumulation_dtype": case.dtype, "optimizer_offload": case.offload}
    return plain_plan(job).changed(micro_batch=1, **values, **case.buffers)


@lru_cache(maxsize=1)
def runs(folder: Path) -> list[tuple[Job, Plan, Record]]:
    """Every case's job and plan, with what DeepSpeed held; one pair of processes runs them all."""
    pairs = []
    for index, case in enumerate(CASES):
        place = folder / str(index)
        place.mkdir()
        job = job_of(place, case.micro_batches)
        pairs.append((job, plan_of(job, case)))
    records = measured([configuration(job, plan) for job, plan in pairs], SHAPE)
    return [(job, plan, record) for (job, plan), record in zip(pairs, records, strict=True)]


@pytest.fixture(scope="module")
def measured_runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Job, Plan, Record]]:
    return runs(tmp_path_factory.mktemp("runs"))


def states(moment: Moment, leave_out: tuple[str, ...] = ()) -> int:
    """Bytes of a moment without activations and reserve."""
    return sum(
        line.bytes
        for line in moment.lines
        if line.book not in ("activations", "reserve") and line.name not in leave_out
    )


# What stage 3 gathers for one layer stands inside a forward and not before it.
GATHERED = ("parameters gathered", "second copy while gathering")


@pytest.mark.parametrize("index", range(len(CASES)), ids=NAMES)
def test_phases(measured_runs: list[tuple[Job, Plan, Record]], index: int) -> None:
    job, plan, record = measured_runs[index]
    stage, offload = CASES[index].stage, CASES[index].offload
    gpu = ledger(job, plan)["gpu"]
    moments = {moment.name: moment for moment in gpu.moments}
    step = (states(gpu.phase("optimizer_step")), record.step.peak - record.host)
    found = {"step peak": step, "before the last forward": (
        states(moments["forward"], GATHERED), record.forward[-1].before - record.host
    )}  # fmt: skip
    if offload == "none":
        found["init peak"] = (max(states(gpu.phase("init")), states(moments["init_end"])), record.init.peak)
    if (offload == "none" or stage < 3) and not (stage == 3 and CASES[index].buffers):
        backward = max(states(moment) for moment in gpu.moments if moment.phase == "backward")
        found["backward peak"] = (backward, record.backward_peak - record.host)
    wrong = {
        name: f"{ours} predicted, {theirs} measured, {ours / theirs - 1:+.1%}"
        for name, (ours, theirs) in found.items()
        if abs(ours - theirs) > TOLERANCE * max(ours, theirs)
    }
    assert not wrong, wrong


@pytest.mark.parametrize("index", [i for i, case in enumerate(CASES) if case.stage == 3 and case.buffers])
def test_backward_with_other_buffers(measured_runs: list[tuple[Job, Plan, Record]], index: int) -> None:
    """Between what is held without the copy that gloo makes of what it reduce-scatters, 2 bytes each, and with it.

    Activations count here: whether gathered parameters are of forward or of backward depends on the buffers.
    """
    job, plan, record = measured_runs[index]
    moments = (moment for moment in ledger(job, plan)["gpu"].moments if moment.phase == "backward")
    ours = max(sum(line.bytes for line in moment.lines if line.book != "reserve") for moment in moments)
    theirs, copied = record.backward[-1].peak, 2 * max(record.bucket, record.largest)
    assert (theirs - copied) * (1 - TOLERANCE) <= ours <= theirs * (1 + TOLERANCE)


@pytest.mark.parametrize("index", [i for i, case in enumerate(CASES) if case.offload == "cpu"])
def test_host(measured_runs: list[tuple[Job, Plan, Record]], index: int) -> None:
    """Host memory of one rank: the CPU pins nothing, so sizes are taken before rounding to powers of two."""
    job, plan, record = measured_runs[index]
    host = {moment.name: moment for moment in ledger(job, plan)["host"].moments}["optimizer_step"]
    held = sum(line.bytes for line in host.lines if line.book != "reserve") / job.cluster.gpus_per_node
    assert record.host * (1 - TOLERANCE) <= held <= 2 * record.host
