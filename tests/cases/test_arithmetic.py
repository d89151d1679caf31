"""Figures of the reports that follow by arithmetic alone, to the digits that the reports have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from planner.architecture.catalog_models import catalog_model
from planner.envelope import FOUR_BIT_PRICE, HOST_PRICE, UNIT_PRICES, envelope
from planner.job import Job
from planner.units import GIB
from tests.cases.reader import cases, setup

SPARE: Mapping[str, Any] = {"gpu": "A100", "gpu_mem_gib": 80, "host_ram_gib": 1000}
PURE: Mapping[str, Any] = {"runtime": "ddp", "precision": "pure-bf16", "gpus": 1, **SPARE}


def parameters(case: str) -> int:
    """What the report says."""
    return int(cases()[case]["facts"]["params"])


def static(case: str, gpus: int, stage: int = 3) -> float:
    """GiB of the static books of one GPU, as `planner ledger --parameters` prints them."""
    return float(envelope(parameters(case), 32, gpus=gpus).sharded(stage) / GIB)


def raw(case: str, price: int, gpus: int = 1) -> float:
    """GiB of `price` bytes a parameter over some GPUs."""
    return float(price * parameters(case) / gpus / GIB)


def line(case: str, name: str, moment: str, **told: Any) -> float:
    """GiB of a line of the ledger."""
    return float(setup(case, **{**SPARE, **told}).line(name, moment) / GIB)


def nvme_buffers() -> Job:
    """The job with parameters on NVMe in buffers of 1e9 elements, five of which are pinned."""
    told = {"precision": "fp16", "sizes": {"swap_buffer_size": 10**9}, **SPARE}
    return setup("C07", **told, optimizer_offload="nvme", parameter_offload="nvme").job


def logits(case: str, width: int, **told: Any) -> float:
    """GiB of logits of `width` bytes; the loss of Hugging Face holds twelve bytes of each at its peak."""
    found = setup(case, **{**PURE, **told})
    tokens = found.job.tokens(found.plan)
    peak = found.line("logits and loss", "loss")
    assert peak == 12 * tokens * found.job.architecture.vocabulary
    return float(peak * width / 12 / GIB)


def expert_block(model: str) -> float:
    """Millions of parameters of a layer's experts, which stage 3 gathers at once."""
    layers = (group.kind.tensors for group in catalog_model(model).layers)
    return max(sum(t.elements for t in tensors if t.role == "expert") for tensors in layers) / 1e6


def embeddings(model: str) -> float:
    """Millions of parameters of embedding and head, which train whole beside adapters."""
    return 2 * catalog_model(model).vocabulary * catalog_model(model).hidden / 1e6


def head(case: str, model: str) -> int:
    """Parameters of the output projection."""
    return setup(case, **{**PURE, "model": model}).job.head_parameters


