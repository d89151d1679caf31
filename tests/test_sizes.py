"""Sizes of buffers as choices: named, allowed, refused; searched, emitted and read back."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest

from planner.check.mapping import mapped
from planner.check.subject import Subject
from planner.check.text import read_source
from planner.choosing.choice import read_choice
from planner.choosing.choosing import choose
from planner.choosing.text import chosen_text
from planner.communication import OUTLOOKS
from planner.emit.deepspeed import configuration
from planner.emit.targets import notes
from planner.errors import InputError, NoPlan
from planner.evaluate import evaluate
from planner.forms import affine
from planner.job import Job
from planner.memory import memory_terms
from planner.plan import whole
from planner.plan_summary import plan_summary
from planner.resolve import plain_plan, read_pins
from planner.search import solve
from planner.sizes import LARGEST, SIZES, default_of, own_size, unmet_fact
from planner.space import job_space
from planner.step_time import time_terms
from planner.terms import Term
from tests.jobs import job, plan, random_plan
from tests.oracle import Oracle, check_reading

BUFFERS = {
    "reduce_bucket": [100_000, 4_926_720, "2e7"],
    "prefetch_bucket": [0, "1e6", "8M"],
    "live_parameters": ["9e6", 20_000_000],
    "sub_group": ["1e6", 100_000_000],
}
FIXED: dict[str, Any] = {
    "optimizer_offload": "none", "parameter_offload": "none", "activation_offload": "none", "loss": "standard",
    "gradient_accumulation_dtype": "bf16", "checkpoint_interval": [0, 1], "checkpoint_count": [0, 4],
    "recompute_policy": "full", "gradient_sync": "every_micro_batch",
}  # fmt: skip


def open_job(**overrides: Any) -> Job:
    """The small job with every buffer of several sizes and little else."""
    choices = {**FIXED, **BUFFERS, "micro_batch": [1, 4], "zero_stage": [2, 3], **overrides.pop("choices", {})}
    return job(choices=choices, **overrides)


# ── what a job names ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_job_that_names_no_size_has_its_own() -> None:
    found = job()
    space = job_space(found).by_name
    assert {name: space[name].values for name in SIZES} == {name: (own_size(found, name),) for name in SIZES}
    assert set(SIZES) <= found.settled
    assert not any(name.replace("_", " ") in plan_summary(solve(found).best) for name in SIZES)


def test_sizes_are_numbers_however_they_are_written() -> None:
    named = {"reduce_bucket": ["2e8", 50_000_000, "7M", 3.0e6], "prefetch_bucket": 0}
    found = job(choices=named)
    assert found.choices["reduce_bucket"] == (200_000_000, 50_000_000, 7_000_000, 3_000_000)
    assert job_space(found).by_name["reduce_bucket"].values == found.choices["reduce_bucket"]
    assert found.choices["prefetch_bucket"] == (0,)
    assert found.settled.isdisjoint(named)
    assert read_pins(found, ["sub_group=1e7", "live_parameters=0"]) == {"sub_group": 10**7, "live_parameters": 0}


def test_a_plan_tells_of_a_size_that_is_not_the_jobs_own() -> None:
    found = job(choices={"reduce_bucket": "2e7", "sub_group": "1e8"})
    assert "reduce bucket 20000000" in plan_summary(evaluate(found, plan(found)))
    assert "sub group" not in plan_summary(evaluate(found, plan(found)))
    assert default_of(found, "reduce_bucket") == 4_926_720
    assert default_of(found, "optimizer_on_gpu") == 0
    assert default_of(found, "tensor_parallel") is None


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (
            {"reduce_bucket": 999},
            "choices.reduce_bucket: 999 is no value of reduce_bucket; expected a number of elements from 1,000 to "
            "1,000,000,000,000, such as 2e8",
        ),
        (
            {"prefetch_bucket": "a lot"},
            "choices.prefetch_bucket: 'a lot' is no value of prefetch_bucket; expected a number of elements from 0 to "
            "1,000,000,000,000, such as 2e8",
        ),
        (
            {"sub_group": [10**8, 10**13]},
            "choices.sub_group: 10000000000000 is no value of sub_group; expected a number of elements from 1,000 to "
            "1,000,000,000,000, such as 2e8",
        ),
        (
            {"live_parameters": True},
            "choices.live_parameters: true is no value of live_parameters; expected a number of elements from 0 to "
            "1,000,000,000,000, such as 2e8",
        ),
        (
            {"reduce_bucket": [200_000_000, "2e8"]},
            "choices.reduce_bucket: 200000000 stands twice; expected each value once",
        ),
    ],
)
def test_mistakes(choices: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        job(choices=choices)
    assert str(caught.value).endswith(message)
    assert LARGEST == 10**12


def test_a_size_is_another_only_where_the_runtime_has_it() -> None:
    """Megatron's buffers are not DeepSpeed's: its job may name its own size, and no other."""
    found = job(training={"runtime": "megatron"}, choices={"reduce_bucket": [4_926_720, "2e7"]})
    assert unmet_fact(found, "reduce_bucket", 20_000_000) == "runtime"
    assert unmet_fact(found, "reduce_bucket", 4_926_720) is None
    assert solve(found).best.plan["reduce_bucket"] == 4_926_720
    other = job(training={"runtime": "megatron"}, choices={"reduce_bucket": "2e7"})
    with pytest.raises(NoPlan) as caught:
        solve(other)
    assert caught.value.conflict == ("techniques_have_what_they_need",)
    (violation,) = evaluate(other, plan(other)).violations
    assert violation.because == "reduce_bucket 20000000 does nothing where runtime is megatron"


# ── what a job allows ────────────────────────────────────────────────────────────────────────────────────────────────

ALLOWING = """\
model: {parameters: 30e6, layers: 4, vocabulary: 8000}
cluster: {gpu: a100-sxm-80gb, gpus_per_node: 2, gpu_price: 1 USD/hour}
training: {sequence_length: 512, global_batch: 16}
choices: {zero_stage: 2, optimizer_offload: none, parameter_offload: none, loss: standard, micro_batch: 1}
"""


def write(folder: Path, *lines: str) -> Path:
    path = folder / "job.yaml"
    path.write_text("".join(lines), encoding="utf-8")
    return path


def test_allowed_sizes_are_variants(tmp_path: Path) -> None:
    """One message in place of eight, eight times a step: more than the 1 % for which another value is taken."""
    choice = read_choice(write(tmp_path, ALLOWING, "allow: {choices: {reduce_bucket: [2e8, 1e5]}}\n"))
    names = ["own values", "reduce_bucket 200000000", "reduce_bucket 100000"]
    assert [candidate.name for candidate in choice.candidates] == names
    assert [candidate.changes for candidate in choice.candidates] == [(0, 0), (0, 1), (0, 1)]
    jobs = [candidate.job for candidate in choice.candidates]
    assert [one.choices.get("reduce_bucket") for one in jobs if one is not None] == [None, (200_000_000,), (100_000,)]
    found = choose(choice)
    assert found.best is not None and found.best.candidate.name == "reduce_bucket 200000000"
    text = chosen_text(found)
    assert "Uses: reduce_bucket 200000000 (changes a buffer)." in text
    assert "Without a change of numerics" not in text


def test_allowed_sizes_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_choice(write(tmp_path, ALLOWING, "allow: {choices: {reduce_bucket: [2e8, few]}}\n"))
    assert str(caught.value).endswith(
        "job.yaml:5:40: allow.choices.reduce_bucket[1]: 'few' is no value of reduce_bucket; expected a number of "
        "elements from 1,000 to 1,000,000,000,000, such as 2e8"
    )


# ── search ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"objective": "memory"},
        {"cluster": {"gpu_memory": "2900 MB"}},
        {"objective": {"first": "step_time", "within": "5 %", "then": "memory"}},
        {"choices": {"zero_stage": 3, "optimizer_offload": ["none", "cpu"], "reduce_bucket": "2e7"}},
    ],
)
def test_the_search_finds_what_the_oracle_finds(overrides: dict[str, Any]) -> None:
    found = open_job(**overrides)
    oracle = Oracle(found)
    assert 150 <= oracle.specification.space.size <= 2000
    assert solve(found).best.plan == oracle.best()


def test_the_oracle_reads_sizes_as_evaluate_does() -> None:
    found, draw = open_job(choices={"optimizer_offload": ["none", "cpu"]}), Random(1)
    check_reading(Oracle(found), found, draw, 30)


@pytest.mark.parametrize("seed", range(5))
def test_terms_read_the_sizes_of_their_scope_and_are_affine_in_the_measures(seed: int) -> None:
    """What the evaluator reads is what the search reads, of any plan."""
    found, draw = open_job(choices={"optimizer_offload": ["none", "cpu"], "optimizer_on_gpu": [0, 30]}), Random(seed)
    space = job_space(found)
    measures = tuple(measure.name for measure in space.measures)
    terms: list[Term] = [*memory_terms(found), *(term for name in OUTLOOKS for term in time_terms(found, name))]
    assert all(any(size in term.scope for term in terms) for size in SIZES)
    for _ in range(10):
        values = space.complete(random_plan(found, draw))
        for term in terms:
            form = affine(term, {name: values[name] for name in term.scope}, measures)
            slopes = zip(form.slopes, measures, strict=True)
            assert term.value(values) == form.constant + sum(slope * whole(values, name) for slope, name in slopes)


# ── emitted and read back ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_configuration_carries_the_chosen_sizes() -> None:
    found = open_job()
    values = {"reduce_bucket": 100_001, "prefetch_bucket": 0, "live_parameters": 9_000_000, "sub_group": 1_000_000}
    block = configuration(found, plan(found, zero_stage=3, **values))["zero_optimization"]
    assert block["reduce_bucket_size"] == 100_001
    assert block["stage3_prefetch_bucket_size"] == 0
    assert block["stage3_max_live_parameters"] == 9_000_000
    assert block["sub_group_size"] == 1_000_000
    block = configuration(found, plan(found, zero_stage=2, **values))["zero_optimization"]
    assert (block["reduce_bucket_size"], block["allgather_bucket_size"]) == (100_001, 100_000)  # has to be even


def test_targets_say_which_sizes_they_do_not_carry() -> None:
    """Every target of DeepSpeed writes its file; a job's own sizes need no words under another runtime."""
    found = open_job()
    assert not [note for note in notes(evaluate(found, plan(found)), "torchrun") if "bucket" in note]
    other = job(training={"runtime": "fsdp2"})
    assert not [note for note in notes(evaluate(other, plan(other)), "fsdp2") if "bucket" in note]


