"""Trains a causal language model under DeepSpeed as a plan says, on a text file or on synthetic tokens.

    planner launch examples/tiny.yaml -- examples/train.py --config examples/tiny/config.json --steps 20

On GPUs and, for a tiny model, on processors; `planner launch` hands the plan over in the environment.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import deepspeed
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from planner import runtime

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def main() -> None:
    arguments = parsed()
    device, plan, configuration = runtime.start(), runtime.plan(), runtime.configuration()
    model = runtime.apply(build(arguments, plan, configuration, device), plan)
    engine, *_ = deepspeed.initialize(
        model=model, optimizer=optimizer(model, plan, arguments.learning_rate), config=configuration
    )
    tokens = sequences(arguments, plan["training"]["sequence_length"], model.config.vocab_size)
    for step in range(arguments.steps):
        loss = torch.zeros((), device=device)
        for part in range(engine.gradient_accumulation_steps()):
            batch = micro_batch(tokens, engine, step * engine.gradient_accumulation_steps() + part).to(device)
            output = engine(input_ids=batch, labels=batch)
            loss += output.loss.detach() / engine.gradient_accumulation_steps()
            engine.backward(output.loss)
            engine.step()
        deepspeed.comm.all_reduce(loss)
        if deepspeed.comm.get_rank() == 0:
            print(f"step {step + 1} loss {loss.item() / deepspeed.comm.get_world_size():.4f}", flush=True)
    engine.destroy()
    torch.distributed.destroy_process_group()


def parsed() -> argparse.Namespace:
    """The script's own arguments; batch, length, precision and sharding are the plan's."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", default=str(Path(__file__).parent / "tiny" / "config.json"), help="config.json")
    parser.add_argument("--text", type=Path, help="train on the bytes of this file")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    return parser.parse_args()


def build(
    arguments: argparse.Namespace, plan: dict[str, Any], configuration: dict[str, Any], device: torch.device
) -> Any:
    """The model with random weights, the same on every rank, made on its device; in stage 3 partitioned meanwhile."""
    torch.manual_seed(0)
    config = AutoConfig.from_pretrained(arguments.config)
    stage_3 = plan["plan"]["zero_stage"] == 3
    with deepspeed.zero.Init(config_dict_or_path=configuration) if stage_3 else device:
        return AutoModelForCausalLM.from_config(config, dtype=DTYPES[plan["training"]["dtype"]]).train()


def optimizer(model: torch.nn.Module, plan: dict[str, Any], rate: float) -> torch.optim.Optimizer:
    """AdamW where the plan keeps its states."""
    if plan["plan"]["optimizer_offload"] != "none":
        return deepspeed.ops.adam.DeepSpeedCPUAdam(model.parameters(), lr=rate)
    return torch.optim.AdamW(model.parameters(), lr=rate, fused=True)


def sequences(arguments: argparse.Namespace, length: int, vocabulary: int) -> torch.Tensor:
    """All training sequences: the bytes of a text, or counting from random numbers on, which is easy to learn."""
    if arguments.text:
        data = torch.frombuffer(bytearray(arguments.text.read_bytes()), dtype=torch.uint8).long() % vocabulary
        if len(data) < length:
            raise SystemExit(f"{arguments.text} has {len(data)} bytes, and a sequence of the plan has {length}")
        return data[: len(data) // length * length].view(-1, length)
    starts = torch.randint(0, vocabulary, (64, 1), generator=torch.Generator().manual_seed(1))
    return (starts + torch.arange(length)) % min(vocabulary, 64)


def micro_batch(tokens: torch.Tensor, engine: Any, number: int) -> torch.Tensor:
    """This rank's sequences of one micro-batch, round and round."""
    size, ranks = engine.train_micro_batch_size_per_gpu(), deepspeed.comm.get_world_size()
    first = (number * ranks + deepspeed.comm.get_rank()) * size
    return tokens[(first + torch.arange(size)) % len(tokens)]


if __name__ == "__main__":
    main()
