"""Traces of real model code against the formulas and the importer: two readings of one model."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import yaml

from planner.architecture.activation_peaks import activation_peaks
from planner.architecture.activations import ActivationSettings, activations
from planner.architecture.catalog_models import catalog_model
from planner.architecture.flops import model_flops
from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import Architecture
from planner.errors import InputError
from planner.trace import Trace, libraries, overlay, overlay_text, trace_answer, trace_model, trace_text

TOLERANCE = 0.03
TINY = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128, "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
# Dense, larger than any machine, mixture of experts, first layers dense and MLA, two kinds of attention and tied,
# layer norm with dropout and learned positions, a tied table that outweighs a layer, a call of its own to SDPA.
NAMES = [
    "tiny", "llama-3.1-405b", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-3-1b", "gpt2", "command-r-35b", "falcon-7b",
]
WORKING = ("forward_", "backward_", "checkpointed_", "recomputed_")
DROPOUT_MASK_BYTES = 2
"""What a mask element takes on tensors that stand for a CPU's."""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's config.json."""
    return written(tmp_path_factory.mktemp("tiny"), TINY)


def written(folder: Path, config: dict[str, Any]) -> Path:
    """A config.json in `folder`."""
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@cache
def traced(source: str) -> Trace:
    """Trace of a model, made once."""
    return trace_model(source)


@pytest.fixture(params=NAMES)
def pair(request: pytest.FixtureRequest, tiny: Path) -> tuple[Trace, Architecture]:
    """A model as traced and as the importer reads it."""
    if request.param == "tiny":
        return traced(str(tiny)), architecture_from_config(TINY)
    return traced(request.param), catalog_model(request.param)


def settings_of(trace: Trace) -> ActivationSettings:
    """What the trace did."""
    return ActivationSettings(sequence_length=trace.sequence_lengths[1], dropout_mask_bytes=DROPOUT_MASK_BYTES)


def by_layer(figures: list[tuple[int, Any]]) -> list[Any]:
    """Figures of groups as figures of single layers, sorted."""
    return sorted(figure for count, figure in figures for _ in range(count))


def counts(shape: Architecture) -> list[int]:
    """Layers of each group."""
    return [group.count for group in shape.layers]


def test_parameters_are_those_of_the_importer(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    assert trace.parameters == shape.parameters
    assert trace.parameters == sum(tensor.elements * tensor.count for tensor in trace.tensors)


def test_parameters_by_layer_are_those_of_the_importer(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    found = by_layer([(layer.count, layer.parameters) for layer in trace.layers])
    assert found == by_layer([(group.count, group.kind.parameters) for group in shape.layers])


def test_stored_bytes_are_those_of_the_formula(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    tokens = trace.sequence_lengths[1]
    expected = activations(shape, settings_of(trace)).layers
    found = [(layer.count, layer.stored_per_token * tokens + layer.stored_constant) for layer in trace.layers]
    formula = [(count, layer.stored.at(tokens)) for count, layer in zip(counts(shape), expected, strict=True)]
    assert by_layer(found) == pytest.approx(by_layer(formula), rel=TOLERANCE)


def test_boundaries_are_those_of_the_formula(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    expected = {layer.boundary.per_token for layer in activations(shape, settings_of(trace)).layers}
    assert {layer.boundary for layer in trace.layers} == expected


def test_recomputed_layers_hold_what_the_formula_says(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    tokens = trace.sequence_lengths[1]
    expected = activations(shape, settings_of(trace)).layers
    found = by_layer([(layer.count, layer.recomputed * tokens) for layer in trace.layers])
    pairs = zip(counts(shape), expected, strict=True)
    formula = [(n, layer.checkpointed_backward_live.at(tokens)) for n, layer in pairs]
    assert found == pytest.approx(by_layer(formula), rel=TOLERANCE)


def test_the_loss_holds_what_the_formula_says(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    formula = activations(shape, settings_of(trace))
    # Labels, 8 bytes, are in the trace's loss and in the formula's outside.
    assert trace.outside.loss_forward == pytest.approx(formula.loss_forward.per_token + 8, rel=TOLERANCE)
    assert trace.outside.loss_backward == pytest.approx(formula.loss_backward.per_token + 8, rel=TOLERANCE)


def test_flops_are_those_of_the_formula(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    expected = list(zip(counts(shape), model_flops(shape, trace.sequence_lengths[1]).layers, strict=True))
    matmul = by_layer([(layer.count, layer.matmul_flops) for layer in trace.layers])
    assert matmul == pytest.approx(by_layer([(n, flops.matmul_per_token) for n, flops in expected]), rel=TOLERANCE)
    between = by_layer([(layer.count, layer.attention_flops) for layer in trace.layers])
    formula = by_layer([(n, flops.attention_per_token) for n, flops in expected])
    assert between == pytest.approx(formula, rel=TOLERANCE)


def test_peaks_are_those_of_the_formula(pair: tuple[Trace, Architecture]) -> None:
    trace, shape = pair
    peaks = activation_peaks(shape, activations(shape, settings_of(trace)), trace.sequence_lengths[1], False)
    assert trace.forward_peak == pytest.approx(max(peaks.forward_layers, peaks.forward_loss), rel=TOLERANCE)
    assert trace.backward_peak == pytest.approx(max(peaks.backward_layers, peaks.backward_loss), rel=TOLERANCE)


def test_tiny_by_hand(tiny: Path) -> None:
    """Per token, 16-bit: hidden 64, keys and values 32 wide each, feed-forward 160 wide.

    2 norms keep an fp32 copy, an fp32 factor for the row and the 16-bit normed rows twice (before and after the
    weight): 2 x (256 + 4 + 128 + 128). Attention keeps queries, keys, values and output, 128 + 64 + 64 + 128, and one
    fp32 number for each of 4 heads. Gate, up, silu(gate) and their product: 4 x 320. Sum: 2,712.
    """
    trace = traced(str(tiny))
    (layer,) = trace.layers
    assert (layer.kind, layer.first, layer.count) == ("LlamaDecoderLayer", 0, 3)
    assert (layer.stored_per_token, layer.stored_constant, layer.boundary) == (2712, 0, 128)
    assert trace.sequence_lengths == (32, 64)
    # q and o 64 x 64, k and v 64 x 32, three matrices 64 x 160: 43,008 elements, 2 FLOP each; head 64 x 128.
    assert (layer.matmul_flops, trace.outside.matmul_flops) == (86_016, 16_384)
    # 4 heads x 64 tokens x half x 2 products x 16 wide x 2 FLOP.
    assert layer.attention_flops == 8_192


def test_first_dense_layers_are_a_kind() -> None:
    kinds = [(layer.first, layer.count) for layer in traced("deepseek-v2-lite").layers]
    assert kinds == [(0, 1), (1, 26)]


def test_windows_are_a_kind() -> None:
    # Every sixth of 26 layers attends to everything: layers 5, 11, 17 and 23.
    kinds = [(layer.first, layer.count) for layer in traced("gemma-3-1b").layers]
    assert kinds == [(0, 22), (5, 4)]


def test_overlay_is_the_answer_with_the_model(tiny: Path) -> None:
    trace = traced(str(tiny))
    found = yaml.safe_load(overlay_text(trace))
    assert found == overlay(trace)
    assert found["config"] == TINY
    facts = ("overlay", "hidden", "vocabulary", "positions", "tied", "in_proportion")
    assert [found[name] for name in facts] == [1, 64, 128, 64, False, True]
    assert {name: found[name] for name in trace_answer(trace)} == trace_answer(trace)
    layer = {name: value for name, value in found["layers"][0].items() if not name.startswith(WORKING)}
    assert {**layer, "tensors": []} == {
        "kind": "LlamaDecoderLayer", "first": 0, "count": 3, "places": [0, 1, 2], "parameters": 43_136,
        "stored_bytes_per_token": 2712, "stored_bytes_constant": 0, "boundary_bytes_per_token": 128,
        "matmul_flops_per_token": 86_016, "attention_flops_per_token": 8_192, "tensors": [],
    }
    assert set(found["versions"]) == {"torch", "transformers"}
    assert trace_answer(trace)["layers"][0]["tensors"][0] == {"name": "self_attn.q_proj.weight", "shape": [64, 64]}
    json.dumps(trace_answer(trace))


def test_text_names_what_was_found(tiny: Path) -> None:
    first, _, _, layer, *_ = trace_text(traced(str(tiny))).splitlines()
    # 3 x 43,136 in layers, two embeddings of 128 x 64 and a norm of 64.
    assert first == f"{tiny}: 145,856 parameters in 3 layers (llama)"
    assert layer.startswith("3 x LlamaDecoderLayer: 43,136 parameters; bytes per token: 2,712 stored, 128 at a check")


def test_torch_is_as_it_was() -> None:
    from torch.nn import functional

    before = functional.scaled_dot_product_attention
    trace_model("falcon-7b")
    assert functional.scaled_dot_product_attention is before


def test_mixers_written_out_are_noted() -> None:
    trace = traced("mamba-2.8b")
    assert trace.attention == "eager"
    assert trace.notes[-1] == "recurrent mixers run as written out, without fused kernels"
    (layer,) = trace.layers
    assert (layer.count, layer.parameters) == (64, catalog_model("mamba-2.8b").layers[0].kind.parameters)


def refusal(source: str) -> str:
    """The message of a trace that is refused."""
    with pytest.raises(InputError) as caught:
        trace_model(source)
    return str(caught.value)


def test_unknown_name_names_the_nearest() -> None:
    assert refusal("lama-3-8b") == (
        "model: unknown model 'lama-3-8b'; expected a key of catalogs/models.yaml or a path to a config.json; "
        "did you mean 'llama-3-8b'?"
    )


def test_missing_file() -> None:
    assert refusal("nowhere/config.json") == "nowhere/config.json: there is no such file; expected a YAML or JSON file"


@pytest.mark.parametrize(("name", "family"), [("t5-3b", "t5"), ("bert-large", "bert")])
def test_what_is_no_causal_language_model(name: str, family: str) -> None:
    assert refusal(name) == (
        f"{name}: model_type: a model of type '{family}' is no causal language model; "
        "expected a model that predicts the next token"
    )


def test_file_without_a_model_type(tmp_path: Path) -> None:
    path = written(tmp_path, {"hidden_size": 64})
    assert refusal(str(path)) == (
        f"{path}: model_type: this is no model configuration; expected a model's config.json"
    )


def test_model_type_without_code(tmp_path: Path) -> None:
    path = written(tmp_path, {"model_type": "lllama"})
    assert refusal(str(path)).startswith(f"{path}: model_type: transformers ")
    assert "has no model code for 'lllama'" in refusal(str(path))


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_missing_library_says_how_to_install_it(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = libraries.import_module

    def without(name: str) -> Any:
        if name == missing:
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(libraries, "import_module", without)
    assert refusal("llama-3-8b") == (
        f"trace: {missing} is not installed; expected torch and transformers; pip install planner[trace]"
    )
