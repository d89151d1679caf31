"""Layouts of encoder-decoders that follow BART (mBART, Pegasus, Marian, M2M-100, Whisper)."""

from __future__ import annotations

from dataclasses import replace

from planner.architecture.attention import attention_of, attention_tensors, cross_attention_of
from planner.architecture.decoder import Layout
from planner.architecture.facts import Facts
from planner.architecture.feed_forward import dense_of, feed_forward_tensors
from planner.architecture.shape import LayerGroup, LayerKind, Tensor
from planner.architecture.tensors import linear, norm

TOWERS = ("encoder", "decoder")


def sequence_pair_layout(facts: Facts) -> Layout:
    """Encoder and decoder layers, their position tables and norms, and one embedding for both and for the head."""
    hidden, rows, tied = facts.size("hidden"), facts.size("vocabulary"), facts.flag("tied", True)
    outside = [
        Tensor(f"{facts.names['embedding']}.weight", (rows, hidden), "embedding"),
        *_sound_input(facts, hidden),
        *(tensor for tower in TOWERS for tensor in _around(facts, tower, hidden)),
        *([] if tied else linear(facts.names["head"], rows, hidden, "head")),
    ]
    groups = tuple(LayerGroup(_layer(facts, tower), facts.size(f"{tower}_layers"), tower) for tower in TOWERS)
    return Layout(groups, tuple(outside), tied)


def _around(facts: Facts, tower: str, hidden: int) -> list[Tensor]:
    tensors: list[Tensor] = []
    if facts.flag("position_table"):
        rows = facts.size(f"{tower}_positions") + facts.number("position_extra_rows", 0)
        learned = facts.flag(f"{tower}_positions_learned", True)
        tensors.append(Tensor(f"model.{tower}.embed_positions.weight", (rows, hidden), "positions", learned))
    if facts.flag("embedding_normed"):
        tensors += norm(facts, f"model.{tower}.layernorm_embedding", hidden)
    if facts.flag("tower_norm"):
        tensors += norm(facts, f"model.{tower}.layer_norm", hidden)
    return tensors


def _sound_input(facts: Facts, hidden: int) -> list[Tensor]:
    """Two convolutions of width 3 over a spectrogram (Whisper)."""
    if not facts.flag("sound"):
        return []
    widths = {"conv1": facts.size("bands"), "conv2": hidden}
    return [
        tensor for name, width in widths.items() for tensor in (
            Tensor(f"model.encoder.{name}.weight", (hidden, width, 3), "embedding"),
            Tensor(f"model.encoder.{name}.bias", (hidden,), "embedding"),
        )
    ]


def _layer(facts: Facts, tower: str) -> LayerKind:
    hidden, decoder = facts.size("hidden"), tower == "decoder"
    facts.traits.update(heads=facts.size(f"{tower}_heads"), width=facts.size(f"{tower}_width"))
    attention = replace(attention_of(facts), causal=decoder)
    cross = cross_attention_of(attention) if decoder else None
    block = dense_of(facts)
    norms = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] if decoder else []), "final_layer_norm"]
    tensors = [
        *attention_tensors(facts, attention, hidden, _names("self_attn")),
        *(attention_tensors(facts, cross, hidden, _names("encoder_attn")) if cross else []),
        *feed_forward_tensors(facts, block, hidden),
        *(tensor for name in norms for tensor in norm(facts, name, hidden)),
    ]
    return LayerKind(
        name=f"{tower} layer", tensors=tuple(tensors), attention=attention, feed_forward=block, cross_attention=cross,
        norm="layer_norm", norms=len(norms), post_norm=facts.flag("post_norm"),
        residual_dropout=facts.real("residual_dropout", 0.0), attention_dropout=facts.real("attention_dropout", 0.0),
    )


def _names(module: str) -> dict[str, str]:
    parts = {"query": "q_proj", "key": "k_proj", "value": "v_proj", "output": "out_proj"}
    return {part: f"{module}.{name}" for part, name in parts.items()}
