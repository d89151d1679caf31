"""Training settings as decisions: the minimum over variants solved alone, nothing unnamed, every message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.choosing.allowed import MOST_BATCHES, batches_between
from planner.choosing.answer import chosen_answer
from planner.choosing.choice import Choice, leaves_open, read_choice
from planner.choosing.choosing import Chosen, choose
from planner.choosing.text import chosen_text
from planner.errors import InputError
from planner.resolve import read_job
from planner.search import best_plan
from tests.commands import run

# 30 million parameters on two GPUs: every variant is solved in a moment.
SMALL = """\
model: {parameters: 30e6, layers: 4, vocabulary: 8000}
cluster: {gpu: a100-sxm-80gb, gpus_per_node: 2, gpu_price: 1 USD/hour}
training: {sequence_length: 512, global_batch: 16}
choices: {zero_stage: 1, optimizer_offload: none, parameter_offload: none, activation_offload: none, loss: standard}
"""
ALL = "allow: {optimizer: [adamw, adamw-8bit], method: [{lora: {rank: 8}}], kernels: [liger]}\n"
BATCHES = "allow: {global_batch: {min: 8, max: 24}, optimizer: [adafactor]}\n"
# AdamW takes 16 bytes for each of 1e9 parameters: 14.9 GiB. One GPU of 11 GiB holds the 10 bytes of 8-bit moments only
# in part; with adapters 2 bytes for each are enough.
LARGE = """\
model: {parameters: 1e9, layers: 16, vocabulary: 8000}
cluster: {gpu: a100-sxm-80gb, gpus_per_node: 1, gpu_memory: 15 GiB}
training: {sequence_length: 512, global_batch: 4}
choices: {optimizer_offload: none, parameter_offload: none, activation_offload: none, loss: chunked}
"""

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a job of these lines."""

    def written(*lines: str) -> Path:
        path = tmp_path / "job.yaml"
        path.write_text("".join(lines), encoding="utf-8")
        return path

    return written


def names(choice: Choice) -> list[str]:
    return [candidate.name for candidate in choice.candidates]


def statuses(found: Chosen) -> dict[str, str]:
    return {outcome.candidate.name: outcome.status for outcome in found.outcomes}


def taken(found: Chosen) -> str:
    assert found.best is not None
    return found.best.candidate.name


# ── which variants there are ─────────────────────────────────────────────────────────────────────────────────────────


def test_own_values_come_first_and_what_is_named_twice_once(write: Write) -> None:
    allow = "allow: {optimizer: [adamw-8bit, adamw, lion], precision: [bf16, fp16], attention: [flash, sdpa]}\n"
    told = names(read_choice(write(SMALL, allow)))
    assert told[:4] == ["own values", "sdpa attention", "fp16", "fp16, sdpa attention"]
    assert len(told) == 3 * 2 * 2


def test_methods_are_told_apart(write: Write) -> None:
    methods = "full, {lora: {rank: 8}}, {lora: {rank: 8, targets: [q, v]}}, {qlora: {rank: 8, train_embeddings: true}}"
    assert names(read_choice(write(SMALL, f"allow: {{method: [{methods}]}}\n"))) == [
        "own values", "lora 8", "lora 8 on q and v", "qlora 8 with embeddings",
    ]  # fmt: skip


def test_nothing_is_used_unless_named(write: Write) -> None:
    choice = read_choice(write(SMALL, "allow: {optimizer: [adamw-8bit]}\n"))
    told = {
        (job.training.optimizer.key, job.training.precision.key, job.training.method, job.training.kernels,
         job.training.attention, job.training.global_batch)
        for job in (one.job for one in choice.candidates) if job is not None
    }  # fmt: skip
    assert told == {(name, "bf16", "full", "huggingface", "flash", 16) for name in ("adamw", "adamw-8bit")}


