"""What each target's files say under each runtime, word for word, and what goes to a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from planner.emit.megatron import arguments
from planner.emit.targets import emitted, notes
from planner.emit.text import emission_answer, emission_text
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.plan import Layout, Plan
from tests.jobs import job, plan


def small(runtime: str, gpus: int = 2, **values: object) -> Evaluation:
    """Four layers, eight sequences."""
    found = job(cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": gpus}, training={"runtime": runtime})
    return evaluate(found, plan(found, **values))


def accelerate(found: Evaluation) -> dict[str, Any]:
    """The content of accelerate.yaml."""
    read: dict[str, Any] = yaml.safe_load(emitted(found, "accelerate")["accelerate.yaml"])
    return read


def trainer(found: Evaluation) -> dict[str, Any]:
    """The content of training_arguments.json."""
    read: dict[str, Any] = json.loads(emitted(found, "trainer")["training_arguments.json"])
    return read


@pytest.mark.parametrize(("gpus", "kind"), [(1, "NO"), (2, "MULTI_GPU")])
def test_accelerate_of_plain_data_parallelism(gpus: int, kind: str) -> None:
    read = accelerate(small("ddp", gpus))
    assert (read["distributed_type"], read["mixed_precision"], read["num_processes"]) == (kind, "bf16", gpus)
    assert "deepspeed_config" not in read and "fsdp_config" not in read


@pytest.mark.parametrize(("stage", "word"), [(2, "SHARD_GRAD_OP"), (3, "FULL_SHARD")])
def test_fsdp1_has_a_word_for_the_stage(stage: int, word: str) -> None:
    """In both files the same."""
    found = small("fsdp1", zero_stage=stage)
    block = accelerate(found)["fsdp_config"]
    assert (block["fsdp_version"], block["fsdp_sharding_strategy"]) == (1, word)
    assert trainer(found)["fsdp_config"] == {
        "version": 1, "auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "reshard_after_forward": word,
    }  # fmt: skip


def test_fsdp2_reshards_in_both_files() -> None:
    found = small("fsdp2", zero_stage=3)
    read = accelerate(found)
    assert (read["distributed_type"], read["fsdp_config"]["fsdp_version"]) == ("FSDP", 2)
    fields = trainer(found)
    assert (fields["fsdp"], fields["fsdp_config"]["version"]) == (True, 2)
    assert fields["fsdp_config"]["reshard_after_forward"] is True
    assert "deepspeed" not in fields


def test_trainer_of_plain_data_parallelism_looks_for_no_unused_weights() -> None:
    fields = trainer(small("ddp"))
    assert fields["ddp_find_unused_parameters"] is False
    assert "fsdp" not in fields and "deepspeed" not in fields


@pytest.mark.parametrize(
    ("precision", "word"), [("bf16", "bf16"), ("fp16", "fp16"), ("fp8", "fp8"), ("pure-bf16", "no"), ("fp32", "no")]
)
def test_accelerates_word_for_a_precision(precision: str, word: str) -> None:
    """What is in one format throughout is not mixed."""
    found = job(
        cluster={"gpu": "h100-sxm-80gb", "gpus_per_node": 2}, training={"runtime": "fsdp2", "precision": precision}
    )
    read = accelerate(evaluate(found, plan(found, zero_stage=3)))
    assert read["mixed_precision"] == word


# ── notes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_choices_that_no_file_holds_are_notes() -> None:
    found = small("deepspeed", activation_offload="cpu", checkpoint_count=4, checkpoint_interval=1)
    found = replace(found, plan=found.plan.changed(recompute_policy="selective"))
    apply = "planner.runtime.apply(model, plan) does it"
    assert notes(found, "deepspeed") == (
        f"checkpointing of 4 segments of 1 layers stands in no configuration file: {apply}",
        f"activation offload stands in no configuration file: {apply}",
        f"selective recomputation stands in no configuration file: {apply}",
    )


def test_liger_kernels_are_the_scripts() -> None:
    found = job(training={"kernels": "liger"})
    remarks = notes(evaluate(found, plan(found)), "deepspeed")
    assert remarks == ("the kernels are Liger's: the training script applies them to the model",)


# ── Megatron ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def words(found: Job, layout: Layout, **values: Any) -> list[str]:
    """Megatron's arguments for the small job, whatever holds of it elsewhere."""
    return [" ".join(words) for words in arguments(found, _plan(found, layout, values))]


