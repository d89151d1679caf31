"""What DeepSpeed 0.19.8 accepts, refuses, and makes of a configuration."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("deepspeed")

from deepspeed_parser import parse


def configuration(stage: int = 2, **changes: Any) -> dict[str, Any]:
    """A complete configuration of one ZeRO stage: micro-batch 2, accumulation 4."""
    return {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": stage, "reduce_bucket_size": 1_000_000},
        **changes,
    }


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_batch_is_micro_batch_times_accumulation_times_world(stage: int) -> None:
    # 2 sequences x 4 micro-batches x 64 processes
    parsed = parse(configuration(stage), world=64)
    assert parsed.train_batch_size == 512
    assert parsed.zero_config.stage == stage


def test_the_batch_equation_is_checked_for_the_world_asked_for() -> None:
    accepted = configuration(train_batch_size=512)
    assert parse(accepted, world=64).train_batch_size == 512
    with pytest.raises(AssertionError, match="train_batch_size is not equal to"):
        parse(accepted, world=32)


def test_the_dictionary_given_is_left_alone() -> None:
    given = configuration(3)
    parse(given, world=8)
    assert given == configuration(3)


@pytest.mark.parametrize("device", ["cpu", "nvme"])
def test_stage_3_offload_is_accepted(device: str) -> None:
    offload = {"device": device, "pin_memory": True, **({"nvme_path": "/nvme"} if device == "nvme" else {})}
    zero = {"stage": 3, "offload_optimizer": offload, "offload_param": offload}
    parsed = parse(configuration(zero_optimization=zero), world=8)
    assert parsed.zero_config.offload_optimizer.device == device
    assert parsed.zero_config.offload_param.pin_memory is True


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"zero_optimization": {"stage": 4}}, "Input should be 0, 1, 2, 3"),
        ({"zero_optimization": {"stage": 2, "reduce_bucket": 1}}, "reduce_bucket"),
        ({"fp16": {"enabled": True}}, "bfloat16 and fp16 modes cannot be simultaneously enabled"),
        (
            {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "ratio": 0.5}}},
            "Partial offloading only supported for ZeRO Stage 3",
        ),
        ({"elasticity": {"enabled": False}}, "elasticity"),
        ({"zero_optimization": {"stage": 3, "mics_shard_size": 8}}, "mics_shard_size"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Exception, match=complaint):
        parse(configuration(**changes), world=8)


@pytest.mark.parametrize(
    "changes",
    [
        {"zero_optimisation": {"stage": 3}},
        {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
        {"zero_optimization": {"stage": 0, "offload_optimizer": {"device": "cpu"}}},
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}},
        {"data_types": {"grad_accum_dtype": "float12"}},
        {"optimizer": {"type": "Adamm", "params": {"lr": 1e-4}}},
    ],
)
def test_what_is_accepted_without_a_word(changes: dict[str, Any]) -> None:
    """Each is a mistake the parser lets through, so the planner has to find it on its own."""
    parse(configuration(**changes), world=8)