@pytest.mark.parametrize("seed", range(12))
def test_a_configuration_is_read_back_as_the_plan_that_it_is_of(seed: int, tmp_path: Path) -> None:
    """The same choices, bytes and microseconds, whatever the sizes."""
    found, draw = open_job(choices={"optimizer_offload": ["none", "cpu"]}), Random(seed)
    drawn = random_plan(found, draw).changed(checkpoint_interval=0, checkpoint_count=0)
    path = tmp_path / "ds.json"
    path.write_text(json.dumps(configuration(found, drawn)), encoding="utf-8")
    read = mapped(Subject(read_source(path), 2), found)
    one, other = evaluate(found, drawn), read.evaluation
    acting = SIZES if drawn["zero_stage"] == 3 else ("reduce_bucket",)
    assert {name: read.values[name] for name in acting} == {name: drawn[name] for name in acting}
    assert other.step_time.lines == one.step_time.lines
    for device in ("gpu", "host"):
        assert other.ledger[device].moments == one.ledger[device].moments


def test_a_file_without_sizes_has_deepspeeds_own(tmp_path: Path) -> None:
    """5e8, 5e7, 1e9 and 1e9 elements (deepspeed 0.19.8 runtime/zero/config.py), as far as its stage reads them."""
    found = job()
    for stage, expected in {
        0: {},
        2: {"reduce_bucket": 5 * 10**8},
        3: {"reduce_bucket": 5 * 10**8, "prefetch_bucket": 5 * 10**7, "live_parameters": 10**9, "sub_group": 10**9},
    }.items():
        path = tmp_path / "ds.json"
        path.write_text(json.dumps({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": stage}}))
        values = mapped(Subject(read_source(path), 2), found).evaluation.values
        assert {name: values[name] for name in SIZES} == {**{n: own_size(found, n) for n in SIZES}, **expected}
        assert plain_plan(found)["reduce_bucket"] == 4_926_720
