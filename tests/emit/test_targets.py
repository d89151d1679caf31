"""Every target's files say what the plan says; what they cannot is a note. Parsers are asked in tests/integration."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from jobs import job, plan

from planner.emit.deepspeed_launcher import hostfile
from planner.emit.megatron import arguments
from planner.emit.targets import ALL, NAMES, emitted, notes
from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.plan import Layout
from planner.resolve import plain_plan, read_job
from planner.techniques import read_runtime

EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-2-70b-64xa100.yaml"


def small(runtime: str = "deepspeed", **values: object) -> Evaluation:
    """Two GPUs, four layers, eight sequences."""
    found = job(training={"runtime": runtime})
    return evaluate(found, plan(found, **values))


@pytest.fixture(scope="module")
def large() -> Evaluation:
    """Eight nodes of eight GPUs."""
    found = read_job(EXAMPLE)
    return evaluate(found, plain_plan(found).changed(zero_stage=3))


def test_targets_are_registered_once() -> None:
    assert NAMES == (
        "deepspeed", "trainer", "accelerate", "fsdp2", "torchrun", "slurm", "deepspeed-launcher", "kubernetes",
        "megatron",
    )  # fmt: skip
    assert all(target.RUNTIMES and target.EXPRESSES for target in ALL)


def test_a_target_of_another_runtime_is_refused_with_those_that_fit() -> None:
    with pytest.raises(InputError) as caught:
        emitted(small(), "fsdp2")
    assert str(caught.value) == (
        "--to: the target fsdp2 runs fsdp2, and the job's runtime is deepspeed; expected one of deepspeed, trainer, "
        "accelerate, torchrun, slurm, deepspeed-launcher, kubernetes"
    )
    with pytest.raises(InputError) as caught:
        emitted(small("ddp"), "deepspeed")
    assert "expected one of trainer, accelerate, torchrun, slurm, kubernetes" in str(caught.value)


def test_an_unknown_target_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        emitted(small(), "acelerate")
    assert str(caught.value) == (
        "--to: unknown target 'acelerate'; expected one of deepspeed, trainer, accelerate, fsdp2, torchrun, slurm, "
        "deepspeed-launcher, kubernetes, megatron; did you mean 'accelerate'?"
    )


def test_what_a_target_cannot_say_is_a_note() -> None:
    found = small(checkpoint_count=2, checkpoint_interval=2)
    assert notes(found, "deepspeed") == (
        "checkpointing of 2 segments of 2 layers stands in no configuration file: "
        "planner.runtime.apply(model, plan) does it",
    )
    assert notes(small(), "deepspeed") == ()


def test_trainer_switches_checkpointing_on_for_every_layer_only() -> None:
    """Four layers, interval 1: a count of 4 is Hugging Face's switch, 3 is not."""
    every, three = (small(checkpoint_count=count, checkpoint_interval=1) for count in (4, 3))
    fields = json.loads(emitted(every, "trainer")["training_arguments.json"])
    assert fields["gradient_checkpointing"] is True
    assert fields["gradient_checkpointing_kwargs"] == {"use_reentrant": False}
    assert notes(every, "trainer") == ()
    assert json.loads(emitted(three, "trainer")["training_arguments.json"])["gradient_checkpointing"] is False
    assert len(notes(three, "trainer")) == 1


def test_trainer_and_deepspeed_agree() -> None:
    """8 sequences over 2 ranks in micro-batches of 2: accumulation 2."""
    files = emitted(small(micro_batch=2), "trainer")
    fields, settings = json.loads(files["training_arguments.json"]), json.loads(files["deepspeed.json"])
    assert fields["per_device_train_batch_size"] == settings["train_micro_batch_size_per_gpu"] == 2
    assert fields["gradient_accumulation_steps"] == settings["gradient_accumulation_steps"] == 2
    assert fields["max_grad_norm"] == settings["gradient_clipping"]
    assert (fields["bf16"], fields["fp16"]) == (True, False)


def test_settings_that_the_script_follows_are_notes() -> None:
    found = job(training={"loss": "chunked", "method": {"lora": {"rank": 8}}})
    remarks = notes(evaluate(found, plan(found)), "deepspeed")
    assert remarks == (
        "the chunked loss stands in no configuration file: planner.runtime.apply(model, plan) does it",
        "the method is lora: the training script puts the adapters on the model",
    )


def test_accelerate_refers_to_the_deepspeed_file(large: Evaluation) -> None:
    read = yaml.safe_load(emitted(large, "accelerate")["accelerate.yaml"])
    assert read["distributed_type"] == "DEEPSPEED"
    assert (read["num_machines"], read["num_processes"]) == (8, 64)
    assert read["deepspeed_config"] == {
        "deepspeed_config_file": "deepspeed.json", "zero3_init_flag": True, "deepspeed_multinode_launcher": "standard",
    }  # fmt: skip
    assert "mixed_precision" not in read


def test_fsdp2_reshards_after_forward() -> None:
    read = yaml.safe_load(emitted(small("fsdp2", zero_stage=3), "fsdp2")["accelerate.yaml"])
    assert (read["distributed_type"], read["mixed_precision"]) == ("FSDP", "bf16")
    assert read["fsdp_config"]["fsdp_version"] == 2
    assert read["fsdp_config"]["fsdp_reshard_after_forward"] is True


