"""Every target's own parser accepts what is emitted, for three hundred random plans of random jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("accelerate")

from deepspeed_parser import parse
from jobs import random_job, random_plan

from planner.emit.targets import ALL, emitted
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.layouts import layouts
from planner.plan import Layout, Plan
from planner.specification import specify

PLANS = 300
PLANS_PER_JOB = 5
RUNTIMES = ("ddp", "fsdp1", "fsdp2")


def legal_plan(job: Job, draw: Random) -> Plan | None:
    """A plan that keeps every rule, memory left aside; None where some thousand draws find none."""
    rules = specify(job).rules
    plans = (random_plan(job, draw) for _ in range(3000))
    return next((plan for plan in plans if all(rule.satisfied(plan) for rule in rules)), None)


def evaluations() -> Iterator[Evaluation]:
    """Legal plans of drawn jobs under DeepSpeed."""
    found, seed = 0, 0
    while found < PLANS:
        seed += 1
        job, draw = random_job(seed), Random(seed)
        if job.runtime.runtime != "deepspeed" or any(max(one.tensor, one.sequence) > 1 for one in layouts(job)):
            continue
        for plan in {legal_plan(job, draw) for _ in range(PLANS_PER_JOB)} - {None}:
            found += 1
            yield evaluate(job, plan)


@pytest.fixture(scope="module")
def planned() -> list[Evaluation]:
    return list(evaluations())[:PLANS]


def assert_batch(read: Any, evaluation: Evaluation) -> None:
    """DeepSpeed read the batch and the stage of the plan."""
    job, plan = evaluation.job, evaluation.plan
    assert read.train_batch_size == job.training.global_batch
    assert read.train_micro_batch_size_per_gpu == plan["micro_batch"]
    assert read.gradient_accumulation_steps == job.micro_batches(plan)
    assert read.zero_config.stage == plan["zero_stage"]


def test_deepspeed_reads_every_plan(planned: list[Evaluation]) -> None:
    assert len(planned) == PLANS
    for evaluation in planned:
        text = emitted(evaluation, "deepspeed")["deepspeed.json"]
        assert_batch(parse(json.loads(text), evaluation.job.cluster.gpus), evaluation)


@dataclass
class World:
    """The ranks that the argument classes believe in."""

    size: int


def test_trainer_takes_every_plan(planned: list[Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TrainingArguments agree with the DeepSpeed file in every value that both state."""
    import torch
    from transformers import TrainingArguments

    world = World(1)
    monkeypatch.setattr(TrainingArguments, "world_size", property(lambda _: world.size))
    monkeypatch.setattr(TrainingArguments, "_setup_devices", torch.device("cpu"))
    monkeypatch.setattr(TrainingArguments, "_n_gpu", 1, raising=False)
    for evaluation in planned:
        files = emitted(evaluation, "trainer")
        fields = json.loads(files["training_arguments.json"])
        world.size = evaluation.job.cluster.gpus
        given = {**fields, fields.pop("deepspeed").partition(".")[0]: json.loads(files["deepspeed.json"])}
        arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], **given)
        arguments.hf_deepspeed_config.trainer_config_process(arguments)
        assert arguments.hf_deepspeed_config.mismatches == []
        assert arguments.train_batch_size == evaluation.plan["micro_batch"]