def test_clusters_and_settings_are_combined(write: Write) -> None:
    machines = "{choose: [{node: aws-p4d.24xlarge}, {gpu: l4-24gb, gpus_per_node: 2}]}"
    job = SMALL.replace("{gpu: a100-sxm-80gb, gpus_per_node: 2, gpu_price: 1 USD/hour}", machines)
    choice = read_choice(write(job, "allow: {precision: [fp8]}\n"))
    assert [(one.name, one.reason) for one in choice.candidates] == [
        ("1 × aws-p4d.24xlarge", ""),
        ("1 × aws-p4d.24xlarge with fp8", "a100-sxm-40gb has no fp8"),
        ("1 × 2x-l4-24gb", ""),
        ("1 × 2x-l4-24gb with fp8", ""),
    ]
    answer = chosen_answer(choose(choice))
    assert answer["choice"]["cluster"] == "1 × aws-p4d.24xlarge"
    assert [entry["status"] for entry in answer["clusters"]] == ["fits", "left_out", "not_better", "not_better"]


# Two nodes over slow Ethernet with a model whose tensors divide by eight for each of four ranks.
NETWORK = """\
model: {parameters: 50141952, layers: 4, vocabulary: 8064, hidden: 768, intermediate: 3072}
cluster: {gpu: a100-sxm-80gb, gpus_per_node: 2, nodes: 2, interconnect: 10 Gbit/s, gpu_price: 1 USD/hour}
training: {sequence_length: 512, global_batch: 16}
choices: {zero_stage: 3, optimizer_offload: none, parameter_offload: none, loss: standard}
"""


def test_values_of_choices_are_options(write: Write) -> None:
    """Each alone and both together; those that do nothing on one node are left out by name."""
    allow = "allow: {choices: {gather_precision: int8, reduction_precision: [int4]}}\n"
    choice = read_choice(write(NETWORK, allow))
    assert names(choice) == [
        "own values", "reduction_precision int4", "gather_precision int8",
        "gather_precision int8, reduction_precision int4",
    ]  # fmt: skip
    assert [one.changes for one in choice.candidates] == [(0, 0), (1, 1), (1, 1), (2, 2)]
    alone = read_choice(write(NETWORK.replace(", nodes: 2, interconnect: 10 Gbit/s", ""), allow))
    idle = "reduction_precision int4 does nothing where nodes is 1"
    assert [one.reason for one in alone.candidates] == ["", idle, "", idle]


