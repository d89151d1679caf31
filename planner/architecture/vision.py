"""Models that read text and images: the vision tower, the projector, and the text model inside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from planner.architecture.decoder import Layout, decoder_layers
from planner.architecture.facts import Facts
from planner.architecture.shape import LayerGroup, Tensor
from planner.architecture.tensors import linear, norm


def tower_groups(facts: Facts) -> tuple[LayerGroup, ...]:
    """Layers of a vision tower, in order."""
    groups = decoder_layers(facts, tower="vision")
    if facts.word("around") != "mllama":
        return groups
    kind = groups[0].kind
    gates = tuple(Tensor(name, (1,), "other") for name in ("gate_attn", "gate_ffn"))
    gated = replace(kind, name=f"gated {kind.name}", tensors=(*kind.tensors, *gates))
    return (*groups, LayerGroup(gated, facts.size("global_layers"), "vision"))


def around_tower(facts: Facts) -> list[Tensor]:
    """Tensors of a vision tower outside its layers."""
    return AROUND[facts.word("around")](facts)


def projector(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    """Tensors that carry image features into the text model's width."""
    return PROJECTORS[facts.word("projector")](facts, vision, text)


def join(tower: tuple[LayerGroup, ...], outside: list[Tensor], text: Layout) -> Layout:
    """Layout of the whole: vision layers first, then the text model's."""
    return Layout((*tower, *text.layers), (*outside, *text.outside), text.tied)


