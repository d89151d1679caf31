"""What the training code of a run does where its row does not say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from logs import write_log

from planner.accuracy.run_job import Case, run_case
from planner.accuracy.run_log import read_run_log
from planner.accuracy.run_usual import as_usual
from planner.evaluate import evaluate
from planner.ledger import DeviceLedger

GIB = 2**30
ONE = {
    "runtime": "single", "gpus": "1", "gpus_per_node": "", "data_parallel": "", "zero_stage": "0", "global_batch": "4",
}  # fmt: skip
SMALL = {"parameter_bytes": "2", "gradient_bytes": "2", "master_bytes": "0"}
QLORA = {**ONE, "method": "qlora", "lora_rank": "4", "recompute": "full", "parameter_bytes": ""}
TITAN = {
    "runtime": "fsdp2", "zero_stage": "3", "parameter_bytes": "4", "gradient_bytes": "4", "master_bytes": "0",
    "recompute": "selective", "kernels": "compile", "attention": "",
}  # fmt: skip


def case(folder: Path, **cells: str) -> Case:
    (run,) = read_run_log(write_log(folder, cells))
    return run_case(run)


def ledger(found: Case) -> DeviceLedger:
    return evaluate(found.job, found.plan).ledger["gpu"]


def held(found: Case, moment: str) -> dict[str, int]:
    """Bytes of each line that stands at a moment."""
    (standing,) = (one for one in ledger(found).moments if one.name == moment)
    return {line.name: line.bytes for line in standing.lines}


# ── the optimizer ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (ONE, "adamw-foreach"),
        ({**ONE, "optimizer": "adamw"}, "adamw-foreach"),
        ({**ONE, **SMALL, "optimizer": "adam-bf16-states"}, "adamw-foreach"),
        ({**ONE, "optimizer": "adam-bf16-states"}, "adamw-bf16-states"),  # not torch's, whose moments are then fp32
        ({**ONE, "optimizer": "adamw-8bit"}, "adamw-8bit"),
        ({**ONE, "date": "2025-08"}, "adamw"),  # fused from then on
        ({**ONE, "kernels": "compile"}, "adamw"),
        ({**ONE, "notes": "AdamW (torch fused)"}, "adamw"),
        ({**ONE, "notes": "fused optimizer (stated)"}, "adamw"),
        ({**ONE, "notes": "fused loss"}, "adamw-foreach"),
        ({"runtime": "fsdp1", "zero_stage": "3"}, "adamw-foreach"),
        ({"runtime": "fsdp1", "zero_stage": "3", "architecture": "mpt"}, "adamw"),  # Composer's own loop
        ({"runtime": "fsdp2", "zero_stage": "3"}, "adamw"),
        ({}, "adamw"),  # DeepSpeed's
    ],
)
def test_torch_runs_its_optimizer_with_a_temporary_for_every_parameter_unless_told(
    tmp_path: Path, cells: dict[str, str], expected: str
) -> None:
    assert case(tmp_path, **cells).job.training.optimizer.key == expected


def test_the_peak_of_training_in_16_bits_is_five_times_the_parameters(tmp_path: Path) -> None:
    """Parameters, gradients, two moments and the temporary: 10 bytes each at the optimizer's step, and cuBLAS."""
    wide = {"hidden": "4096", "heads": "32", "kv_heads": "32", "ffn_hidden": "16384", "vocab": "1000"}
    found = case(tmp_path, **ONE, **SMALL, **wide, recompute="full")
    beside = sum(size for name, size in held(found, "optimizer_step").items() if name.startswith("cuBLAS"))
    assert ledger(found).tensors() == 10 * found.job.architecture.parameters + beside


# ── adapters ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"parameter_bytes": "2", "gradient_bytes": "4", "master_bytes": "0"}, "bf16"),  # PEFT: fp32 adapters
        ({"parameter_bytes": "2", "gradient_bytes": "2", "master_bytes": "0"}, "pure-bf16"),
        ({"parameter_bytes": "", "gradient_bytes": "2", "master_bytes": "0"}, "pure-bf16"),
        ({"parameter_bytes": "2", "gradient_bytes": "", "master_bytes": "0"}, "pure-bf16"),
        ({"parameter_bytes": "", "gradient_bytes": "", "master_bytes": ""}, "bf16"),
    ],
)
def test_of_a_frozen_base_the_bytes_of_gradients_are_those_of_the_adapters(
    tmp_path: Path, cells: dict[str, str], expected: str
) -> None:
    """Adapters, their gradients and both moments have 4 bytes each or 2 each, whatever the base is kept in."""
    found = case(tmp_path, **ONE, method="lora", lora_rank="4", **cells)
    assert found.job.training.precision.key == expected
    adapters, base = found.job.trainable_parameters, 2 * 259_392
    (standing,) = (one for one in ledger(found).moments if one.name == "optimizer_step")
    own = 4 if expected == "bf16" else 2
    wanted = {"parameters": base + own * adapters, "gradients": own * adapters, "optimizer_states": 2 * own * adapters}
    assert {book: standing.books[book] for book in wanted} == wanted