def _plan(found: Job, layout: Layout, values: dict[str, Any]) -> Plan:
    return plan(found, **values).changed(layout=layout)


def test_megatron_without_any_splitting() -> None:
    """Four layers of width 256 with 4 heads; stage 0 asks for no distributed optimizer."""
    found = job()
    told = words(found, Layout(data=2), zero_stage=0)
    heads = found.layer_kinds[0].attention
    assert heads is not None
    assert told == [
        "--tensor-model-parallel-size 1", "--pipeline-model-parallel-size 1", "--context-parallel-size 1",
        "--expert-model-parallel-size 1", "--micro-batch-size 1", "--global-batch-size 8", "--seq-length 512",
        "--clip-grad 1.0", "--num-layers 4", f"--hidden-size {found.architecture.hidden}",
        f"--num-attention-heads {heads.heads}", "--bf16",
    ]  # fmt: skip


def test_megatron_of_interleaved_stages_counts_the_layers_of_a_part() -> None:
    """4 layers in 2 stages of 2 parts: one each."""
    told = words(job(), Layout(pipeline=2, data=1, virtual_stages=2))
    assert told[0] == "--num-layers-per-virtual-pipeline-stage 1"
    assert not any(word.startswith("--pipeline-model-parallel-layout") for word in told)


def test_megatron_of_uneven_stages_draws_them() -> None:
    """4 layers in 3 stages; the ends hold fewer."""
    told = words(job(), Layout(pipeline=3, data=1))
    (drawn,) = [word for word in told if word.startswith("--pipeline-model-parallel-layout")]
    shape = drawn.split()[1]
    assert shape[0] == "E" and shape[-1] == "L"
    assert [len(stage) for stage in shape.strip("EL").split("|")] == [1, 2, 1]


def test_megatron_of_optimizer_states_in_groups() -> None:
    """8 ranks whose states are divided over 4: two instances."""
    assert "--num-distributed-optimizer-instances 2" in words(job(), Layout(data=8, shard=4))


@pytest.mark.parametrize(("whole_stream", "expected"), [(False, True), (True, False)])
def test_megatron_divides_the_stream_unless_it_is_whole(whole_stream: bool, expected: bool) -> None:
    told = words(job(), Layout(tensor=2, data=1, whole_stream=whole_stream))
    assert ("--sequence-parallel" in told) is expected


def test_megatron_of_fp8_and_of_fp32_sums() -> None:
    found = job(cluster={"gpu": "h100-sxm-80gb", "gpus_per_node": 2}, training={"precision": "fp8"})
    told = words(found, Layout(data=2), gradient_accumulation_dtype="fp32")
    assert {"--bf16", "--fp8-format=hybrid", "--accumulate-allreduce-grads-in-fp32"} <= set(told)
    assert "--fp32" not in words(job(training={"precision": "fp32"}), Layout(data=2))


# ── the terminal ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_single_file_is_shown_as_it_is_and_several_by_name() -> None:
    assert emission_text({"a.json": "{}\n"}) == "{}\n"
    assert emission_text({"a": "1\n", "b": "2\n"}) == "==> a <==\n1\n\n==> b <==\n2\n"
    assert emission_answer("slurm", {"a": "1\n"}, ("note",)) == {
        "target": "slurm", "files": {"a": "1\n"}, "notes": ["note"],
    }  # fmt: skip