def test_a_slow_network_takes_few_bits(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Both are used and told; the job that is written names them under choices."""
    path = write(NETWORK, "allow: {choices: {gather_precision: [int8], reduction_precision: [int4]}}\n")
    found = choose(read_choice(path))
    assert taken(found) == "gather_precision int8, reduction_precision int4"
    answer = chosen_answer(found)
    assert answer["choice"]["choices"] == {"gather_precision": "int8", "reduction_precision": "int4"}
    assert [one["setting"] for one in answer["choice"]["allowed"]["used"]] == [
        "choices.gather_precision", "choices.reduction_precision",
    ]  # fmt: skip
    text = chosen_text(found)
    assert "Uses: gather_precision int8 (changes numerics), reduction_precision int4 (changes numerics)." in text
    run(capsys, "solve", str(path), "--out", str(tmp_path / "out"))
    written = read_job(tmp_path / "out" / "job.yaml")
    assert written.choices["gather_precision"] == ("int8",)
    assert written.choices["zero_stage"] == (3,)


def test_own_values_that_cannot_be_leave_the_others(write: Write) -> None:
    job = SMALL.replace("512, global", "512, precision: fp8, global")
    found = choose(read_choice(write(job, "allow: {precision: [bf16]}\n")))
    assert statuses(found) == {"own values": "left_out", "bf16": "fits"}
    assert "own values      " in chosen_text(found) and "left out: a100-sxm-80gb has no fp8" in chosen_text(found)


# Divisors of 24 are 1, 2, 3, 4, 6, 8, 12 and 24: between 50 and 100 lie 64 = 1 × 64, 96 = 3 × 32, and the end.
# Of 1, 2, 4, ..., 1024 on one GPU, eleven, eight are left: places 0, 1, 2, 4, 5, 7, 8 and 10.
@pytest.mark.parametrize(
    ("low", "high", "gpus", "expected"),
    [
        (256, 1024, 64, (256, 512, 1024)),
        (50, 100, 24, (64, 96, 100)),
        (7, 7, 8, (7,)),
        (1, 1024, 1, (1, 2, 4, 16, 32, 128, 256, 1024)),
    ],
)
def test_batches_of_a_range(low: int, high: int, gpus: int, expected: tuple[int, ...]) -> None:
    assert batches_between(low, high, gpus) == expected
    assert len(expected) <= MOST_BATCHES


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        (
            "{optimizer: [adamw_8bit]}",
            "5:21: allow.optimizer[0]: unknown optimizer 'adamw_8bit'; did you mean one of adamw-8bit, "
            "paged-adamw-8bit?",
        ),
        (
            "{optimiser: [lion]}",
            "5:9: allow.optimiser: unknown key 'optimiser'; expected one of optimizer, precision, method, attention, "
            "kernels, global_batch, choices; did you mean 'optimizer'?",
        ),
        (
            "{precision: [fp9]}",
            "5:21: allow.precision[0]: 'fp9' is not valid; expected one of fp32, fp16, bf16, pure-bf16, fp8; did you "
            "mean 'fp8'?",
        ),
        (
            "{kernels: [ligr]}",
            "5:19: allow.kernels[0]: unknown kernels 'ligr'; expected one of huggingface, liger, megatron, compiled; "
            "did you mean 'liger'?",
        ),
        (
            "{method: [qlora]}",
            "5:18: allow.method[0]: 'qlora' is not valid; expected full, {lora: {rank: 16}}, {qlora: {rank: 16}} or "
            "{dora: {rank: 16}}; write {qlora: {rank: 16}}",
        ),
        ("{optimizer: lion}", "5:20: allow.optimizer: 'lion' is text; expected a list"),
        (
            "{global_batch: 8}",
            "5:23: allow.global_batch: 8 is a number; expected a list of whole numbers, or {min: 32, max: 128}",
        ),
        (
            "{global_batch: {min: 9, max: 8}}",
            "5:29: allow.global_batch.min: min 9 is above max 8; expected min of at most max",
        ),
        ("3", "5:8: allow: 3 is a number; expected a mapping"),
        (
            "{choices: {gather_precison: int8}}",
            "5:19: allow.choices.gather_precison: unknown choice 'gather_precison'; expected one of gather_precision, "
            "reduction_precision, optimizer_on_gpu, offloaded_update, optimizer_update, reduce_bucket, "
            "prefetch_bucket, live_parameters, sub_group, loss; did you mean 'gather_precision'?",
        ),
        (
            "{choices: {secondary_partition: node}}",
            "5:19: allow.choices.secondary_partition: 'secondary_partition' has no values that must be allowed; "
            "expected one of gather_precision, reduction_precision, optimizer_on_gpu, offloaded_update, "
            "optimizer_update, reduce_bucket, prefetch_bucket, live_parameters, sub_group, loss",
        ),
        (
            "{choices: {gather_precision: [int8, int4]}}",
            "5:44: allow.choices.gather_precision[1]: 'int4' is no value of gather_precision that must be allowed; "
            "expected one of int8",
        ),
        (
            "{choices: {loss: fused}}",
            "5:19: allow.choices.loss: choices.loss names its values already; expected one of the two",
        ),
        (
            "{optimizer: [lion]}\nobjective: memory",
            "6:12: objective: 'memory' does not choose what is allowed; expected one of step_time, cost",
        ),
    ],
)  # fmt: skip
def test_mistakes(write: Write, allow: str, message: str) -> None:
    path = write(SMALL, f"allow: {allow}\n")
    with pytest.raises(InputError) as caught:
        read_choice(path)
    assert str(caught.value).replace(f"{path}:", "") == message


def test_a_range_stands_once(write: Write) -> None:
    path = write(SMALL.replace("batch: 16", "batch: {min: 8, max: 16}"), "allow: {global_batch: [8]}\n")
    with pytest.raises(InputError) as caught:
        read_choice(path)
    assert str(caught.value) == (
        f"{path}:5:9: allow.global_batch: training.global_batch is a range already; expected one of the two"
    )


def test_other_commands_say_who_settles(write: Write) -> None:
    path = write(SMALL, ALL)
    with pytest.raises(InputError) as caught:
        read_job(path)
    assert str(caught.value) == (
        f"{path}:5:1: allow: training settings are left open; expected one job; planner solve settles them; --out "
        "writes its job"
    )


# ── which is taken ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("objective", "allow"), [("step_time", ALL), ("cost", BATCHES), ("step_time", BATCHES)])
def test_the_plan_is_that_of_all_variants_solved_alone(write: Write, allow: str, objective: str) -> None:
    choice = read_choice(write(SMALL, allow, f"objective: {objective}\n"))
    found, plans = choose(choice), []
    for one in choice.candidates:
        assert one.job is not None
        best = best_plan(one.job)
        if best is not None:
            numerics = sum(kind.changes != "installation" for kind in one.variant.allowances)
            tokens = one.job.training.global_batch * one.job.training.sequence_length
            plans.append((best.step_time.seconds / tokens, numerics, len(one.variant.allowances), one.name))
    near = [plan for plan in plans if plan[0] <= min(plans)[0] * 1.01]
    expected = min(near, key=lambda plan: (*plan[1:3], plan[0]))
    assert found.proven and taken(found) == expected[3]


def test_a_change_that_is_no_better_is_not_taken(write: Write) -> None:
    """The update of 30 million parameters is a small part of the step: 8-bit moments make it less than 1 % shorter."""
    found = choose(read_choice(write(SMALL.replace("batch: 16", "batch: 64"), "allow: {optimizer: [adamw-8bit]}\n")))
    assert taken(found) == "own values"
    told = "Uses nothing beside the job's own values.\nNot needed: adamw-8bit (changes numerics).\n"
    assert told in chosen_text(found)


def test_a_change_that_makes_a_plan_possible_is_taken(write: Write) -> None:
    found = choose(read_choice(write(LARGE, "allow: {optimizer: [adamw-8bit], precision: [fp16]}\n")))
    assert statuses(found) == {
        "own values": "no_plan", "fp16": "no_plan", "adamw-8bit": "fits", "adamw-8bit, fp16": "fits",
    }  # fmt: skip
    assert taken(found) == "adamw-8bit" and found.proven
    text = chosen_text(found)
    assert text.startswith("4 variants, the shortest step is wanted\n\n  variant ")
    assert (
        "\nChosen: adamw-8bit. Proven: none is better by more than 1 %, or as good with fewer changes of numerics.\n"
        "Uses: adamw-8bit (changes numerics).\n"
        "Without a change of numerics there is no plan, proven.\n"
        "Not needed: fp16 (changes numerics).\n"
    ) in text
    told = {"setting": "optimizer", "value": "adamw-8bit", "name": "adamw-8bit", "in_place_of": "adamw"}
    choice = chosen_answer(found)["choice"]
    assert choice["allowed"]["used"] == [{**told, "changes": "numerics"}]
    assert [one["name"] for one in choice["allowed"]["not_needed"]] == ["fp16"]
    assert (choice["candidate"], choice["training"]) == ("adamw-8bit", {"optimizer": "adamw-8bit"})


def test_a_faster_change_is_told_with_what_it_saves(write: Write) -> None:
    """Adapters have no products for the gradients of weights: two thirds of the work are left in wide layers."""
    job = SMALL.replace("batch: 16", "batch: 256").replace("30e6", "1e9")
    found = choose(read_choice(write(job, "allow: {method: [{lora: {rank: 8}}]}\n")))
    assert taken(found) == "lora 8"
    assert "\nUses: lora 8 (changes numerics).\nWithout a change of numerics " in chosen_text(found)


def test_a_range_is_compared_by_tokens(write: Write) -> None:
    """Batches of 8 and 16 on two GPUs; a step of the smaller one is shorter, and one token of it takes longer."""
    path = write(SMALL.replace("batch: 16", "batch: {min: 8, max: 16}"))
    found = choose(read_choice(path))
    assert statuses(found)["batch 16"] == "fits" and taken(found) == "batch 16"
    assert chosen_text(found).startswith("2 variants, the least time per token is wanted\n")
    answer = chosen_answer(found)
    seconds = answer["step_time"]["seconds"]
    assert answer["choice"]["unit"] == "seconds per 10^6 tokens"
    assert answer["choice"]["value"] == pytest.approx(seconds / (16 * 512) * 1e6)
    assert answer["choice"]["allowed"] == {"used": [], "not_needed": []}
    assert read_job(path).training.global_batch == 16  # other commands plan the largest


def test_a_deadline_takes_a_smaller_batch(write: Write) -> None:
    """The deadline is the best step of 12 sequences; 16 take longer."""
    twelve = best_plan(read_job(write(SMALL.replace("batch: 16", "batch: 12"))))
    assert twelve is not None
    limits = f"limits: {{step_time_at_most: {twelve.step_time.seconds} s}}\n"
    found = choose(read_choice(write(SMALL, "allow: {global_batch: [12]}\n", limits)))
    assert statuses(found) == {"batch 16": "no_plan", "batch 12": "fits"}
    assert "Uses: batch 12 (changes convergence).\n" in chosen_text(found)


def test_what_leaves_nothing_open() -> None:
    batch = {"global_batch": {"min": 8, "max": 16}}
    assert leaves_open({"training": batch}) and leaves_open({"training": batch, "objective": "cost"})
    assert not leaves_open({"training": batch, "objective": "memory"})
    assert not leaves_open({"training": {"global_batch": {"min": 8, "max": 8}}, "allow": None})
    assert not leaves_open([])


# ── commands ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_solve_writes_the_job_that_was_chosen(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = write(LARGE, "allow: {optimizer: [adamw-8bit]}\n"), tmp_path / "out"
    code, told, _ = run(capsys, "solve", str(path), "--format", "json", "--out", str(out))
    answer = json.loads(told)
    assert (code, answer["status"], answer["choice"]["optimal"]) == (0, "optimal", True)
    assert [(entry["name"], entry["changes_of_numerics"]) for entry in answer["clusters"]] == [
        ("own values", 0), ("adamw-8bit", 1),
    ]  # fmt: skip
    job = read_job(out / "job.yaml")
    alone = best_plan(job)
    assert alone is not None and job.training.optimizer.key == "adamw-8bit"
    assert alone.step_time.seconds == answer["step_time"]["seconds"]
    code, _, err = run(capsys, "solve", str(path), "--top", "2")
    assert (code, err) == (2, "planner: --top: one plan is told for each variant; leave --top out\n")


def test_where_nothing_fits_every_variant_says_why(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    job = SMALL.replace("gpus_per_node: 2", "gpus_per_node: 2, gpu_memory: 300 MiB")
    code, out, err = run(capsys, "solve", str(write(job, "allow: {optimizer: [adamw-8bit]}\n")))
    assert (code, err) == (3, "planner: no plan with any of the 2 variants: gpu_memory_holds_every_phase\n")
    assert "No plan with any of the 2 variants, proven.\n" in out and "\nWith own values:\n" in out


def test_a_sweep_has_rows_of_it(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(LARGE, "sweep: {allow.optimizer: [[adamw], [adamw-8bit]]}\n")
    _, out, _ = run(capsys, "sweep", str(path), "--workers", "1", "--format", "json")
    rows = json.loads(out)["rows"]
    assert [row["status"] for row in rows] == ["infeasible", "optimal"]
    assert rows[1]["plan"].endswith(", with adamw-8bit")


def test_the_schema_knows_what_can_be_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "schema")
    allow = json.loads(out)["$defs"]["AllowSettings"]
    assert list(allow["properties"]) == [
        "optimizer", "precision", "method", "attention", "kernels", "global_batch", "choices",
    ]  # fmt: skip
    assert allow["additionalProperties"] is False