def test_training_in_fp32_has_nothing_to_raise(tmp_path: Path) -> None:
    found = case(tmp_path, **ONE, method="lora", lora_rank="4", precision="fp32", parameter_bytes="4")
    (standing,) = (one for one in ledger(found).moments if one.name == "forward")
    assert standing.books["parameters"] == 4 * (259_392 + found.job.trainable_parameters)


def test_a_base_in_fp32_is_stated(tmp_path: Path) -> None:
    """4 bytes of all parameters, and an fp32 stream; a checkpoint of it has 4 bytes for each of 64."""
    cells = {**ONE, "method": "lora", "lora_rank": "4", "gradient_bytes": "4", "master_bytes": "0", "recompute": "full"}
    small, wide = (case(tmp_path, **cells, parameter_bytes=size) for size in ("2", "4"))
    (standing,) = (one for one in ledger(wide).moments if one.name == "forward")
    assert standing.books["parameters"] == 4 * (259_392 + wide.job.trainable_parameters)
    assert held(wide, "forward")["checkpoints"] == 2 * held(small, "forward")["checkpoints"]


# ── the loss ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({**ONE, **SMALL, "kernels": "compile", "date": "2024-07"}, "standard"),
        ({**ONE, **SMALL, "kernels": "compile", "date": "2024-08"}, "chunked"),
        ({**ONE, **SMALL, "kernels": "compile"}, "standard"),  # A100: of 2022-11
        ({**ONE, **SMALL, "kernels": "compile", "gpu": "rtx4090-24gb"}, "chunked"),  # of 2024-09
        ({**ONE, **SMALL, "date": "2024-08"}, "standard"),
        ({**ONE, "kernels": "compile", "date": "2024-08"}, "standard"),  # fp32 parameters
        ({**ONE, "kernels": "compile", "date": "2025-04"}, "kernel"),
    ],
)
def test_compiled_layers_on_16_bit_parameters_have_a_loss_by_chunks(
    tmp_path: Path, cells: dict[str, str], expected: str
) -> None:
    assert case(tmp_path, **cells).job.training.loss == expected


# ── what is raised to fp32 ───────────────────────────────────────────────────────────────────────────────────────────


def test_a_base_in_4_bits_is_prepared_for_fp32_adapters(tmp_path: Path) -> None:
    """Embedding, head, norms and adapters are not quantized: 2 × 1000 × 64 + 5 × 64 = 128 320, and the adapters.

    Adapters of rank 4 on q, k, v, o: 4 × (64 + 64) each, on gate, up, down: 4 × (64 + 256): 2048 + 3840 = 5888 for each
    of two layers. All of it takes 2 bytes more, and a checkpoint 4 bytes for each of 64 in place of 2.
    """
    raised, kept = case(tmp_path, **QLORA), case(tmp_path, **QLORA, gradient_bytes="2", master_bytes="0")
    name = "embeddings and norms raised to fp32"
    assert (held(raised, "forward")[name], held(kept, "forward").get(name)) == (2 * (128_320 + 2 * 5888), None)
    checkpoints = [held(found, "forward")["checkpoints"] for found in (raised, kept)]
    assert checkpoints[0] == 2 * checkpoints[1] == 2 * 2 * 64 * 2 * 2 * 128  # bytes, width, layers, sequences, tokens


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"date": "2024-06"}, True),
        ({"date": "2024-07"}, False),
        ({"date": "2024-06", "kernels": "compile"}, False),  # torchao's 4 bits
        ({"date": "2024-06", "method": "lora"}, False),
    ],
)
def test_linear_layers_in_4_bits_kept_their_inputs(tmp_path: Path, cells: dict[str, str], expected: bool) -> None:
    assert case(tmp_path, **{**QLORA, **cells}).job.settings.inputs_kept is expected


def test_autocast_caches_no_copies_of_frozen_weights(tmp_path: Path) -> None:
    assert "16-bit weights cached by autocast" not in held(case(tmp_path, **QLORA), "loss")


EXPERTS = {"architecture": "moe-llama", "experts": "4", "experts_per_token": "2", "expert_ffn_hidden": "256"}


def test_experts_were_linear_layers_that_are_quantized(tmp_path: Path) -> None:
    """Of each of two layers attention's 4 × 64², and 4 experts of 3 × 64 × 256; gate and up of one are made 16-bit."""
    found = case(tmp_path, **QLORA, **EXPERTS)
    lines = held(found, "forward")
    assert lines["4-bit base"] == int(0.51587 * 2 * (4 * 64 * 64 + 4 * 3 * 64 * 256)) + 1
    assert lines["weight made 16-bit"] == 2 * 2 * 64 * 256
    assert (found.job.settings.experts, found.job.settings.precision) == ("loop", "autocast")


