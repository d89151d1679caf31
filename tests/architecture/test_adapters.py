"""Adapters by hand, and a published count."""

from __future__ import annotations

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
