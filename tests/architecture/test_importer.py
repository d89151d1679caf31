"""Imported configurations: exact counts, shapes, defaults, and whole error messages."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.architecture.families import family_of, model_types
from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import Architecture
from planner.errors import InputError

DATA = Path(__file__).parents[1] / "data"
MODELS = yaml.safe_load((DATA / "models.yaml").read_text(encoding="utf-8"))
CONFIGURATIONS = yaml.safe_load((DATA / "configurations.yaml").read_text(encoding="utf-8"))
BY_ID = {entry["id"]: entry for entry in MODELS}
# 58 correction tables of the router that the library holds outside its parameters, and a separate head it leaves out.
MORE_TENSORS = {"deepseek-ai/DeepSeek-V3": 58, "google/mt5-xxl": 1}
LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
}


def tensor_count(architecture: Architecture) -> int:
    inside = sum(group.count * len(group.kind.tensors) for group in architecture.layers)
    return inside + len(architecture.outside)


def shapes(architecture: Architecture, layer: int = 0) -> dict[str, tuple[int, ...]]:
    return {tensor.name: tensor.shape for tensor in architecture.layers[layer].kind.tensors}


def error_of(config: dict[str, Any], file: str = "") -> str:
    with pytest.raises(InputError) as caught:
        architecture_from_config(config, file=file)
    return str(caught.value)


@pytest.mark.parametrize("key", BY_ID)
def test_counts_parameters_exactly(key: str) -> None:
    entry = BY_ID[key]
    architecture = architecture_from_config(entry["config_as_json_fields"], name=key)
    assert architecture.parameters == entry["expected_params"]
    assert architecture.largest_tensor == entry.get("largest_tensor_params", architecture.largest_tensor)
    assert architecture.tied == entry.get("tied_embeddings", architecture.tied)
    if "n_parameter_tensors_v5" in entry:
        assert tensor_count(architecture) == entry["n_parameter_tensors_v5"] + MORE_TENSORS.get(key, 0)


@pytest.mark.parametrize("entry", CONFIGURATIONS, ids=lambda entry: entry["config"]["model_type"])
def test_agrees_with_the_model_code(entry: dict[str, Any]) -> None:
    architecture = architecture_from_config(entry["config"])
    assert (architecture.parameters, tensor_count(architecture)) == (entry["parameters"], entry["tensors"])


def test_knows_tensor_shapes_of_a_llama_layer() -> None:
    # head width 64 / 4 = 16; queries 4 x 16 = 64, keys and values 2 x 16 = 32
    assert shapes(architecture_from_config(LLAMA)) == {
        "self_attn.q_proj.weight": (64, 64), "self_attn.k_proj.weight": (32, 64), "self_attn.v_proj.weight": (32, 64),
        "self_attn.o_proj.weight": (64, 64), "mlp.gate_proj.weight": (96, 64), "mlp.up_proj.weight": (96, 64),
        "mlp.down_proj.weight": (64, 96), "input_layernorm.weight": (64,), "post_attention_layernorm.weight": (64,),
    }


def test_groups_consecutive_layers_of_one_kind() -> None:
    lite = architecture_from_config(BY_ID["deepseek-ai/DeepSeek-V2-Lite"]["config_as_json_fields"])
    assert [(group.kind.name, group.count) for group in lite.layers] == [
        ("latent attention + mlp", 1), ("latent attention + experts", 26),
    ]
    gemma = architecture_from_config({"model_type": "gemma3_text", "num_hidden_layers": 7})
    assert [(group.kind.name, group.count) for group in gemma.layers] == [
        ("sliding + mlp", 5), ("attention + mlp", 1), ("sliding + mlp", 1),
    ]


def test_takes_absent_fields_from_the_defaults_of_the_family() -> None:
    architecture = architecture_from_config({"model_type": "llama", "hidden_size": 4096})
    assert architecture.parameters == 6_738_415_616
    assert architecture.assumptions[0] == "num_hidden_layers is not given: 32, the default of model_type llama"


def test_derives_key_value_heads_when_the_field_is_null() -> None:
    attention = architecture_from_config({**LLAMA, "num_key_value_heads": None}).layers[0].kind.attention
    assert attention is not None and attention.kv_heads == 4


def test_reads_traits_of_the_model_code() -> None:
    gemma = architecture_from_config({"model_type": "gemma2"})
    kind = gemma.layers[0].kind
    assert (kind.norm, kind.norms, kind.norm_offset, kind.post_norm) == ("rms_fp32", 4, True, True)
    assert (gemma.embedding_scale, gemma.logit_softcap) == (True, True)
    neox = architecture_from_config({"model_type": "gpt_neox"}).layers[0].kind
    assert neox.attention is not None and neox.feed_forward is not None
    # head width 6144 / 64 = 96, a quarter of it rotated
    assert (neox.norm, neox.parallel) == ("layer_norm", True)
    assert (neox.attention.rotary_dim, neox.attention.fused_qkv) == (24, True)
    gpt2 = architecture_from_config({"model_type": "gpt2"}).layers[0].kind
    assert gpt2.feed_forward is not None and gpt2.feed_forward.activation == "gelu_python"
    assert (gpt2.residual_dropout, gpt2.attention_dropout) == (0.1, 0.1)


def test_keeps_router_correction_out_of_training() -> None:
    config = BY_ID["deepseek-ai/DeepSeek-V3"]["config_as_json_fields"]
    frozen = [tensor for tensor in architecture_from_config(config).layers[1].kind.tensors if not tensor.trainable]
    assert [(tensor.name, tensor.shape) for tensor in frozen] == [("mlp.gate.e_score_correction_bias", (256,))]


@pytest.mark.parametrize("model_type", [name for name in model_types() if name not in (
    "deepseek", "internlm2", "minicpm", "qwen", "chatglm", "baichuan", "BaiChuan", "deepseek_v2", "dots1",
    "internlm", "phi-msft",
)])
def test_every_family_builds_from_its_defaults(model_type: str) -> None:
    try:
        assert architecture_from_config({"model_type": model_type}).parameters > 0
    except InputError as error:
        assert error.message == f"model_type {model_type!r} is no language model"


@pytest.mark.parametrize("junk", [None, -1, 0, float("nan"), "x", ["x"], 1 << 70])
def test_junk_is_an_input_error_or_a_model(junk: object) -> None:
    for model_type in model_types():
        for key in junk_keys(model_type):
            with suppress(InputError):
                architecture_from_config({"model_type": model_type, key: junk})


def junk_keys(model_type: str) -> list[str]:
    keys = {key for keys in family_of(model_type).fields.values() for key in keys if "." not in key}
    return [*sorted(keys)[:: 1 + len(keys) // 3], "text_config", "vision_config"]


def test_says_which_family_is_near() -> None:
    assert error_of({"model_type": "lama", "hidden_size": 64}, "config.json") == (
        "config.json: model_type: unknown model_type 'lama'; expected one of the "
        f"{len(model_types())} families of catalogs/families.yaml; did you mean 'llama'? For other model code, set "
        "model_type to the family its layers follow, or describe the model as {parameters: N, layers: L}"
    )


def test_says_that_the_model_type_is_missing() -> None:
    assert error_of({"hidden_size": 64}, "config.json") == (
        "config.json: model_type: 'model_type' is missing; expected the name of a model family, such as 'llama'; "
        "add it, or describe the model as {parameters: N, layers: L}"
    )


def test_says_which_field_is_missing() -> None:
    config = {key: value for key, value in BY_ID["THUDM/chatglm3-6b (custom code)"]["config_as_json_fields"].items()
              if key != "ffn_hidden_size"}
    assert error_of(config) == (
        "'ffn_hidden_size' is missing; expected ffn_hidden_size (width of the feed-forward block), which model_type "
        "chatglm has no default for; add it, or describe the model as {parameters: N, layers: L}"
    )


def test_says_which_field_is_misspelled() -> None:
    assert error_of({"model_type": "llama", "hiden_size": 64}) == (
        "hiden_size: unknown key 'hiden_size'; expected hidden_size (width of the residual stream); "
        "did you mean 'hidden_size'?"
    )


def test_says_that_heads_do_not_divide() -> None:
    assert error_of({**LLAMA, "num_attention_heads": 5}) == (
        "num_attention_heads: 5 heads do not divide the hidden width 64; expected a divisor of it; or give head_dim"
    )
    assert error_of({**LLAMA, "num_key_value_heads": 3}) == (
        "num_key_value_heads: 3 key and value heads do not divide the 4 query heads; expected a divisor of them"
    )


@pytest.mark.parametrize("value", ["64", 64.5, -1, True, [64]])
def test_says_which_value_is_not_a_number(value: object) -> None:
    assert error_of({**LLAMA, "hidden_size": value}) == (
        f"hidden_size: {value!r} is not valid; expected a whole number, 0 or more"
    )


def test_names_the_nested_place_of_a_mistake() -> None:
    config = {"model_type": "gemma3", "text_config": {"hidden_size": "wide"}, "vision_config": {}}
    assert error_of(config) == (
        "text_config.hidden_size: 'wide' is not valid; expected a whole number, 0 or more"
    )


def test_says_that_layer_types_do_not_match() -> None:
    assert error_of({**LLAMA, "model_type": "qwen3", "layer_types": ["full_attention"]}) == (
        "layer_types: 1 layer types for 2 layers; expected a list of 2"
    )