def test_accelerate_takes_every_plan(
    planned: list[Evaluation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its loader knows every key, its launcher turns them into an environment, its plugin reads the DeepSpeed file."""
    from accelerate.utils import DeepSpeedPlugin

    monkeypatch.chdir(tmp_path)
    for evaluation in planned:
        environment = launched(emitted(evaluation, "accelerate"), tmp_path)
        with mock.patch.dict(os.environ, environment):
            plugin = DeepSpeedPlugin()
        assert plugin.zero_stage == evaluation.plan["zero_stage"]
        assert plugin.deepspeed_config["train_batch_size"] == evaluation.job.training.global_batch
        assert plugin.zero3_init_flag == (evaluation.plan["zero_stage"] == 3)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_accelerate_takes_other_runtimes(runtime: str, tmp_path: Path) -> None:
    from accelerate.utils import FullyShardedDataParallelPlugin
    from jobs import job

    for precision in ("bf16", "fp32", "pure-bf16"):
        found = job(training={"runtime": runtime, "precision": precision})
        for evaluation in (evaluate(found, plan) for plan in (legal_plan(found, Random(1)),) if plan):
            environment = launched(emitted(evaluation, "accelerate"), tmp_path)
            assert environment["ACCELERATE_MIXED_PRECISION"] == (precision if precision == "bf16" else "no")
            assert ("FSDP_VERSION" in environment) == (runtime != "ddp")
            if runtime != "ddp":
                loading = {"FSDP_SYNC_MODULE_STATES": "false", "FSDP_CPU_RAM_EFFICIENT_LOADING": "false"}
                with mock.patch.dict(os.environ, {**environment, **loading}):  # loading asks for a GPU
                    plugin = FullyShardedDataParallelPlugin()
                assert plugin.fsdp_version == int(runtime[-1])
            if runtime == "fsdp2":
                assert plugin.reshard_after_forward is True
                assert (
                    emitted(evaluation, "fsdp2")["accelerate.yaml"]
                    == emitted(evaluation, "accelerate")["accelerate.yaml"]
                )


def test_accelerate_takes_tensor_parallelism(tmp_path: Path) -> None:
    """Two ranks that share every matrix: one copy, sharded over one rank."""
    from accelerate.parallelism_config import ParallelismConfig
    from jobs import job

    found = job(training={"runtime": "fsdp2"})
    plan = legal_plan(found, Random(1))
    assert plan is not None
    evaluation = replace(evaluate(found, plan), plan=plan.changed(layout=Layout(tensor=2)))
    with mock.patch.dict(os.environ, launched(emitted(evaluation, "fsdp2"), tmp_path)):
        read = ParallelismConfig()
    assert (read.tp_size, read.cp_size, read.dp_shard_size, read.dp_replicate_size) == (2, 1, 1, 1)


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_trainer_takes_other_runtimes(runtime: str, tmp_path: Path) -> None:
    from jobs import job
    from transformers import TrainingArguments

    found = job(training={"runtime": runtime})
    plan = legal_plan(found, Random(1))
    assert plan is not None
    fields = json.loads(emitted(evaluate(found, plan), "trainer")["training_arguments.json"])
    arguments = TrainingArguments(output_dir=str(tmp_path), use_cpu=True, report_to=[], **{**fields, "fsdp": False})
    assert arguments.gradient_accumulation_steps == found.micro_batches(plan)


def launched(files: Any, folder: Path) -> dict[str, str]:
    """The environment that `accelerate launch` would give the script."""
    from accelerate.commands import launch
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    for name, text in files.items():
        (folder / name).write_text(text)
    path = str(folder / "accelerate.yaml")
    load_config_from_file(path)
    arguments = launch.launch_command_parser().parse_args(["--config_file", path, "train.py"])
    seen: list[Any] = []
    with (
        mock.patch.object(launch, "deepspeed_launcher", seen.append),
        mock.patch.object(launch, "multi_gpu_launcher", seen.append),
        mock.patch.object(launch, "is_bf16_available", return_value=True),
    ):
        launch.launch_command(arguments)
    if not arguments.use_deepspeed:
        return dict(prepare_multi_gpu_env(seen[0]))
    seen[0].deepspeed_config_file = str(folder / seen[0].deepspeed_config_file)
    return dict(prepare_deepspeed_cmd_env(seen[0])[1])


def test_every_target_is_one_of_its_kind() -> None:
    for module in ALL:
        assert module.TARGET and module.RUNTIMES and callable(module.files)
