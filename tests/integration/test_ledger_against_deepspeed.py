"""The ledger of a plan against what real DeepSpeed holds when it runs that plan's own configuration.

A tiny model on two CPU ranks; no activations are counted on either side (eight tokens leave a tenth of a byte per
parameter) and no reserve (a CPU has no context). Tolerance: two hundredths of the larger figure.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

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

# (stage, micro-batches, accumulation dtype, optimizer offload)
CASES = [
    (0, 1, "bf16", "none"),
    (0, 2, "bf16", "none"),
    *[(stage, count, dtype, "none") for stage in (1, 2, 3) for count in (1, 2) for dtype in ("bf16", "fp32")],
    (1, 1, "bf16", "cpu"),
    *[(stage, count, "bf16", "cpu") for stage in (2, 3) for count in (1, 2)],
]
NAMES = [f"stage {stage}, {count} micro-batches, {dtype}, offload {offload}" for stage, count, dtype, offload in CASES]


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


def plan_of(job: Job, stage: int, dtype: str, offload: str) -> Plan:
    """The plain plan with one stage, accumulation dtype and offload."""
    values = {"zero_stage": stage, "gradient_accumulation_dtype": dtype, "optimizer_offload": offload}
    return plain_plan(job).changed(micro_batch=1, **values)


@lru_cache(maxsize=1)
def runs(folder: Path) -> list[tuple[Job, Plan, Record]]:
    """Every case's job and plan, with what DeepSpeed held; one pair of processes runs them all."""
    pairs = []
    for index, (stage, count, dtype, offload) in enumerate(CASES):
        place = folder / str(index)
        place.mkdir()
        job = job_of(place, count)
        pairs.append((job, plan_of(job, stage, dtype, offload)))
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
    stage, count, dtype, offload = CASES[index]
    gpu = ledger(job, plan)["gpu"]
    moments = {moment.name: moment for moment in gpu.moments}
    step = (states(gpu.phase("optimizer_step")), record.step.peak - record.host)
    found = {"step peak": step, "before the last forward": (
        states(moments["forward"], GATHERED), record.forward[-1].before - record.host
    )}  # fmt: skip
    if offload == "none":
        found["init peak"] = (max(states(gpu.phase("init")), states(moments["init_end"])), record.init.peak)
    if offload == "none" or stage < 3:
        backward = max(states(moment) for moment in gpu.moments if moment.phase == "backward")
        found["backward peak"] = (backward, record.backward_peak - record.host)
    wrong = {
        name: f"{ours} predicted, {theirs} measured, {ours / theirs - 1:+.1%}"
        for name, (ours, theirs) in found.items()
        if abs(ours - theirs) > TOLERANCE * max(ours, theirs)
    }
    assert not wrong, wrong


@pytest.mark.parametrize("index", [i for i, case in enumerate(CASES) if case[3] == "cpu"])
def test_host(measured_runs: list[tuple[Job, Plan, Record]], index: int) -> None:
    """Host memory of one rank: the CPU pins nothing, so sizes are taken before rounding to powers of two."""
    job, plan, record = measured_runs[index]
    host = {moment.name: moment for moment in ledger(job, plan)["host"].moments}["optimizer_step"]
    held = sum(line.bytes for line in host.lines if line.book != "reserve") / job.cluster.gpus_per_node
    assert record.host * (1 - TOLERANCE) <= held <= 2 * record.host
