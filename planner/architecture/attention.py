"""Softmax attention: its shape and its tensors (grouped-query and multi-head latent)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from planner.architecture.facts import Facts
from planner.architecture.shape import Attention, Tensor
from planner.architecture.tensors import linear

NORM_SHAPES = {"per_head": "per_head", "per_head_listed": "per_head", "every_head": "per_head", "full": "full"}


def attention_of(facts: Facts, sliding: bool = False, rotary: bool = True) -> Attention:
    """Attention of one layer, read from the facts; `sliding` gives it the model's window."""
    heads = facts.size("heads")
    if facts.word("attention_kind", "gqa") == "mla":
        return _latent(facts, heads)
    head_dim = _head_dim(facts, heads)
    attention = Attention(
        heads=heads,
        kv_heads=_kv_heads(facts, heads),
        head_dim=head_dim,
        rotary_dim=_rotary_dim(facts, head_dim) if rotary else 0,
        fused_qkv=facts.flag("fused_qkv"),
        qk_norm=_norm_kind(facts),
        window=facts.number("window", 0) if sliding else 0,
        causal=facts.flag("causal", True),
        softcap=bool(facts.real("attention_softcap", 0.0)),
    )
    return _with_traits(facts, attention)


def attention_tensors(
    facts: Facts, attention: Attention, hidden: int, names: Mapping[str, Any] | None = None
) -> list[Tensor]:
    """Every parameter tensor of one attention block; `names` replaces the family's module names."""
    names = names or facts.names
    if attention.kind == "mla":
        return _latent_tensors(facts, attention, hidden)
    inner = attention.heads * attention.head_dim
    output = linear(names["output"], hidden, inner, "attention", facts.flag("output_bias"), facts.flag("rows_in"))
    norms = _query_key_norms(facts, attention, names)
    return [*_projections(facts, attention, hidden, names), *output, *norms, *_sinks(facts)]


def _with_traits(facts: Facts, attention: Attention) -> Attention:
    """The same attention with the traits of its model code."""
    normed = attention.qk_norm != "none"
    return replace(
        attention,
        qk_norm_fp32=normed and facts.word("norm", "rms") in ("rms_fp32", "layer_norm_fp32"),
        qk_norm_offset=normed and facts.flag("norm_offset"),
        softmax_fp32=facts.flag("softmax_fp32", True),
        joined_rotary=facts.flag("joined_rotary"),
        rotary_interleaved=facts.flag("rotary_interleaved"),
        rotary_fp32=facts.flag("rotary_fp32"),
        split_copies=facts.flag("split_copies"),
        alibi=facts.flag("alibi"),
        shared_keys=attention.kv_heads == 1 and attention.heads > 1 and facts.flag("shared_keys"),
        qk_norm_native=normed and facts.word("norm", "rms") == "layer_norm",
    )


def cross_attention_of(attention: Attention) -> Attention:
    """The same attention reading keys and values from another sequence."""
    return replace(attention, cross=True, causal=False, rotary_dim=0, window=0)


