"""Adapters by hand, and a published count."""

from __future__ import annotations

from typing import Any

import pytest

from planner.architecture.adapters import Adapters, quantized_parameters, with_adapters
from planner.architecture.catalog_models import catalog_model
from planner.architecture.importer import architecture_from_config

TINY = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 10,
}  # fmt: skip


def trainable(architecture: object) -> int:
    groups = architecture.layers  # type: ignore[attr-defined]
    return sum(t.elements * group.count for group in groups for t in group.kind.tensors if t.trainable)


def test_rank_two_by_hand() -> None:
    """Per layer rank × (in + out): q 8+8, k and v 8+4 each, o 8+8, gate and up 8+16 each, down 16+8: 2 × 128 = 256."""
    found = with_adapters(architecture_from_config(TINY), Adapters(2))
    assert 16 + 12 + 12 + 16 + 24 + 24 + 24 == 128
    assert trainable(found) == 2 * 256
    assert not any(tensor.trainable for tensor in found.outside)


def test_the_model_itself_is_untouched() -> None:
    plain = architecture_from_config(TINY)
    assert with_adapters(plain, Adapters(2)).parameters == plain.parameters + 512


def test_quantized_weights_are_the_linear_ones_of_the_layers() -> None:
    """Per layer 64 + 32 + 32 + 64 + 3 × 128 = 576; embeddings, head and norms stay."""
    assert quantized_parameters(architecture_from_config(TINY)) == 2 * 576


def test_published_count() -> None:
    """PEFT prints 41,943,040 trainable parameters for Llama-3-8B, all linear layers, rank 16."""
    assert trainable(with_adapters(catalog_model("llama-3-8b"), Adapters(16))) == 41_943_040


# ── which projections, decomposed weights, trained tables ────────────────────────────────────────────────────────────

GPT = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 2, "vocab_size": 10, "n_positions": 16}


def adapted(config: dict[str, Any], *targets: str) -> list[str]:
    """Weights of the first layer that carry an adapter."""
    found = with_adapters(architecture_from_config(config), Adapters(2, targets))
    names = (tensor.name for tensor in found.layers[0].kind.tensors)
    return [name.removesuffix(".weight.lora_A") for name in names if name.endswith("lora_A")]


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        (("q", "v"), ["self_attn.q_proj", "self_attn.v_proj"]),
        (("o",), ["self_attn.o_proj"]),
        (("gate", "up", "down"), ["mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"]),
    ],
)
def test_only_the_targets_carry_an_adapter(targets: tuple[str, ...], expected: list[str]) -> None:
    assert adapted(TINY, *targets) == expected


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        # queries, keys and values are one matrix
        (("q",), ["attn.c_attn"]),
        (("q", "k", "v"), ["attn.c_attn"]),
        # c_proj stands in attention and in the feed-forward block
        (("o",), ["attn.c_proj"]),
        (("down",), ["mlp.c_proj"]),
        (("gate",), []),
    ],
)
def test_targets_of_a_model_with_other_names(targets: tuple[str, ...], expected: list[str]) -> None:
    assert adapted(GPT, *targets) == expected


def test_targets_by_hand() -> None:
    """Rank 2 on queries (8 + 8) and values (8 + 4): 2 × 28 = 56 in each of two layers."""
    assert trainable(with_adapters(architecture_from_config(TINY), Adapters(2, ("q", "v")))) == 2 * 56


def test_all_targets_are_all_linear_layers() -> None:
    """Latent projections, which belong to queries, keys and values, among them."""
    plain = catalog_model("deepseek-v2-lite")
    named = Adapters(4, ("down", "up", "gate", "o", "v", "k", "q"))
    assert trainable(with_adapters(plain, named)) == trainable(with_adapters(plain, Adapters(4)))


def test_decomposed_weights_have_a_magnitude_for_each_output() -> None:
    """Outputs q 8, k 4, v 4, o 8, gate 16, up 16, down 8: 64 in each of two layers beside the 256 of rank 2."""
    found = with_adapters(architecture_from_config(TINY), Adapters(2, decomposed=True))
    assert trainable(found) == 2 * (256 + 64)
    magnitudes = [t for t in found.layers[0].kind.tensors if t.name.endswith("lora_magnitude")]
    assert [tensor.elements for tensor in magnitudes] == [8, 4, 4, 8, 16, 16, 8]
    assert {tensor.role for tensor in magnitudes} == {"adapter"}


def test_tables_may_be_trained_beside_the_adapters() -> None:
    """Embedding and output projection of 10 × 8 each; the final norm stays as it is."""
    found = with_adapters(architecture_from_config(TINY), Adapters(2, train_embeddings=True))
    assert {tensor.role: tensor.trainable for tensor in found.outside} == {
        "embedding": True, "norm": False, "head": True,
    }  # fmt: skip
    assert sum(tensor.elements for tensor in found.outside if tensor.trainable) == 160
