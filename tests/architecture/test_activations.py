"""Stored sets held against real model code, closed forms worked out by hand, and the settings that change them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from measured import configurations, stored_sets

from planner.architecture.activation_feed_forward import feed_forward_stored
from planner.architecture.activations import ActivationSettings, Amount, LayerActivations, activations
from planner.architecture.importer import architecture_from_config

SEQUENCE = 1088
LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 2,
    "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
}  # Meta-Llama-3-8B with two layers


def layer(config: dict[str, Any] | None = None, **settings: Any) -> LayerActivations:
    shape = architecture_from_config(config or LLAMA)
    return activations(shape, ActivationSettings(**{"sequence_length": SEQUENCE, **settings})).layers[-1]


@pytest.mark.parametrize("entry", stored_sets(), ids=lambda entry: entry["model"])
def test_stored_set_is_what_autograd_saves(entry: dict[str, Any]) -> None:
    # Measured with scaled_dot_product_attention and a mask on fake CPU tensors: keys and values are repeated, dropout
    # masks take two bytes. Expert loops leave the routing open.
    shape = architecture_from_config(configurations()[entry["model"]])
    settings = ActivationSettings(sequence_length=1024, attention="sdpa", dropout_mask_bytes=2)
    most = max(range(len(shape.layers)), key=lambda index: shape.layers[index].count)
    found = activations(shape, settings).layers[most].stored.at(1024) / 1024
    limit = 0.10 if entry["experts_are_a_loop"] else 0.03
    assert abs(found / entry["bytes_per_token_per_layer"] - 1) <= limit


def test_amount_adds_and_scales() -> None:
    one = Amount(10, 3) + Amount(1, 2)
    assert (one, one.at(4), one.scaled(2), one.divided(4)) == (Amount(11, 5), 31, Amount(22, 10), Amount(3, 2))


def test_llama_closed_form() -> None:
    # 16h + 4ad + 4gd + 8f + 4a + 8 with h = ad = 4096, gd = 1024, f = 14336, a = 32:
    # 65536 + 16384 + 4096 + 114688 + 128 + 8
    assert layer().stored == Amount(0, 200840)


def test_checkpoint_keeps_the_layer_input() -> None:
    # 2h; recomputed: A + 4f + 2h = 200840 + 57344 + 8192; forward: 6f + 4h = 86016 + 16384
    found = layer()
    assert (found.boundary, found.checkpointed_backward_live, found.checkpointed_forward_live) == (
        Amount(0, 8192), Amount(0, 266376), Amount(0, 102400),
    )


@pytest.mark.parametrize(
    ("settings", "per_token"),
    [
        ({"attention": "eager"}, 421896),  # - 4a + 4(a - g)d + 6aS: 200840 - 128 + 12288 + 208896
        ({"attention": "sdpa"}, 213128),  # + 4(a - g)d
        ({"attention": "sdpa_masked"}, 215304),  # + 2S
        ({"precision": "fp32"}, 368776),  # 24h + 8ad + 8gd + 16f + 4a + 8
        ({"kernels": "liger"}, 139400),  # 8h + 4ad + 4gd + 6f + 4a + 8
        ({"method": "lora", "lora_targets": ("q", "v"), "adapter_bytes": 2}, 147656),
        ({"method": "lora", "lora_targets": ("q", "v"), "adapter_bytes": 4}, 172296),
        # the input of gate and up besides, 2h, and that of down, 2f; q and v's adapters share that of q, k, v
        ({"method": "qlora", "lora_targets": ("q", "v"), "adapter_bytes": 2, "inputs_kept": True}, 184520),
        ({"method": "lora", "adapter_bytes": 2}, 184680),
        ({"method": "lora", "adapter_bytes": 4}, 295496),
        ({"method": "lora", "lora_targets": ("q", "v"), "adapter_bytes": 2, "lora_dropout": 0.05}, 164040),
    ],
    ids=str,
)
def test_settings_change_the_stored_set(settings: dict[str, Any], per_token: int) -> None:
    assert layer(**settings).stored == Amount(0, per_token)


def test_autocast_keeps_copies_of_the_weights() -> None:
    # 26h + 4ad + 4gd + 8f + 4a + 8 and 2 bytes for each of the 218103808 matrix elements
    assert layer(precision="autocast").stored == Amount(436207616, 241800)


def test_autocast_caches_copies_of_weights_with_a_gradient_only() -> None:
    # cached_cast keeps the cast of a leaf that requires a gradient
    assert layer(precision="autocast", method="qlora").stored.constant == 0


def test_tensor_parallelism_divides_norms_only_with_the_sequence() -> None:
    # 8h of norms and inputs, 8 of statistics: with the sequence (139400 / 8), without 32776 + (139400 - 32776) / 8.
    settings = {"kernels": "megatron", "tensor_parallel": 8}
    shared = layer(**settings).stored.per_token
    whole = layer(**settings, sequence_parallel=False).stored.per_token
    assert (abs(shared - 17425) <= 4, whole) == (True, 46104)


@pytest.mark.parametrize(("parts", "divided", "expected"), [(1, True, 2048), (2, True, 1024), (2, False, 2048)])
def test_masks_of_the_stream_are_whole_unless_the_sequence_is_divided(parts: int, divided: bool, expected: int) -> None:
    # GPT-2: a mask byte for each of 1024 after attention and after the MLP, on two ranks a half each or all of it
    config = {"model_type": "gpt2", "n_embd": 1024, "n_layer": 1, "n_head": 16}
    settings = {"kernels": "megatron", "tensor_parallel": parts, "sequence_parallel": divided}
    dropped, kept = (layer(config, **settings, dropout=dropout).stored for dropout in (True, False))
    assert (dropped - kept).per_token == expected


def test_a_loop_over_experts_keeps_one_more_row_per_routed_token() -> None:
    # Mixtral in small, two of eight experts: one more row 2 x 2h, no sorted order - 2 x 8
    config = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    grouped, loop = layer(config).stored.per_token, layer(config, experts="loop").stored.per_token
    assert loop - grouped == 2 * 2 * 4096 - 2 * 8


def test_every_expert_of_llama_4_runs_on_every_token() -> None:
    # 16 experts instead of one: 15 x (4h + 8f + 34) more than if tokens were routed, with h = 5120 and f = 8192
    shape = architecture_from_config({"model_type": "llama4_text", "num_hidden_layers": 1})
    block = shape.layers[0].kind.feed_forward
    assert block is not None
    settings = ActivationSettings(sequence_length=SEQUENCE)
    routed = feed_forward_stored(replace(block, every_expert=False), 5120, settings)
    everywhere = feed_forward_stored(block, 5120, settings)
    assert (everywhere - routed).per_token == 15 * (4 * 5120 + 8 * 8192 + 34)


def test_attention_without_a_fused_kernel_keeps_its_probabilities() -> None:
    # Falcon 7B, a = 71, d = 64, S = 1088, one key head for all: 4aS - 4a, and 2 bytes more for each of 73 heads
    config = {"model_type": "falcon", "num_hidden_layers": 2}
    flash, plain = layer(config).stored.per_token, layer(config, attention="sdpa").stored.per_token
    assert plain - flash == 4 * 71 * 1087 + 2 * 73 * 64


def test_encoder_decoder_with_written_out_attention() -> None:
    # T5-3B, h = 1024, ad = 4096, f = 16384, 2aS = 32768: encoder 20h + 8ad + 2aS + 2f + 8; the decoder's layer has one
    # more norm (10h + 4) and a cross-attention (8ad + 2aS)
    settings = ActivationSettings(sequence_length=512, attention="eager", dropout=False)
    found = activations(architecture_from_config(configurations()["google-t5/t5-3b"]), settings).layers
    assert [found[0].stored.per_token, found[-1].stored.per_token] == [118792, 194572]


def test_dropout_keeps_a_mask_per_block() -> None:
    config = configurations()["facebook/opt-13b"]
    # 16h + 2f + 4a + 8 with h = 5120, f = 20480, a = 40; masks of one byte: + 2h
    assert (layer(config, dropout=False).stored.per_token, layer(config).stored.per_token) == (123048, 133288)


@pytest.mark.parametrize(
    ("settings", "forward", "backward"),
    [
        ({}, 10, 12),
        ({"outputs_held": True}, 10, 14),
        ({"precision": "fp32"}, 8, 12),
    ],
    ids=str,
)
def test_standard_loss_in_vocabularies(settings: dict[str, Any], forward: int, backward: int) -> None:
    found = activations(architecture_from_config(LLAMA), ActivationSettings(sequence_length=SEQUENCE, **settings))
    rows = 128256
    assert (found.loss_forward, found.loss_backward) == (Amount(0, forward * rows), Amount(0, backward * rows))


def test_fused_loss_does_not_grow_with_the_vocabulary_per_token() -> None:
    found = activations(architecture_from_config(LLAMA), ActivationSettings(sequence_length=SEQUENCE, loss="fused"))
    # 8Vh whatever the tokens; hidden gradient 2h and a chunk of at most 2 x T x h / V tokens of 2V: 4h
    assert found.loss_forward == Amount(8 * 128256 * 4096, 6 * 4096)


def test_chunked_loss_holds_one_chunk() -> None:
    found = activations(
        architecture_from_config(LLAMA), ActivationSettings(sequence_length=SEQUENCE, loss="chunked"),
    )
    # backward: the larger of 12V x 1024 tokens and 6Vh; here 6 x 4096 > 12 x 1024
    assert (found.loss_forward.constant, found.loss_backward.constant) == (8 * 128256 * 1024, 6 * 128256 * 4096)


@pytest.mark.parametrize(("method", "weights"), [("full", 2 * 2 * 128256 * 4096), ("lora", 0)])
def test_a_compiled_chunked_loss_keeps_16_bit_logits(method: str, weights: int) -> None:
    settings = ActivationSettings(sequence_length=SEQUENCE, loss="chunked", kernels="compiled", method=method)
    found = activations(architecture_from_config(LLAMA), settings)
    # 2V; in backward the gradient of one of eight chunks, and the head's gradient so far and of the chunk, 2Vh each
    assert found.loss_forward == Amount(0, 2 * 128256)
    assert found.loss_backward == Amount(weights, 2 * 128256 + 2 * 128256 // 8)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 2),  # logits that are raised to fp32
        ({"kernels": "compiled"}, 2),
        ({"precision": "fp32"}, 0),  # their own copy
        ({"kernels": "megatron"}, 0),  # exponentials are taken in place
        ({"loss": "kernel"}, 0),
        ({"loss": "chunked"}, 0),
    ],
    ids=str,
)
def test_the_block_of_16_bit_logits_stays_idle(settings: dict[str, Any], expected: int) -> None:
    found = activations(architecture_from_config(LLAMA), ActivationSettings(sequence_length=SEQUENCE, **settings))
    assert found.idle_logits == Amount(0, expected * 128256)


def test_of_divided_logits_a_share_stays_idle() -> None:
    settings = ActivationSettings(sequence_length=SEQUENCE, tensor_parallel=8)
    assert activations(architecture_from_config(LLAMA), settings).idle_logits == Amount(0, 2 * 128256 // 8)


def test_outside_is_final_norm_tables_and_labels() -> None:
    # 8h + 4 + 8 per token; 4r for each position with r = 128
    found = activations(architecture_from_config(LLAMA), ActivationSettings(sequence_length=SEQUENCE))
    assert found.outside == Amount(4 * 128 * SEQUENCE, 8 * 4096 + 12)


def test_relative_positions_stay_for_checkpoints() -> None:
    # T5-3B: encoder one, decoder two (its own and across) biases of 2 bytes for 32 heads and 512 x 512 positions
    settings = ActivationSettings(sequence_length=512, attention="eager")
    found = activations(architecture_from_config(configurations()["google-t5/t5-3b"]), settings)
    assert found.biases == Amount(3 * 2 * 32 * 512 * 512)


def test_embeddings_of_words_and_positions_stay_during_forward() -> None:
    settings = ActivationSettings(sequence_length=SEQUENCE)
    positions = activations(architecture_from_config(configurations()["facebook/opt-13b"]), settings)
    none = activations(architecture_from_config(LLAMA), settings)
    assert (positions.embedded, none.embedded) == (Amount(0, 4 * 5120), Amount())


def test_tied_embedding_has_two_more_gradients() -> None:
    settings = ActivationSettings(sequence_length=SEQUENCE)
    tied = activations(architecture_from_config({**LLAMA, "tie_word_embeddings": True}), settings)
    apart = activations(architecture_from_config(LLAMA), settings)
    assert (tied.tied_gradient_extra, apart.tied_gradient_extra) == (2 * 2 * 128256 * 4096, 0)
