"""One rank's part of a layer, element by element."""

from __future__ import annotations

from typing import Any

import pytest

from planner.architecture.catalog_models import catalog_model
from planner.architecture.division import divided, divided_kind
from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import Architecture, Tensor

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10,
}  # fmt: skip
GPT: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 10, "n_positions": 16,
}  # fmt: skip
EXPERTS: dict[str, Any] = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
LATENT: dict[str, Any] = {
    "model_type": "deepseek_v2", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 2, "vocab_size": 10, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 4, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 6, "kv_lora_rank": 4, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 4,
}  # fmt: skip


def layer(config: dict[str, Any], tensor_ranks: int, expert_ranks: int = 1) -> int:
    """Elements of the first layer on one rank."""
    kind = architecture_from_config(config).layers[0].kind
    return divided_kind(kind, tensor_ranks, expert_ranks).parameters


@pytest.mark.parametrize(
    ("config", "ranks", "expected"),
    [
        # q and o 8×8, k and v 4×8; gate, up, down 8×16; two norms of 8
        (LLAMA, (1, 1), 2 * 64 + 2 * 32 + 3 * 128 + 2 * 8),
        # everything but the norms halved
        (LLAMA, (2, 1), 2 * 32 + 2 * 16 + 3 * 64 + 2 * 8),
        # four ranks, two key heads: k and v in halves, each on two ranks
        (LLAMA, (4, 1), 2 * 16 + 2 * 16 + 3 * 32 + 2 * 8),
        # weights and biases of qkv 8×24 + 24, o 8×8 + 8, 8×32 + 32, 32×8 + 8; two norms of 8 + 8
        (GPT, (1, 1), 216 + 72 + 288 + 264 + 32),
        (GPT, (2, 1), 108 + 36 + 144 + 132 + 32),
        # attention 192, norms 16, a router 4×8, and four experts of 3·8·16
        (EXPERTS, (1, 1), 192 + 16 + 32 + 4 * 384),
        # two whole experts to a rank; attention is not divided
        (EXPERTS, (1, 2), 192 + 16 + 32 + 2 * 384),
        # each of the two in halves, attention in halves
        (EXPERTS, (2, 2), 96 + 16 + 32 + 2 * 192),
        # latent: q 8→6→2·6, kv 8→4+2, 4→2·(4+4), o 2·4→8; their norms 6 and 4; dense 3·8·16; two norms of 8
        (LATENT, (1, 1), 48 + 72 + 48 + 64 + 64 + 10 + 384 + 16),
        # what makes the latents stays whole: 48 and 48
        (LATENT, (2, 1), 48 + 36 + 48 + 32 + 32 + 10 + 192 + 16),
    ],
)  # fmt: skip
def test_elements_of_a_layer(config: dict[str, Any], ranks: tuple[int, int], expected: int) -> None:
    assert layer(config, *ranks) == expected


def test_a_fused_matrix_is_divided_by_heads() -> None:
    """Falcon's 40B block, 4 heads, 2 key heads of width 2: 8 + 4 + 4 rows; on 4 ranks 1 head, 1 pair: 2 + 2 + 2."""
    config = {
        "model_type": "falcon", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 4, "num_kv_heads": 2,
        "new_decoder_architecture": True, "vocab_size": 10, "alibi": False, "bias": False,
    }  # fmt: skip
    kind = architecture_from_config(config).layers[0].kind
    rows = {
        ranks: next(t.shape[0] for t in divided_kind(kind, ranks, 1).tensors if "query_key_value" in t.name)
        for ranks in (1, 2, 4)
    }
    assert rows == {1: 16, 2: 8, 4: 6}


def test_tables_are_cut_by_rows_and_rounded_up() -> None:
    table = Tensor("embed_tokens.weight", (10, 8), "embedding")
    assert divided(table, 4, 1).shape == (3, 8)
    assert divided(Tensor("wpe.weight", (16, 8), "positions"), 4, 1).shape == (16, 8)


def test_one_rank_has_the_layer_itself() -> None:
    kind = architecture_from_config(LLAMA).layers[0].kind
    assert divided_kind(kind, 1, 1) is kind


def whole_and_parts(found: Architecture, tensor_ranks: int, expert_ranks: int) -> tuple[int, int]:
    """Elements of the model, and those of all ranks' parts together."""
    whole = sum(group.kind.parameters * group.count for group in found.layers)
    parts = (divided_kind(group.kind, tensor_ranks, expert_ranks).parameters * group.count for group in found.layers)
    return whole, sum(parts) * tensor_ranks * expert_ranks


@pytest.mark.parametrize("ranks", [(2, 1), (8, 1), (1, 4), (4, 2)])
@pytest.mark.parametrize("model", ["llama-3-8b", "gpt2-xl", "mixtral-8x7b", "deepseek-v2-lite", "mamba-2.8b", "t5-3b"])
def test_the_parts_of_all_ranks_cover_the_model(model: str, ranks: tuple[int, int]) -> None:
    whole, parts = whole_and_parts(catalog_model(model), *ranks)
    assert parts >= whole
    if ranks[1] == 1:
        assert parts < 1.2 * whole  # routers, norms, latents stand on every rank