@pytest.mark.parametrize(
    "cells",
    [
        {**QLORA, "date": "2026-01"},  # stacked since
        {**TITAN, "gpus": "2"},
        {"runtime": "megatron", "zero_stage": "1", "gradient_bytes": "4"},
    ],
)
def test_stacked_experts_run_together_and_keep_their_16_bits(tmp_path: Path, cells: dict[str, str]) -> None:
    found = case(tmp_path, **{**EXPERTS, **cells})
    assert found.job.settings.experts == "grouped"
    assert held(found, "forward").get("4-bit base", 0) < 2 * 4 * 64 * 64
    assert found.job.settings.precision == "bf16"


# ── gradients ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("times", "forward"), [("1", 0), ("2", 1)])
def test_gradients_stand_beside_the_buckets_of_data_parallel(tmp_path: Path, times: str, forward: int) -> None:
    cells = {"runtime": "ddp", "zero_stage": "0", "gradient_accumulation": times, "global_batch": ""}
    found, name = case(tmp_path, **cells), "gradients beside the buckets"
    whole = 4 * found.job.architecture.parameters
    assert held(found, "optimizer_step")[name] == held(found, "optimizer_step")["gradients in buckets"] == whole
    assert held(found, "forward").get(name, 0) == forward * whole


def test_one_rank_has_no_buckets(tmp_path: Path) -> None:
    assert "gradients beside the buckets" not in held(case(tmp_path, **ONE), "optimizer_step")


# ── torchtitan ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("date", "elements"), [("2025-06", 2 * 64_000 + 64), ("2025-07", 64_000)])
def test_embedding_and_head_became_units_of_their_own(tmp_path: Path, date: str, elements: int) -> None:
    """The root unit stays whole in backward: embedding, norm and head; then the head alone."""
    assert held(case(tmp_path, **TITAN, date=date), "backward_start")["root unit"] == 2 * elements


@pytest.mark.parametrize(
    "cells",
    [
        {"recompute": "full", "kernels": ""},  # neither compiled nor selective
        {**SMALL, "recompute": "none"},  # 16-bit parameters: torchtune's
    ],
)
def test_other_code_on_fsdp2_keeps_one_root_unit(tmp_path: Path, cells: dict[str, str]) -> None:
    found = case(tmp_path, **{**TITAN, **cells}, date="2025-07")
    assert held(found, "backward_start")["root unit"] == 2 * (2 * 64_000 + 64)


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"gpu": "b200-180gb", "date": "2025-04"}, False),  # flash attention, which was always kept
        ({"gpu": "b200-180gb", "date": "2025-05"}, True),
        ({"gpu": "b200-180gb", "date": "2025-11"}, True),
        ({"gpu": "b200-180gb", "date": "2025-12"}, False),
        ({"gpu": "b200-180gb", "date": "2025-08", "attention": "flash"}, False),
        ({"gpu": "h100-sxm-80gb", "date": "2025-08"}, False),  # cuDNN on Blackwell alone
        ({"gpu": "b200-180gb"}, True),  # announced in 2024-03: from 2024-09 to 2026-08, of 2025-08
    ],
)
def test_attention_of_cudnn_was_made_again(tmp_path: Path, cells: dict[str, str], expected: bool) -> None:
    assert case(tmp_path, **{**TITAN, **cells}).job.settings.attention_remade is expected


# ── the allocator ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (ONE, 1.13),
        ({**ONE, "kernels": "expandable-segments"}, 1.03),
        ({"runtime": "fsdp1", "zero_stage": "3"}, 1.13),
        ({"runtime": "fsdp2", "zero_stage": "3"}, 1.13),
        ({}, 1.13),
        ({"kernels": "expandable-segments"}, 1.03),
        (TITAN, 1.03),
        ({**TITAN, "gpu": "mi300x-192gb"}, 1.06),  # on CUDA alone
        ({"runtime": "megatron-deepspeed", "zero_stage": "1"}, 1.10),  # its own
    ],
)
def test_the_waste_of_the_allocator(tmp_path: Path, cells: dict[str, str], expected: float) -> None:
    assert case(tmp_path, **cells).job.runtime.fragmentation == expected


def test_a_measured_waste_of_the_machine_counts_before_the_usual_one(tmp_path: Path) -> None:
    (run,) = read_run_log(write_log(tmp_path, ONE))
    job = run_case(run).job
    measured = replace(job, runtime=job.runtime.model_copy(update={"fragmentation": 1.2}))
    assert as_usual(run, measured).runtime.fragmentation == 1.2