def _head_dim(facts: Facts, heads: int) -> int:
    if facts.given("head_dim") or "head_dim" in facts.traits:
        return facts.size("head_dim")
    hidden = facts.size("attention_width", facts.size("hidden"))
    default = facts.family.defaults.get("head_dim")
    if default is None and hidden % heads and not facts.flag("uneven_heads"):
        raise facts.wrong("heads", f"{heads} heads do not divide the hidden width {hidden}", "a divisor of it",
                          "or give head_dim")
    return facts.size("head_dim", hidden // heads)


def _kv_heads(facts: Facts, heads: int) -> int:
    kv_heads = facts.size("kv_heads", heads)
    if heads % kv_heads:
        raise facts.wrong("kv_heads", f"{kv_heads} key and value heads do not divide the {heads} query heads",
                          "a divisor of them")
    return kv_heads


def _rotary_dim(facts: Facts, head_dim: int) -> int:
    if not facts.flag("rotary", True):
        return 0
    return facts.number("rotary_dim", int(head_dim * facts.real("rotary_fraction", 1.0)))


def _norm_kind(facts: Facts) -> str:
    kind = facts.word("qk_norm", "none")
    switched_off = "qk_norm_used" in facts.family.fields and not facts.flag("qk_norm_used")
    return "none" if switched_off else NORM_SHAPES.get(kind, "none")


def _projections(facts: Facts, attention: Attention, hidden: int, names: Mapping[str, Any]) -> list[Tensor]:
    head, heads, kv_heads = attention.head_dim, attention.heads, attention.kv_heads
    bias = facts.flag("qkv_bias")
    if attention.fused_qkv:
        outputs = (heads + 2 * kv_heads) * head
        return linear(names["qkv"], outputs, hidden, "attention", bias, facts.flag("rows_in"))
    query_heads = heads * (2 if facts.flag("query_gate") else 1)
    return [
        *linear(names["query"], query_heads * head, hidden, "attention", bias),
        *linear(names["key"], kv_heads * head, hidden, "attention", bias and facts.flag("key_bias", True)),
        *linear(names["value"], kv_heads * head, hidden, "attention", bias),
    ]


def _query_key_norms(facts: Facts, attention: Attention, names: Mapping[str, Any]) -> list[Tensor]:
    if attention.qk_norm == "none" or not facts.flag("qk_norm_affine", True):
        return []
    tensors: list[Tensor] = []
    for name, heads in (("query_norm", attention.heads), ("key_norm", attention.kv_heads)):
        for part, shape in _norm_parts(facts, attention, names[name], heads):
            tensors.append(Tensor(f"{part}.weight", shape, "norm"))
            if facts.flag("qk_norm_bias"):
                tensors.append(Tensor(f"{part}.bias", shape, "norm"))
    return tensors


def _norm_parts(facts: Facts, attention: Attention, name: str, heads: int) -> list[tuple[str, tuple[int, ...]]]:
    kind, head_dim = facts.word("qk_norm", attention.qk_norm), attention.head_dim
    if kind == "per_head_listed":
        return [(f"{name}.norms.{index}", (head_dim,)) for index in range(heads)]
    shapes: dict[str, tuple[int, ...]] = {
        "per_head": (head_dim,), "full": (heads * head_dim,), "every_head": (heads, head_dim)
    }
    return [(name, shapes[kind])]


def _sinks(facts: Facts) -> list[Tensor]:
    return [Tensor("self_attn.sinks", (facts.size("heads"),), "attention")] if facts.flag("sinks") else []


def _latent(facts: Facts, heads: int) -> Attention:
    nope, rotary = facts.size("nope_dim"), facts.size("rotary_dim")
    return Attention(
        heads=heads, kv_heads=heads, head_dim=nope + rotary, kind="mla", rotary_dim=rotary,
        value_dim=facts.size("value_dim", facts.size("hidden") // heads), query_latent=facts.number("query_latent", 0),
        key_value_latent=facts.size("key_value_latent"), nope_dim=nope, rotary_fp32=facts.flag("rotary_fp32"),
        joined_rotary=facts.flag("joined_rotary"),
    )


def _latent_tensors(facts: Facts, attention: Attention, hidden: int) -> list[Tensor]:
    """DeepSeek-V2 (arXiv:2405.04434, section 2.1): keys and values from one latent, the rotated key part shared."""
    bias, latent, heads = facts.flag("qkv_bias"), attention.key_value_latent, attention.heads
    return [
        *_latent_queries(attention, hidden, bias),
        *linear("self_attn.kv_a_proj_with_mqa", latent + attention.rotary_dim, hidden, "attention", bias),
        Tensor("self_attn.kv_a_layernorm.weight", (latent,), "norm"),
        *linear("self_attn.kv_b_proj", heads * (attention.nope_dim + attention.value_dim), latent, "attention"),
        *linear("self_attn.o_proj", hidden, heads * attention.value_dim, "attention", bias),
        *(_indexer(facts, attention, hidden) if facts.flag("indexer") else []),
    ]


def _indexer(facts: Facts, attention: Attention, hidden: int) -> list[Tensor]:
    """DeepSeek-V3.2's choice of the tokens that attention reads."""
    name, heads, width = "self_attn.indexer", facts.size("index_heads"), facts.size("index_dim")
    return [
        *linear(f"{name}.wq_b", heads * width, attention.query_latent, "attention"),
        *linear(f"{name}.wk", width, hidden, "attention"),
        Tensor(f"{name}.k_norm.weight", (width,), "norm"),
        Tensor(f"{name}.k_norm.bias", (width,), "norm"),
        *linear(f"{name}.weights_proj", heads, hidden, "attention"),
    ]


def _latent_queries(attention: Attention, hidden: int, bias: bool) -> list[Tensor]:
    outputs, latent = attention.heads * attention.head_dim, attention.query_latent
    if not latent:
        return linear("self_attn.q_proj", outputs, hidden, "attention")
    return [
        *linear("self_attn.q_a_proj", latent, hidden, "attention", bias),
        Tensor("self_attn.q_a_layernorm.weight", (latent,), "norm"),
        *linear("self_attn.q_b_proj", outputs, latent, "attention"),
    ]