QWEN3 = {
    "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 8, "head_dim": 128,
    "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip
VOCABULARY_248320 = {**QWEN3, "vocab_size": 248320}
# The figure as the report has it, with its digits.
ARITHMETIC: Mapping[str, Mapping[str, Callable[[], float]]] = {
    "A09": {"16.83": lambda: line("A09", "master weights", "forward", zero=3, gpus=16)},
    "A10": {"65.7": lambda: static("A10", 16)},
    "A14": {"165.0": lambda: static("A14", 8), "20.6": lambda: raw("A14", UNIT_PRICES["parameters"], 8)},
    "A15": {"61.0": lambda: static("A15", 8), "30.5": lambda: static("A15", 16)},
    "A19": {"3.73": lambda: line("A19", "fp32 gradients of a sub-group", "optimizer_step")},
    "A22": {"87.0": lambda: line("A22", "parameters", "forward", zero=0)},
    "A25": {"24.1": lambda: static("A25", 8)},
    "B06": {
        "53.9": lambda: sum(
            line("B06", name, "optimizer_step", **PURE, optimizer="adamw")
            for name in ("parameters", "gradients", "optimizer moments")
        ) * GIB / 1e9,
        # one temporary of the size of the parameters, in GB
        "13.5": lambda: line(
            "B06", "temporaries of the optimizer", "optimizer_step", **PURE, optimizer="adamw-foreach"
        ) * GIB / 1e9,
    },
    "B07": {
        "34.5": lambda: sum(
            line("B07", name, "optimizer_step", runtime="fsdp2", zero=3, precision="pure-bf16")
            for name in ("parameter shards", "gradient shards")
        ) * GIB / 1e9,
    },
    "B10": {"101": lambda: raw("B10", HOST_PRICE)},
    "B15": {
        "36": lambda: line("B15", "checkpoints", "loss", **PURE, model="qwen3-8b", seq_len=131072),
        "128.0": lambda: line("B15", "checkpoints", "loss", **PURE, model=QWEN3, seq_len=8192) * 1024,
    },
    "C02": {"549": lambda: raw("C02", HOST_PRICE)},
    "C07": {"9.3": lambda: 10 * nvme_buffers().swap_buffer_size / GIB},
    "C10": {"239": lambda: raw("C10", 16), "358": lambda: raw("C10", 16) * 1.5},
    "C11": {"218": lambda: raw("C11", HOST_PRICE), "327": lambda: raw("C11", HOST_PRICE) * 1.5},
    "D01": {"12.68": lambda: raw("D01", UNIT_PRICES["parameters"])},
    "D02": {"6.1": lambda: line("D02", "parameter shards", "forward", method={"lora": {"rank": 16}})},
    # DeepSpeed's estimator adds half to what it counts
    "D05": {"71.71": lambda: raw("D05", HOST_PRICE) * 1.5, "63.74": lambda: raw("D05", 16) * 1.5},
    "E14": {"197": lambda: embeddings("phi-3-mini"), "1051": lambda: embeddings("llama-3-8b")},
    "E15": {"1.245": lambda: 2 * head("E15", "Qwen-7B") / 1e9},
    "E16": {"189": lambda: float(FOUR_BIT_PRICE) * catalog_model("llama-3.1-405b").parameters / GIB},
    "E23": {
        "604": lambda: expert_block("qwen3-30b-a3b"),
        "1409": lambda: expert_block("mixtral-8x7b"),
        "11274": lambda: expert_block("deepseek-v3"),
    },
    "F01": {"15.0": lambda: line("F01", "parameters", "forward", zero=0, precision="fp16")},
    "F03": {"25.9": lambda: raw("F03", UNIT_PRICES["parameters"])},
    "G02": {"3.79": lambda: logits("G02", 4, model=VOCABULARY_248320)},
    "G03": {"7.6": lambda: logits("G03", 4, model=VOCABULARY_248320, seq_len=8192)},
    "G04": {"10.7": lambda: logits("G04", 4, model=VOCABULARY_248320, seq_len=11600)},
    "G06": {"9.28": lambda: logits("G06", 2), "18.56": lambda: logits("G06", 4)},
    "G09": {"8.1": lambda: sum(UNIT_PRICES.values()) * head("G09", "Qwen2.5-VL-7B full") / GIB},
    "G14": {"26.9": lambda: raw("G14", HOST_PRICE, 8)},
    "G18": {"103": lambda: logits("G18", 4, model="Pythia-6.9B", seq_len=512) * GIB / 1e6},
    "G27": {"1.96": lambda: logits("G27", 4, seq_len=4096), "15.0": lambda: raw("G27", UNIT_PRICES["parameters"])},
}  # fmt: skip
FIGURES = [(case, text) for case, figures in ARITHMETIC.items() for text in figures]


@pytest.mark.parametrize(("case", "text"), FIGURES, ids=[f"{case}-{text}" for case, text in FIGURES])
def test_figure(case: str, text: str) -> None:
    digits = len(text.partition(".")[2])
    assert f"{ARITHMETIC[case][text]():.{digits}f}" == text
