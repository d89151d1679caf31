"""Layers of a stack of blocks (decoder-only models, also recurrent and hybrid ones) and the tensors around them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby

from planner.architecture.attention import attention_of, attention_tensors, cross_attention_of
from planner.architecture.facts import Facts
from planner.architecture.feed_forward import dense_of, experts_of, feed_forward_tensors
from planner.architecture.patterns import LayerPlan, layer_plans
from planner.architecture.recurrence import MIXERS, recurrence_of, recurrence_tensors
from planner.architecture.shape import Attention, FeedForward, LayerGroup, LayerKind, Recurrence, Tensor
from planner.architecture.tensors import linear, norm


@dataclass(frozen=True)
class Layout:
    """What a builder returns: layers in order, tensors outside them, and whether the two embeddings are one."""

    layers: tuple[LayerGroup, ...]
    outside: tuple[Tensor, ...]
    tied: bool


def decoder_layout(facts: Facts) -> Layout:
    """Layout of a decoder-only model."""
    tied = facts.flag("tied")
    return Layout(decoder_layers(facts), tuple(outside_tensors(facts, tied)), tied)


def decoder_layers(facts: Facts, tower: str = "text") -> tuple[LayerGroup, ...]:
    """Layers in order; consecutive layers of one kind form a group."""
    plans = layer_plans(facts)
    kinds = {plan: layer_kind(facts, plan) for plan in dict.fromkeys(plans)}
    return tuple(LayerGroup(kinds[plan], len(list(run)), tower) for plan, run in groupby(plans))


def layer_kind(facts: Facts, plan: LayerPlan) -> LayerKind:
    """Everything that layers with this plan share."""
    hidden = facts.size("hidden")
    attention, recurrence = _mixers(facts, plan)
    feed_forward = _feed_forward(facts, plan)
    norms, extra = facts.names["norms"], facts.names.get("extra_norms", {})
    tensors = [
        *_mixer_tensors(facts, plan, attention, recurrence, hidden),
        *(feed_forward_tensors(facts, feed_forward, hidden) if feed_forward else []),
        *(tensor for name in norms for tensor in norm(facts, name, hidden)),
        *(tensor for name, fact in extra.items() for tensor in norm(facts, name, facts.size(fact))),
    ]
    cross = plan.mixer == "cross"
    return LayerKind(
        name=_name(facts, plan),
        tensors=tuple(tensors),
        attention=None if cross else attention,
        recurrence=recurrence,
        feed_forward=feed_forward,
        cross_attention=attention if cross else None,
        norm=facts.word("norm", "rms"),
        norms=len(norms),
        norm_offset=facts.flag("norm_offset"),
        parallel=facts.flag("parallel"),
        post_norm=facts.flag("post_norm"),
        residual_dropout=facts.real("residual_dropout", 0.0),
        attention_dropout=facts.real("attention_dropout", 0.0),
        attention_first=facts.flag("parallel") and facts.flag("attention_first", True),
    )


def _name(facts: Facts, plan: LayerPlan) -> str:
    latent = facts.word("attention_kind", "gqa") == "mla"
    mixer = plan.mixer.replace("attention", "latent attention") if latent else plan.mixer
    parts = [part for part in (mixer, plan.feed_forward) if part != "none"]
    return " + ".join(parts) + ("" if plan.rotary else ", no rotary embedding")


def _mixers(facts: Facts, plan: LayerPlan) -> tuple[Attention | None, Recurrence | None]:
    kinds = plan.mixer.split("+")
    attention: Attention | None = None
    if any(kind in ("attention", "sliding", "cross") for kind in kinds):
        attention = attention_of(facts, "sliding" in kinds, plan.rotary)
    if attention and "cross" in kinds:
        attention = replace(cross_attention_of(attention), qk_norm=facts.word("cross_qk_norm", "none"))
    recurrent = next((kind for kind in kinds if kind in MIXERS), None)
    return attention, recurrence_of(facts, recurrent) if recurrent else None


def _feed_forward(facts: Facts, plan: LayerPlan) -> FeedForward | None:
    if plan.feed_forward == "none":
        return None
    return experts_of(facts) if plan.feed_forward == "experts" else dense_of(facts)


def _mixer_tensors(
    facts: Facts, plan: LayerPlan, attention: Attention | None, recurrence: Recurrence | None, hidden: int
) -> list[Tensor]:
    names = facts.names.get("cross") if plan.mixer == "cross" else None
    soft = attention_tensors(facts, attention, hidden, names) if attention else []
    scalars = names.get("scalars", ()) if names else ()
    recurrent = recurrence_tensors(facts, recurrence, hidden) if recurrence else []
    return [*soft, *(Tensor(name, (1,), "other") for name in scalars), *recurrent]


def outside_tensors(facts: Facts, tied: bool) -> list[Tensor]:
    """Embeddings, final norm and head."""
    hidden, rows = facts.size("hidden"), facts.size("vocabulary")
    width = facts.size("embedding_width", hidden)
    names = facts.names
    table = Tensor(f"{names['embedding']}.weight", (rows + facts.number("embedding_extra_rows", 0), width), "embedding")
    head = [] if tied else linear(names["head"], rows, width, "head")
    bias = [Tensor(f"{names['head']}.bias", (rows,), "head")] if facts.flag("head_bias") else []
    final = norm(facts, names["final_norm"], hidden) if facts.flag("final_norm", True) else []
    return [table, *_positions(facts, hidden), *_around_embedding(facts, hidden, width), *final, *head, *bias]


def _positions(facts: Facts, hidden: int) -> list[Tensor]:
    if not facts.flag("position_table"):
        return []
    rows = facts.size("positions") + facts.number("position_extra_rows", 0)
    return [Tensor(f"{facts.names['positions']}.weight", (rows, hidden), "positions")]


def _around_embedding(facts: Facts, hidden: int, width: int) -> list[Tensor]:
    normed = norm(facts, facts.names["embedding_norm"], hidden) if "embedding_norm" in facts.names else []
    if width == hidden:
        return normed
    inwards = linear("model.decoder.project_in", hidden, width, "embedding")
    return [*normed, *inwards, *linear("model.decoder.project_out", width, hidden, "head")]
