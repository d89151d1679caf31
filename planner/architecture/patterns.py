"""Which mixer and which feed-forward block each layer has, from a family's rule and the configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from planner.architecture.facts import Facts
from planner.units import shown


class LayerPlan(NamedTuple):
    """Blocks of one layer. `mixer` is `attention`, `sliding`, `cross`, `none`, a recurrent kind, or two joined by +.

    `feed_forward` is `mlp`, `experts` or `none`; `rotary` tells whether the layer's attention rotates its heads.
    """

    mixer: str
    feed_forward: str
    rotary: bool = True


LAYER_TYPE_WORDS = {
    "full_attention": "attention", "global": "attention", "attention": "attention", "sliding_attention": "sliding",
    "local": "sliding", "chunked_attention": "sliding", "indexed_attention": "attention",
    "conv": "short_conv", "mamba": "mamba2",
}


def layer_plans(facts: Facts) -> tuple[LayerPlan, ...]:
    """Plan of every layer, in order. Raises InputError for a layer list that does not match the layer count."""
    layers = facts.size("layers")
    return tuple(_plan(facts, index, layers) for index in range(layers))


def _plan(facts: Facts, index: int, layers: int) -> LayerPlan:
    mixer = _mixer(facts, index, layers)
    if mixer in ("moe", "mlp"):
        return LayerPlan("none", "experts" if mixer == "moe" else "mlp")
    return LayerPlan(mixer, _feed_forward(facts, index, layers), _rotary(facts, index, mixer))


def _mixer(facts: Facts, index: int, layers: int) -> str:
    listed = facts.words("layer_types")
    if listed is not None:
        if len(listed) != layers:
            raise facts.wrong("layer_types", f"{len(listed)} layer types for {layers} layers", f"a list of {layers}")
        return _mixer_word(facts, listed[index])
    return MIXER_RULES[facts.word("mixer_rule", "all")](facts, index)


def _mixer_word(facts: Facts, word: str) -> str:
    if word in ("moe", "mlp"):
        return word
    if word in ("linear_attention", "mamba") and "linear_mixer" in facts.traits:
        return facts.word("linear_mixer")
    if word not in LAYER_TYPE_WORDS:
        raise facts.wrong("layer_types", f"unknown layer type {shown(word)}",
                          "one of " + ", ".join(sorted([*LAYER_TYPE_WORDS, "linear_attention"])))
    return LAYER_TYPE_WORDS[word]


def _same(facts: Facts, index: int) -> str:
    return facts.word("mixer", "attention")


def _every(facts: Facts, index: int) -> str:
    """Every n-th layer has full attention, the others the family's other mixer."""
    return facts.word("other_mixer", "sliding") if (index + 1) % facts.size("full_every") else "attention"


def _period(facts: Facts, index: int) -> str:
    attention = index % facts.size("mixer_period") == facts.number("mixer_offset")
    return "attention" if attention else facts.word("other_mixer")


def _listed(facts: Facts, index: int) -> str:
    listed = facts.numbers("listed_layers") or ()
    return facts.word("listed_mixer") if index in listed else facts.word("mixer", "attention")


def _late_window(facts: Facts, index: int) -> str:
    """Qwen: layers from `max_window_layers` on slide, if the window is switched on at all."""
    return "sliding" if facts.flag("window_used") and index >= facts.number("window_from", 0) else "attention"


def _rotary_window(facts: Facts, index: int) -> str:
    """Llama 4: layers with rotary embedding attend within chunks, the others to everything."""
    return "sliding" if _rotary(facts, index, "attention") else "attention"


MIXER_RULES: Mapping[str, Callable[[Facts, int], str]] = {
    "all": _same, "every": _every, "period": _period, "listed": _listed, "late_window": _late_window,
    "rotary_window": _rotary_window,
}


def _feed_forward(facts: Facts, index: int, layers: int) -> str:
    rule = facts.word("experts_rule", "none")
    if rule in ("none", "absent"):
        return "mlp" if rule == "none" else "none"
    if facts.number("experts", 0) == 0:
        return "mlp"
    listed = facts.words("feed_forward_types")
    if listed is not None and index < len(listed):
        return "experts" if listed[index] == "sparse" else "mlp"
    return "experts" if EXPERT_RULES[rule](facts, index, layers) else "mlp"


def _all(facts: Facts, index: int, layers: int) -> bool:
    return True


def _after_first(facts: Facts, index: int, layers: int) -> bool:
    """DeepSeek: dense first layers, then every `moe_layer_freq`-th layer has experts."""
    return index >= facts.number("first_dense", 0) and index % facts.size("expert_interval", 1) == 0


def _sparse_step(facts: Facts, index: int, layers: int) -> bool:
    dense = facts.numbers("dense_layers") or ()
    return index not in dense and (index + 1) % facts.size("expert_interval", 1) == 0


def _expert_period(facts: Facts, index: int, layers: int) -> bool:
    return index % facts.size("expert_interval") == facts.number("expert_offset", 0)


def _expert_list(facts: Facts, index: int, layers: int) -> bool:
    listed = facts.numbers("expert_layers")
    return index in listed if listed is not None else (index + 1) % facts.size("expert_interval", 1) == 0


def _span(facts: Facts, index: int, layers: int) -> bool:
    """ERNIE: layers from `start` to `end` (-1: the last), every n-th of them."""
    stated = facts.config.get("moe_layer_end_index")
    last = stated if isinstance(stated, int) and stated >= 0 else layers - 1
    inside = facts.number("first_dense", 0) <= index <= last
    return inside and (index + 1) % facts.size("expert_interval", 1) == 0


EXPERT_RULES: Mapping[str, Callable[[Facts, int, int], bool]] = {
    "all": _all, "after_first": _after_first, "sparse_step": _sparse_step, "period": _expert_period,
    "listed": _expert_list, "span": _span,
}


def _rotary(facts: Facts, index: int, mixer: str) -> bool:
    listed = facts.numbers("rotary_layers")
    if listed is not None and index < len(listed):
        return bool(listed[index])
    if facts.flag("rotary_only_sliding"):
        return mixer == "sliding"
    interval = facts.number("no_rotary_every", 0)
    return not interval or (index + 1) % interval != 0