def test_fsdp2_says_the_degrees() -> None:
    """64 ranks: 2 tensor-parallel, 2 context-parallel, 16 data-parallel; shards over 32, two groups of 16, or all."""
    found = read_job(EXAMPLE)
    found = replace(found, runtime=read_runtime("fsdp2"))
    best = plain_plan(found)
    for shard, expected in ((0, (1, 16, 2, 2)), (16, (2, 8, 2, 2))):
        evaluation = evaluate(found, best)
        layout = Layout(tensor=2, sequence=2, data=16, shard=shard)
        read = yaml.safe_load(
            emitted(replace(evaluation, plan=best.changed(layout=layout)), "fsdp2")["accelerate.yaml"]
        )
        assert tuple(read["parallelism_config"].values()) == expected
    assert any(
        "layout tensor 2" in note for note in notes(replace(evaluation, plan=best.changed(layout=layout)), "slurm")
    )


def test_torchrun_on_one_node() -> None:
    lines = emitted(small(), "torchrun")["launch.sh"].splitlines()
    assert lines[-1] == 'exec torchrun --standalone --nproc_per_node=2 train.py "$@"'
    assert "export PLANNER_PLAN=./plan.json" in lines


def test_torchrun_on_several_nodes_asks_for_the_first(large: Evaluation) -> None:
    lines = emitted(large, "torchrun")["launch.sh"].splitlines()
    assert lines[-1] == (
        'exec torchrun --nnodes=8 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint="$head":29500 '
        '--rdzv_id=llama-2-70b-64xa100 train.py "$@"'
    )


def test_slurm_takes_whole_nodes(large: Evaluation) -> None:
    text = emitted(large, "slurm")["job.sbatch"]
    for option in ("--nodes=8", "--ntasks-per-node=1", "--gpus-per-node=8", "--mem=0", "--exclusive"):
        assert f"#SBATCH {option}\n" in text
    assert "export PLANNER_PLAN=$SLURM_SUBMIT_DIR/plan.json\n" in text
    assert "srun --kill-on-bad-exit=1 torchrun --nnodes=8" in text


def test_deepspeed_launcher_has_a_hostfile_for_several_nodes(large: Evaluation) -> None:
    files = emitted(large, "deepspeed-launcher")
    assert files["hostfile"].splitlines()[:2] == ["node-1 slots=8", "node-2 slots=8"]
    assert "--hostfile=hostfile --num_nodes=8 --num_gpus=8" in files["launch.sh"]
    assert "PLANNER_PLAN=./plan.json\n" in files[".deepspeed_env"]
    assert hostfile(large.job, ("a", "b")) == "a slots=8\nb slots=8\n"
    assert sorted(emitted(small(), "deepspeed-launcher")) == ["deepspeed.json", "launch.sh", "plan.json"]


def test_kubernetes_has_a_master_and_workers(large: Evaluation) -> None:
    config, manifest = yaml.safe_load_all(emitted(large, "kubernetes")["pytorchjob.yaml"])
    assert json.loads(config["data"]["deepspeed.json"])["zero_optimization"]["stage"] == 3
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert (replicas["Master"]["replicas"], replicas["Worker"]["replicas"]) == (1, 7)
    container = replicas["Worker"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": 8}
    assert {"name": "PLANNER_PLAN", "value": "/planner/plan.json"} in container["env"]
    assert manifest["spec"]["nprocPerNode"] == "8"


def test_megatron_arguments(large: Evaluation) -> None:
    """80 layers: 10 segments of 2 are the first 20 layers, 40 of 2 are all of them."""
    layout = Layout(tensor=8, pipeline=2, data=4)
    some = large.plan.changed(layout=layout, micro_batch=1, checkpoint_count=10, checkpoint_interval=2)
    words = [" ".join(argument) for argument in arguments(large.job, some)]
    for expected in (
        "--tensor-model-parallel-size 8", "--pipeline-model-parallel-size 2", "--micro-batch-size 1",
        "--global-batch-size 256", "--num-layers 80", "--recompute-method block", "--recompute-num-layers 20", "--bf16",
        "--use-distributed-optimizer", "--sequence-parallel",
    ):  # fmt: skip
        assert expected in words
    every = some.changed(checkpoint_count=40)
    words = [" ".join(argument) for argument in arguments(large.job, every)]
    assert "--recompute-method uniform" in words
    assert "--recompute-num-layers 2" in words


def test_megatron_is_for_megatron(large: Evaluation) -> None:
    runtime = large.job.runtime.model_copy(update={"runtime": "megatron"})
    found = replace(large, job=replace(large.job, runtime=runtime))
    assert sorted(emitted(found, "megatron")) == ["megatron.args", "plan.json"]


def test_plan_file_has_the_training_settings() -> None:
    answer = json.loads(emitted(small(zero_stage=2), "torchrun")["plan.json"])
    assert answer["plan"]["zero_stage"] == 2
    assert answer["training"]["sequence_length"] == 512
    assert answer["plan"]["loss"] == "standard"
