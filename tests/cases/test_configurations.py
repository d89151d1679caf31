"""Reports of refused or slow configurations: the finding, the broken rule, or the order of the step times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from planner.check.checking import trainer_arguments
from planner.check.registry import findings
from planner.check.subject import Subject
from planner.check.text import source
from planner.evaluate import evaluate, violations
from tests.cases.reader import setup

BF16, FP16 = {"bf16": {"enabled": True}}, {"fp16": {"enabled": True}}
CPU = {"device": "cpu"}
LORA = {"lora": {"rank": 8, "targets": ["q", "v"]}}
ANY = {"gpu": "A100", "gpu_mem_gib": 80}
SMALL = {"parameters": 300_000_000, "layers": 16}


def subject(content: Mapping[str, Any], ranks: int) -> Subject:
    """A file under check."""
    return Subject(source("ds.json", json.dumps(content)), ranks)


def found(content: Mapping[str, Any], ranks: int, key: str) -> str:
    """What `planner check` says of a key."""
    return " / ".join(f"{one.severity}: {one.message}" for one in findings(subject(content, ranks)) if one.key == key)


def seconds(case: str, **told: Any) -> float:
    """The step time of a run."""
    run = setup(case, **{**ANY, **told})
    return evaluate(run.job, run.plan).step_time.seconds


def peak(case: str, **told: Any) -> int:
    """Bytes of tensors on one GPU."""
    return setup(case, **{**ANY, **told}).ledger["gpu"].tensors()


def batch_of_another_world() -> bool:
    sizes = {"train_batch_size": 256, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 18}
    return "256 is not 2 × 18 × 7 ranks = 252" in found(sizes, 7, "train_batch_size")


def launched_as_one_process() -> bool:
    sizes = {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    return "16 is not 1 × 1 × 1 ranks = 1" in found(sizes, 1, "train_batch_size")


def no_sequence_for_some_ranks() -> bool:
    sizes = {"train_batch_size": 8, "gradient_accumulation_steps": 2}
    return "leave train_micro_batch_size_per_gpu 0" in found(sizes, 8, "train_batch_size")


def client_optimizer_with_offload() -> bool:
    zero = {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU}
    text = found({"train_batch_size": 2, **FP16, "zero_optimization": zero}, 2, "zero_optimization.offload_optimizer")
    return "no optimizer block" in text and "zero_force_ds_cpu_optimizer false" in text


def parameters_offloaded_at_stage_2() -> bool:
    zero = {"stage": 2, "offload_optimizer": CPU, "offload_param": CPU}
    text = found({"train_batch_size": 8, **BF16, "zero_optimization": zero}, 8, "zero_optimization.offload_param")
    return text.startswith("error: parameters are offloaded at stage 3 only")


def device_name_swapped_for_nvme() -> bool:
    zero = {"stage": 3, "offload_optimizer": {"device": "nvme"}}
    content = {"train_batch_size": 8, "zero_optimization": zero}
    return found(content, 8, "zero_optimization.offload_optimizer.nvme_path").startswith("error: device nvme needs it")


def four_bits_under_stage_3() -> bool:
    run = setup("E16", model="llama-3-8b", gpu="A100", zero=3, method={"qlora": {"rank": 8}})
    return "quantized_weights_are_whole" in [one.constraint for one in violations(run.job, run.plan)]


def trainer_must_match() -> bool:
    content = {
        "train_batch_size": 8,
        "optimizer": {"type": "AdamW", "params": {"lr": 0.0001}},
        "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 500}},
    }
    values = {name: value for name, value, _ in trainer_arguments(subject(content, 8))}
    batch = "per_device_train_batch_size × gradient_accumulation_steps × ranks"
    return values == {"learning_rate": 0.0001, "warmup_steps": 500, batch: 8}


def one_gpu_gains_nothing() -> bool:
    plain = peak("E28", model="llama-3.2-1b", zero=0, runtime="ddp")
    return all(peak("E28", model="llama-3.2-1b", zero=stage) > 0.95 * plain for stage in (2, 3))


def stages_alike_for_a_small_model() -> bool:
    one, two = (peak("D13", model="bert-large", precision="fp16", zero=stage) for stage in (1, 2))
    return 1.0 <= two / one <= 1.05


def whole_weights_are_faster() -> bool:
    return seconds("F01", method=LORA, zero=2) < seconds("F01", method=LORA, zero=3)


def offload_that_nothing_asks_for() -> bool:
    sizes = {"model": SMALL, "gpus": 1, "zero": 2, "precision": "fp32"}
    return seconds("F09", **sizes, optimizer_offload="cpu") > 2 * seconds("F09", **sizes, optimizer_offload="none")


def offload_of_72_billion() -> bool:
    """About ten seconds a step, whatever the network takes besides."""
    plain = {"gpus": 32, "optimizer_offload": "none", "parameter_offload": "none"}
    return 5 < seconds("F11", gpus=32) - seconds("F11", **plain) < 20


def two_nodes_take_longer() -> bool:
    return seconds("F04", model="Qwen-14B-chat", gpus=2, nodes=2, zero=3, method=LORA) > seconds(
        "F04", model="Qwen-14B-chat", gpus=2, nodes=1, zero=3, method=LORA
    )


CONFIGURATIONS: Mapping[str, Callable[[], bool]] = {
    "D13": stages_alike_for_a_small_model,
    "E01": batch_of_another_world,
    "E03": launched_as_one_process,
    "E04": no_sequence_for_some_ranks,
    "E06": client_optimizer_with_offload,
    "E07": parameters_offloaded_at_stage_2,
    "E12": device_name_swapped_for_nvme,
    "E16": four_bits_under_stage_3,
    "E20": trainer_must_match,
    "E28": one_gpu_gains_nothing,
    "F01": whole_weights_are_faster,
    "F04": two_nodes_take_longer,
    "F09": offload_that_nothing_asks_for,
    "F11": offload_of_72_billion,
}


@pytest.mark.parametrize("case", CONFIGURATIONS)
def test_configuration(case: str) -> None:
    assert CONFIGURATIONS[case]()
