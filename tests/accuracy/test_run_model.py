"""Configurations out of shape columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from planner.accuracy.run_log import Run
from planner.accuracy.run_model import Skipped, model_config
from planner.architecture.importer import architecture_from_config

RUN = Run(
    line=2, id="a-1", source="a", architecture="llama", hidden=64, layers=2, heads=4, kv_heads=4, ffn_hidden=256,
    vocab=1000, tied_embeddings=False, sequence_length=128,
)  # fmt: skip
MOE: dict[str, Any] = {"experts": 8, "experts_per_token": 2, "expert_ffn_hidden": 32, "shared_experts": 0}


@pytest.mark.parametrize(
    ("changes", "family", "parameters"),
    [
        # embedding and head 128 000; two layers of 4·64² + 3·64·256 + 2·64 = 65 664; final norm 64
        ({}, "llama", 259_392),
        # keys and values of 2 heads of 16: 2·64·32 less in each layer, 8 192 together
        ({"kv_heads": 2}, "llama", 251_200),
        # one embedding 64 000, positions 128·64; a layer 12·64² + biases (3+1+4+1)·64 + norms 4·64 = 49 984; 2·64
        ({"architecture": "gpt", "tied_embeddings": True}, "gpt2", 172_288),
        # queries that share keys, as Megatron builds them: embedding 64 000; per layer q and o 2·64² and k, v 2·64·32,
        # feed-forward 8·64², biases 2·64 + 2·32 and 256 + 64, norms 4·64: 45 824; final norm 2·64
        ({"architecture": "gpt", "kv_heads": 2, "ffn_hidden": 256, "tied_embeddings": True}, "starcoder2", 155_776),
        # no biases, no positions: 64 000 + 2·(12·64² + 2·64) + 64
        ({"architecture": "mpt", "tied_embeddings": True}, "mpt", 162_624),
        ({"architecture": "gemma", "model": "Gemma-2B", "tied_embeddings": True}, "gemma", 195_392),
        # two more norms of 64 in each layer: 256 more
        ({"architecture": "gemma", "model": "Gemma-2 9B", "tied_embeddings": True}, "gemma2", 195_648),
        # biases of query, key and value: 3·64 in each of 2 layers
        ({"architecture": "qwen", "model": "Qwen2.5 7B"}, "qwen2", 259_776),
        ({"architecture": "qwen", "model": "Qwen 7B"}, "qwen2", 259_776),
        ({"architecture": "qwen", "model": "Qwen1.5-32B"}, "qwen2", 259_776),
        ({"architecture": "qwen", "model": "Qwen 32B"}, "qwen2", 259_776),
        # norms of query and key: 2·16 in each of 2 layers
        ({"architecture": "qwen", "model": "qwen3-8b"}, "qwen3", 259_456),
        # 8 experts of 3·64·32 and a router of 8·64 in place of 3·64·256: 512 more in each layer
        ({"architecture": "moe-llama", **MOE}, "mixtral", 260_416),
        ({"architecture": "moe-llama", "model": "Qwen3-30B-A3B", **MOE}, "qwen3_moe", 260_480),
        # 64 000 · 2 and per layer: query and output 2·64², keys and values of one head 2·64·16, 2·64·256, norm 2·64
        ({"architecture": "falcon", "kv_heads": 1}, "falcon", 214_400),
    ],
)
def test_families(changes: dict[str, Any], family: str, parameters: int) -> None:
    found = architecture_from_config(model_config(replace(RUN, **changes)))
    assert (found.family, found.parameters) == (family, parameters)


def test_mixtral_attends_to_everything() -> None:
    found = architecture_from_config(model_config(replace(RUN, architecture="moe-llama", **MOE)))
    attention = found.layers[0].kind.attention
    assert attention is not None
    assert attention.window == 0


def test_deepseek_v3_has_its_own_latent_widths() -> None:
    shape: dict[str, Any] = {
        "hidden": 7168, "layers": 61, "heads": 128, "kv_heads": 128, "ffn_hidden": 18432, "vocab": 129280,
        "experts": 256, "experts_per_token": 8, "expert_ffn_hidden": 2048, "shared_experts": 1,
    }  # fmt: skip
    run = replace(RUN, architecture="mla-moe", model="DeepSeek-V3", **shape)
    assert round(architecture_from_config(model_config(run)).parameters / 1e9) == 671


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"architecture": None}, "architecture not stated"),
        ({"architecture": "hybrid"}, "architecture hybrid"),
        ({"heads": None}, "heads not stated"),
        ({"kv_heads": None}, "kv_heads not stated"),
        ({"tied_embeddings": None}, "tied_embeddings not stated"),
        ({"heads": 3}, "heads do not divide hidden"),
        ({"architecture": "mpt", "kv_heads": 2}, "architecture mpt with shared key heads"),
        ({"architecture": "mpt", "ffn_hidden": 100}, "ffn_hidden is no multiple of hidden"),
        ({"architecture": "falcon"}, "architecture falcon with a key for every head"),
        ({"architecture": "qwen", "model": "small"}, "qwen generation not in the name"),
        ({"architecture": "moe-llama", **MOE, "shared_experts": 1}, "architecture moe-llama with shared experts"),
        ({"architecture": "mla-moe", "model": "DeepSeek-V2", **MOE}, "architecture mla-moe without latent widths"),
    ],
)
def test_reasons(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(Skipped) as caught:
        model_config(replace(RUN, **changes))
    assert str(caught.value) == reason
