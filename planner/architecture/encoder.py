"""Layouts of encoders (BERT) and encoder-decoders (T5)."""

from __future__ import annotations

from dataclasses import replace

from planner.architecture.attention import attention_of, attention_tensors, cross_attention_of
from planner.architecture.decoder import Layout, decoder_layers, outside_tensors
from planner.architecture.facts import Facts
from planner.architecture.shape import Attention, FeedForward, LayerGroup, LayerKind, Tensor
from planner.architecture.tensors import linear, norm
from planner.units import shown


def bert_layout(facts: Facts) -> Layout:
    """BERT with its pre-training heads: masked tokens and, for BERT itself, next sentence."""
    facts.traits["final_norm"] = False
    hidden, rows, names = facts.size("hidden"), facts.size("vocabulary"), facts.names
    sentence, tied = facts.flag("next_sentence"), facts.flag("tied", True)
    outside = [
        *outside_tensors(facts, tied=True),
        *_segments(facts, hidden),
        *(linear(names["pooler"], hidden, hidden, "other", True) if sentence else []),
        *linear(names["head_dense"], hidden, hidden, "head", True),
        *norm(facts, names["head_norm"], hidden),
        Tensor(f"{names['head_bias']}.bias", (rows,), "head"),
        *([] if tied else linear(names["decoder"], rows, hidden, "head", True)),
        *(linear(names["next_sentence"], 2, hidden, "head", True) if sentence else []),
    ]
    return Layout(decoder_layers(facts), tuple(outside), tied)


def _segments(facts: Facts, hidden: int) -> list[Tensor]:
    rows = facts.number("segments")
    return [Tensor(f"{facts.names['segments']}.weight", (rows, hidden), "embedding")] if rows else []


def t5_layout(facts: Facts) -> Layout:
    """T5: encoder and decoder share the embedding; the first layer of each holds the relative position table."""
    encoder, tied = facts.size("layers"), facts.flag("tied")
    decoder = facts.size("decoder_layers", encoder)
    hidden, rows = facts.size("hidden"), facts.size("vocabulary")
    outside = [
        Tensor("shared.weight", (rows, hidden), "embedding"),
        *(Tensor(f"{tower}.final_layer_norm.weight", (hidden,), "norm") for tower in ("encoder", "decoder")),
        *([] if tied else linear("lm_head", rows, hidden, "head")),
    ]
    groups = [*_t5_groups(facts, "encoder", encoder), *_t5_groups(facts, "decoder", decoder)]
    return Layout(tuple(groups), tuple(outside), tied)


def _t5_groups(facts: Facts, tower: str, layers: int) -> list[LayerGroup]:
    if facts.flag("bias_in_every_layer"):
        return [LayerGroup(_t5_layer(facts, tower, True), layers, tower)]
    first = LayerGroup(_t5_layer(facts, tower, True), 1, tower)
    return [first, LayerGroup(_t5_layer(facts, tower, False), layers - 1, tower)] if layers > 1 else [first]


def _t5_layer(facts: Facts, tower: str, position_bias: bool) -> LayerKind:
    hidden, decoder = facts.size("hidden"), tower == "decoder"
    attention = replace(attention_of(facts), causal=decoder)
    cross = cross_attention_of(attention) if decoder else None
    block = _t5_feed_forward(facts)
    last = 2 if decoder else 1
    tensors = [
        *_t5_attention(facts, attention, "layer.0.SelfAttention", hidden),
        *([_position_bias(facts, attention)] if position_bias else []),
        *(_t5_attention(facts, cross, "layer.1.EncDecAttention", hidden) if cross else []),
        *_t5_feed_forward_tensors(facts, block, f"layer.{last}.DenseReluDense", hidden),
        *(tensor for index in range(last + 1) for tensor in norm(facts, f"layer.{index}.layer_norm", hidden)),
    ]
    return LayerKind(
        name=f"{tower} layer" + (" with position table" if position_bias else ""), tensors=tuple(tensors),
        attention=attention, feed_forward=block, cross_attention=cross, norm="rms_input", norms=last + 1,
        residual_dropout=facts.real("residual_dropout", 0.0), attention_dropout=facts.real("attention_dropout", 0.0),
    )


def _t5_attention(facts: Facts, attention: Attention, name: str, hidden: int) -> list[Tensor]:
    parts = {"query": "q", "key": "k", "value": "v", "output": "o"}
    return attention_tensors(facts, attention, hidden, {part: f"{name}.{letter}" for part, letter in parts.items()})


def _position_bias(facts: Facts, attention: Attention) -> Tensor:
    shape = (facts.size("buckets"), attention.heads)
    return Tensor("layer.0.SelfAttention.relative_attention_bias.weight", shape, "positions")


def _t5_feed_forward(facts: Facts) -> FeedForward:
    """`feed_forward_proj` is an activation, or `gated-` and an activation; gated GELU is the written-out form."""
    word = facts.word("projection")
    gated = word.startswith("gated-")
    activation = word.removeprefix("gated-")
    if activation not in ("relu", "gelu", "silu", "gelu_new"):
        expected = "relu, gelu, silu, or gated- and one of them"
        raise facts.wrong("projection", f"unknown feed-forward {shown(word)}", expected)
    python = activation == "gelu_new" or (gated and activation == "gelu")
    return FeedForward(facts.size("width"), gated, "gelu_python" if python else activation)


def _t5_feed_forward_tensors(facts: Facts, block: FeedForward, name: str, hidden: int) -> list[Tensor]:
    names = ("wi_0", "wi_1") if block.gated else ("wi",)
    inwards = [tensor for part in names for tensor in linear(f"{name}.{part}", block.width, hidden, "mlp")]
    return [*inwards, *linear(f"{name}.wo", hidden, block.width, "mlp")]
