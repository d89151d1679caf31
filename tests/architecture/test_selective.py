"""Selective recomputation by operation, held against torch's selective checkpointing of real model code."""

from __future__ import annotations

from typing import Any

import pytest
from measured import Run, runs

from planner.architecture.activation_peaks import activation_peaks
from planner.architecture.activation_selective import kept_share, selective_amounts
from planner.architecture.activations import ActivationSettings, activations
from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import LayerKind

# Half of the matrix products and the attention are kept; other policies are not offered.
RUNS = [run for run in runs() if "every second mm + attention" in run.implementation]
LIMIT = 0.05

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 10,
}  # fmt: skip
EXPERTS: dict[str, Any] = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
@pytest.mark.parametrize("moment", ["forward_layers", "backward_layers"])
def test_peaks_of_the_layers_are_those_of_the_model_code(run: Run, moment: str) -> None:
    shape = architecture_from_config(run.config())
    found = activation_peaks(shape, activations(shape, run.settings()), run.tokens, checkpointed=True, selective=True)
    measured, _ = run.peaks[moment]
    assert abs(getattr(found, moment) / measured - 1) <= LIMIT


def test_there_are_rows_to_hold_it_against() -> None:
    assert len(RUNS) >= 2


def layer(config: dict[str, Any]) -> LayerKind:
    return architecture_from_config(config).layers[0].kind


def settings(**changes: Any) -> ActivationSettings:
    return ActivationSettings(sequence_length=16, **changes)


def test_what_is_kept_by_hand() -> None:
    """Products in order q 8, k 4, v 4, o 8, gate 16, up 16, down 8: every second from the first is q, v, gate, down.

    2 bytes for each of 8 + 4 + 16 + 8 = 36, and attention's output 2 × 8 with 4 for each of 4 heads: 72 + 32. Queries
    before rotation, 2 × 8, are not in what recomputation makes again.
    """
    kept, shared = selective_amounts(layer(LLAMA), 8, settings())
    assert (kept.constant, kept.per_token) == (0, 2 * 36 + 2 * 8 + 4 * 4)
    assert kept.per_token - shared.per_token == 2 * 8


def test_attention_that_is_made_again_keeps_nothing() -> None:
    """Without its output, 2 × 8, and 4 for each of 4 heads."""
    kept, _ = selective_amounts(layer(LLAMA), 8, settings(attention_remade=True))
    assert kept.per_token == 2 * 36


def test_on_two_ranks_half_of_each_column_parallel_product() -> None:
    """q 4, v 2, gate 8, down whole 8; half of attention's 32; of two reduce-scattered streams a half each: 2 × 8."""
    kept, _ = selective_amounts(layer(LLAMA), 8, settings(tensor_parallel=2))
    assert kept.per_token == 2 * (4 + 2 + 8 + 8) + 16 + 2 * 2 * 8 // 2
    whole, _ = selective_amounts(layer(LLAMA), 8, settings(tensor_parallel=2, sequence_parallel=False))
    assert whole.per_token == 2 * (4 + 2 + 8 + 8) + 16


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        # without down 8: nothing of the layer's backward reads what is only added to the stream
        (LLAMA, 2 * (8 + 4 + 16) + 32),
        # of experts the last plain product is the router, which routing reads
        (EXPERTS, 2 * (8 + 4 + 4) + 32),
        # a norm after the block reads it
        ({**LLAMA, "model_type": "gemma2", "head_dim": 2}, 2 * (8 + 4 + 16 + 8) + 32),
    ],
)
def test_a_compiled_layer_keeps_no_result_that_backward_does_not_read(config: dict[str, Any], expected: int) -> None:
    kept, _ = selective_amounts(layer(config), 8, settings(kernels="compiled"))
    assert kept.per_token == expected


def test_of_a_compiled_layer_one_scattered_stream_is_read() -> None:
    """q 4, v 2, gate 8 on two ranks; half of attention's 32; of the streams that of attention alone, half of 2 × 8."""
    kept, _ = selective_amounts(layer(LLAMA), 8, settings(kernels="compiled", tensor_parallel=2))
    assert kept.per_token == 2 * (4 + 2 + 8) + 16 + 8


def test_of_experts_the_router_is_a_plain_product() -> None:
    """q 8, k 4, v 4, o 8, router 4: q, v, router; experts run as one grouped product, which is made again."""
    kept, _ = selective_amounts(layer(EXPERTS), 8, settings())
    assert kept.per_token == 2 * (8 + 4 + 4) + 32


def test_share_of_the_products_that_is_not_made_again() -> None:
    """By width × input: q 64, k 32, v 32, o 64, gate, up and down 128 each; q, v, gate, down are 352 of 576."""
    assert kept_share(layer(LLAMA), 8) == pytest.approx(352 / 576)
