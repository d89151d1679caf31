"""Readings of a configuration that no field map can express: one named function per family that needs one.

Each takes the facts of a model and fixes traits or names in place, before anything is built.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from planner.architecture.facts import Facts


def apply_quirk(facts: Facts) -> None:
    """Run the quirk that the family names, if any."""
    name = facts.word("quirk")
    if name:
        QUIRKS[name](facts)


def falcon(facts: Facts) -> None:
    """Key and value heads, norms and biases hang on four switches (Falcon 7B, 40B and 1B differ in all of them)."""
    new, parallel = facts.flag("new_decoder"), facts.flag("parallel_attention", True)
    heads = facts.size("heads")
    facts.traits["kv_heads"] = facts.size("kv_heads", heads) if new else 1 if facts.flag("multi_query") else heads
    two = new and facts.number("parallel_norms", 2) == 2
    single = ["input_layernorm"] if parallel or new else ["input_layernorm", "post_attention_layernorm"]
    facts.names["norms"] = ["ln_attn", "ln_mlp"] if two else single
    facts.traits.update(parallel=parallel or new, attention_first=False, rotary=not facts.flag("alibi"))


def opt(facts: Facts) -> None:
    """Post-norm models (350m) have no final norm."""
    before = facts.flag("norm_before", True)
    facts.traits.update(post_norm=not before, final_norm=before and not facts.flag("final_norm_removed"))


def multi_query(facts: Facts) -> None:
    """One switch decides between a single key and value head and one per query head."""
    single = facts.size("multi_query_groups", 1)
    facts.traits["kv_heads"] = single if facts.flag("multi_query") else facts.size("heads")


def qwen(facts: Facts) -> None:
    """`intermediate_size` counts both branches of the gated block."""
    facts.traits["width"] = facts.size("width") // 2


def baichuan(facts: Facts) -> None:
    """13B uses ALiBi, 7B rotary embedding; their configurations tell them apart by the name of the length."""
    facts.traits["rotary"] = facts.given("rotary_positions")


def stablelm(facts: Facts) -> None:
    """The parallel form reads one norm."""
    if facts.flag("parallel"):
        facts.names["norms"] = ["input_layernorm"]


def gpt_neo(facts: Facts) -> None:
    """`attention_types` is a list of [[kinds...], repeats]."""
    layers = facts.size("layers")
    pairs = facts.config.get("attention_types") or [[["global", "local"], (layers + 1) // 2]]
    try:
        kinds = [kind for group, repeats in pairs for kind in group * min(repeats, layers)]
    except (TypeError, ValueError):
        raise facts.wrong("attention_types", f"{pairs!r} is not valid", "a list of [[kinds...], repeats]") from None
    facts.traits["layer_types"] = kinds[:layers]


def lfm2(facts: Facts) -> None:
    """The stated width is cut to two thirds, scaled, and rounded up to a multiple; no list means all attention."""
    if not facts.given("listed_layers"):
        facts.traits["mixer"] = "attention"
    if facts.flag("width_adjusted", True):
        width = int(2 * facts.size("width") / 3)
        width = int(facts.real("width_multiplier", 1.0) * width)
        multiple = facts.size("width_multiple", 256)
        facts.traits["width"] = multiple * ((width + multiple - 1) // multiple)


def jamba(facts: Facts) -> None:
    """A configuration with one expert is a dense model."""
    if facts.number("experts", 0) <= 1:
        facts.traits["experts_rule"] = "none"


def granite_hybrid(facts: Facts) -> None:
    """Without routed experts only the shared block remains."""
    if facts.number("experts", 0) == 0:
        facts.traits.update(experts_rule="none", fused_gate_up=True, width=facts.size("shared_width"))
        facts.names.update(gate_up="shared_mlp.input_linear", down="shared_mlp.output_linear")


def exaone4(facts: Facts) -> None:
    """Without a window every layer has full attention and rotary embedding."""
    if facts.number("window", 0) == 0:
        facts.traits.update(mixer_rule="all", rotary_only_sliding=False)


def minimax(facts: Facts) -> None:
    """Every second layer is lightning attention, starting with the second; `layer_types` may say otherwise."""
    if not facts.given("layer_types"):
        kinds = ["full_attention" if (index + 1) % 2 else "linear_attention" for index in range(facts.size("layers"))]
        facts.traits["layer_types"] = kinds


def nemotron_h(facts: Facts) -> None:
    """The list of layer kinds counts the layers; older files spell it in letters, in `hybrid_override_pattern`."""
    letters = {"M": "mamba", "E": "moe", "*": "attention", "-": "mlp"}
    pattern = facts.config.get("hybrid_override_pattern")
    if isinstance(pattern, str) and not facts.given("layer_types"):
        facts.traits["layer_types"] = [letters.get(letter, letter) for letter in pattern]
    facts.traits["layers"] = len(facts.words("layer_types") or ())


QUIRKS: Mapping[str, Callable[[Facts], None]] = {
    "falcon": falcon, "opt": opt, "multi_query": multi_query, "qwen": qwen, "baichuan": baichuan,
    "stablelm": stablelm, "gpt_neo": gpt_neo, "lfm2": lfm2, "jamba": jamba, "granite_hybrid": granite_hybrid,
    "exaone4": exaone4, "minimax": minimax, "nemotron_h": nemotron_h,
}
