"""Forward FLOPs of small layers, worked out by hand."""

from __future__ import annotations

from typing import Any

from planner.architecture.flops import LayerFlops, model_flops
from planner.architecture.importer import architecture_from_config

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}


def first(config: dict[str, Any], sequence: int) -> LayerFlops:
    return model_flops(architecture_from_config(config), sequence).layers[0]


def test_dense_layer() -> None:
    # matrices: q 64x64, k and v 64x32, o 64x64, three of 64x96 = 30720 elements, two FLOP each
    # attention: scores and sum, 2 x 2 FLOP x 4 heads x 16 wide x 128 / 2 tokens met
    assert first(LLAMA, 128) == LayerFlops(61440, 16384)


def test_head_and_active_parameters() -> None:
    found = model_flops(architecture_from_config(LLAMA), 128)
    assert (found.head_per_token, found.parameters_active) == (2 * 64 * 100, 2 * 30720 + 6400)


def test_window_limits_the_tokens_met() -> None:
    # 128 tokens, window 32: 32 - 32² / 256 = 28 tokens met on average, 2 x 2 x 4 x 16 x 28
    config = {**LLAMA, "model_type": "mistral", "sliding_window": 32}
    assert first(config, 128).attention_per_token == 7168
    assert first(config, 16).attention_per_token == 2 * 2 * 4 * 16 * 8


def test_experts_count_by_tokens_routed() -> None:
    # 4 experts of three 64x96 matrices, 2 per token: 36864; attention 12288; router 64x4 = 256
    config = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    assert first(config, 128).matmul_per_token == 2 * (36864 + 12288 + 256)


def test_latent_attention_has_wider_keys_than_values() -> None:
    # 4 heads, keys 16 + 8 wide, values 16 wide, 64 tokens met: 2 x 4 x (24 + 16) x 64
    config = {
        **LLAMA, "model_type": "deepseek_v2", "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": None,
        "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
    }
    assert first(config, 128).attention_per_token == 20480