def _patches(facts: Facts) -> int:
    return (facts.size("image") // facts.size("patch")) ** 2


def _patch_embedding(facts: Facts, name: str, bias: bool = False) -> list[Tensor]:
    hidden, patch = facts.size("hidden"), facts.size("patch")
    weight = Tensor(f"{name}.weight", (hidden, facts.size("channels"), patch, patch), "embedding")
    return [weight, Tensor(f"{name}.bias", (hidden,), "embedding")] if bias else [weight]


def _siglip(facts: Facts) -> list[Tensor]:
    hidden = facts.size("hidden")
    head = _pooling_head(facts, hidden) if facts.flag("pooling_head") else []
    return [
        *_patch_embedding(facts, "embeddings.patch_embedding", bias=True),
        Tensor("embeddings.position_embedding.weight", (_patches(facts), hidden), "positions"),
        *norm(facts, "post_layernorm", hidden),
        *head,
    ]


def _pooling_head(facts: Facts, hidden: int) -> list[Tensor]:
    width = facts.size("width")
    return [
        Tensor("head.probe", (1, 1, hidden), "other"),
        Tensor("head.attention.in_proj_weight", (3 * hidden, hidden), "attention"),
        Tensor("head.attention.in_proj_bias", (3 * hidden,), "attention"),
        *linear("head.attention.out_proj", hidden, hidden, "attention", True),
        *norm(facts, "head.layernorm", hidden),
        *linear("head.mlp.fc1", width, hidden, "mlp", True),
        *linear("head.mlp.fc2", hidden, width, "mlp", True),
    ]


def _clip(facts: Facts) -> list[Tensor]:
    hidden = facts.size("hidden")
    return [
        Tensor("embeddings.class_embedding", (hidden,), "embedding"),
        *_patch_embedding(facts, "embeddings.patch_embedding"),
        Tensor("embeddings.position_embedding.weight", (_patches(facts) + 1, hidden), "positions"),
        *norm(facts, "pre_layrnorm", hidden),
        *norm(facts, "post_layernorm", hidden),
    ]


def _pixtral(facts: Facts) -> list[Tensor]:
    return [*_patch_embedding(facts, "patch_conv"), *norm(facts, "ln_pre", facts.size("hidden"))]


def _llama4(facts: Facts) -> list[Tensor]:
    hidden, patch, width = facts.size("hidden"), facts.size("patch"), facts.size("adapter_width")
    return [
        Tensor("class_embedding", (hidden,), "embedding"),
        Tensor("positional_embedding_vlm", (_patches(facts) + 1, hidden), "positions"),
        Tensor("patch_embedding.linear.weight", (hidden, facts.size("channels") * patch * patch), "embedding"),
        *norm(facts, "layernorm_pre", hidden),
        *norm(facts, "layernorm_post", hidden),
        *linear("vision_adapter.mlp.fc1", width, facts.size("width"), "mlp"),
        *linear("vision_adapter.mlp.fc2", facts.size("projected"), width, "mlp"),
    ]


def _mllama(facts: Facts) -> list[Tensor]:
    """Every table of tiles has one row per aspect ratio, and one for none."""
    hidden, tiles, patches = facts.size("hidden"), facts.size("tiles"), _patches(facts) + 1
    rows = _aspect_ratios(facts) + 1
    positional = "gated_positional_embedding"
    tables = [
        Tensor(f"{name}.{part}", shape, "positions")
        for name in ("pre_tile_positional_embedding", "post_tile_positional_embedding")
        for part, shape in (("gate", (1,)), ("embedding.weight", (rows, tiles * hidden)))
    ]
    return [
        Tensor("class_embedding", (hidden,), "embedding"),
        *_patch_embedding(facts, "patch_embedding"),
        Tensor(f"{positional}.gate", (1,), "positions"),
        Tensor(f"{positional}.embedding", (patches, hidden), "positions"),
        Tensor(f"{positional}.tile_embedding.weight", (rows, tiles * patches * hidden), "positions"),
        *tables,
        *norm(facts, "layernorm_pre", hidden),
        *norm(facts, "layernorm_post", hidden),
    ]


def _aspect_ratios(facts: Facts) -> int:
    """Given, or every arrangement of at most `tiles` tiles in rows and columns."""
    stated = facts.config.get("supported_aspect_ratios")
    tiles = facts.size("tiles")
    return len(stated) if isinstance(stated, list) else sum(tiles // rows for rows in range(1, tiles + 1))


def _qwen2_vl(facts: Facts) -> list[Tensor]:
    hidden, patch, merge = facts.size("hidden"), facts.size("patch"), facts.size("merge")
    merged = hidden * merge * merge
    shape = (hidden, facts.size("channels"), facts.size("frames"), patch, patch)
    return [
        Tensor("patch_embed.proj.weight", shape, "embedding"),
        *norm(facts, "merger.ln_q", hidden),
        *linear("merger.mlp.0", merged, merged, "mlp", True),
        *linear("merger.mlp.2", facts.size("output_width"), merged, "mlp", True),
    ]


def _qwen3_vl(facts: Facts) -> list[Tensor]:
    hidden, patch, merge = facts.size("hidden"), facts.size("patch"), facts.size("merge")
    merged, taps = hidden * merge * merge, facts.numbers("taps") or ()
    shape = (hidden, facts.size("channels"), facts.size("frames"), patch, patch)
    mergers = [("merger", hidden), *((f"deepstack_merger_list.{index}", merged) for index in range(len(taps)))]
    return [
        Tensor("patch_embed.proj.weight", shape, "embedding"),
        Tensor("patch_embed.proj.bias", (hidden,), "embedding"),
        Tensor("pos_embed.weight", (facts.size("position_rows"), hidden), "positions"),
        *(tensor for name, width in mergers for tensor in _qwen3_merger(facts, name, width, merged)),
    ]


def _qwen3_merger(facts: Facts, name: str, normed: int, merged: int) -> list[Tensor]:
    return [
        *norm(facts, f"{name}.norm", normed),
        *linear(f"{name}.linear_fc1", merged, merged, "mlp", True),
        *linear(f"{name}.linear_fc2", facts.size("output_width"), merged, "mlp", True),
    ]


AROUND: Mapping[str, Callable[[Facts], list[Tensor]]] = {
    "siglip": _siglip, "clip": _clip, "pixtral": _pixtral, "llama4": _llama4, "mllama": _mllama,
    "qwen2_vl": _qwen2_vl, "qwen3_vl": _qwen3_vl,
}


def _into_gemma3(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    hidden, width = vision.size("hidden"), text.size("hidden")
    return [
        Tensor("multi_modal_projector.mm_input_projection_weight", (hidden, width), "other"),
        Tensor("multi_modal_projector.mm_soft_emb_norm.weight", (hidden,), "norm"),
    ]


def _into_paligemma(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    width = text.size("hidden")
    return linear("multi_modal_projector.linear", facts.size("projection", width), vision.size("hidden"), "other", True)


def _into_llava(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    hidden, width, bias = vision.size("hidden"), text.size("hidden"), facts.flag("projector_bias")
    newline = [Tensor("image_newline", (width,), "other")] if facts.flag("image_newline") else []
    return [
        *linear("multi_modal_projector.linear_1", width, hidden, "other", bias),
        *linear("multi_modal_projector.linear_2", width, width, "other", bias),
        *newline,
    ]


def _into_mistral3(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    hidden, width, merge = vision.size("hidden"), text.size("hidden"), facts.size("merge")
    bias = facts.flag("projector_bias")
    return [
        Tensor("multi_modal_projector.norm.weight", (hidden,), "norm"),
        *linear("multi_modal_projector.patch_merger.merging_layer", hidden, hidden * merge * merge, "other"),
        *linear("multi_modal_projector.linear_1", width, hidden, "other", bias),
        *linear("multi_modal_projector.linear_2", width, width, "other", bias),
    ]


def _into_llama4(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    return linear("multi_modal_projector.linear_1", text.size("hidden"), vision.size("output_width"), "other")


def _into_mllama(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    return linear("multi_modal_projector", text.size("hidden"), vision.size("output_width"), "other", True)


def _into_idefics3(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    """Squares of `scale` by `scale` patches become one token."""
    inputs = vision.size("hidden") * facts.size("scale") ** 2
    return linear("model.connector.modality_projection.proj", text.size("hidden"), inputs, "other")


def _inside(facts: Facts, vision: Facts, text: Facts) -> list[Tensor]:
    """The tower itself ends in the text model's width."""
    return []


PROJECTORS: Mapping[str, Callable[[Facts, Facts, Facts], list[Tensor]]] = {
    "gemma3": _into_gemma3, "paligemma": _into_paligemma, "llava": _into_llava, "mistral3": _into_mistral3,
    "llama4": _into_llama4, "mllama": _into_mllama, "idefics3": _into_idefics3, "inside": _inside,
}
