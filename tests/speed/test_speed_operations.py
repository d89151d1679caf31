"""What a layer computes, in counts."""

from __future__ import annotations

import pytest

from planner.architecture.adapters import Adapters, with_adapters
from planner.architecture.catalog_models import catalog_model, catalog_models
from planner.architecture.flops import active
from planner.speed.operations import Division, LayerOperations, layer_division, layer_operations

MODELS = tuple(catalog_models())


def operations(name: str, layer: int = 0, **division: object) -> LayerOperations:
    """Operations of one layer group of a catalog model."""
    model = catalog_model(name)
    return layer_operations(model.layers[layer].kind, model.hidden, Division(**division))  # type: ignore[arg-type]


def shapes(work: LayerOperations) -> list[tuple[float, float]]:
    return [(item.columns, item.inner) for item in work.products]


@pytest.mark.parametrize("name", MODELS)
def test_products_count_the_weights_that_a_token_meets(name: str) -> None:
    model = catalog_model(name)
    for group in model.layers:
        if group.tower == "vision" or group.kind.recurrence is not None:
            continue
        work = layer_operations(group.kind, model.hidden, Division())
        counted = sum(item.columns * item.inner * item.share for item in work.products)
        assert counted == pytest.approx(active(group.kind), rel=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_divisions_that_mean_the_same_to_a_layer_have_the_same_operations(name: str) -> None:
    model = catalog_model(name)
    for group in model.layers:
        for context in ("ring", "uneven_ring", "heads"):
            given = Division(2, True, expert_parallel=2, context_parallel=2, context=context)
            alike = layer_division(group.kind, given)
            work = layer_operations(group.kind, model.hidden, given)
            assert work == layer_operations(group.kind, model.hidden, alike)
            assert alike.context_parallel == (2 if context == "heads" else 1)


def test_a_layer_without_experts_is_the_same_whatever_their_degree() -> None:
    dense, sparse = (layer.kind for layer in catalog_model("deepseek-v3").layers[:2])
    assert layer_division(dense, Division(expert_parallel=8)).expert_parallel == 1
    assert layer_division(sparse, Division(expert_parallel=8)).expert_parallel == 8


def test_llama_layer() -> None:
    assert shapes(operations("llama-3-8b")) == [
        (4096, 4096), (1024, 4096), (1024, 4096), (4096, 4096), (14336, 4096), (14336, 4096), (4096, 14336),
    ]  # fmt: skip


def test_tensor_parallel_divides_outputs_of_the_first_and_inputs_of_the_last_product() -> None:
    assert shapes(operations("llama-3-8b", tensor_parallel=2)) == [
        (2048, 4096), (512, 4096), (512, 4096), (4096, 2048), (7168, 4096), (7168, 4096), (4096, 7168),
    ]  # fmt: skip


def test_inputs_in_front_are_the_same_product() -> None:
    # GPT-2 stores inputs x outputs
    assert shapes(operations("gpt2")) == [(2304, 768), (768, 768), (3072, 768), (768, 3072)]


def test_copies_of_an_input_are_made_once() -> None:
    first = [item.reads_input_first for item in operations("llama-3-8b").products]
    assert first == [True, False, False, True, True, False, True]


def test_only_a_dense_output_projection_closes_a_layer() -> None:
    assert [item.closes_layer for item in operations("llama-3-8b").products] == [False] * 6 + [True]
    assert not any(item.closes_layer for item in operations("mixtral-8x7b").products)
    assert not any(item.closes_layer for item in operations("gemma-2-9b").products)


def test_experts_are_one_product_of_a_batch() -> None:
    routed = [item for item in operations("mixtral-8x7b", expert_parallel=4).products if item.batch > 1]
    # 2 of 8 experts on this rank; 2 rows for each token come in, and as many go out
    assert [(item.batch, item.share, item.columns, item.inner) for item in routed] == [
        (2, 2, 28672, 4096), (2, 2, 4096, 14336),
    ]  # fmt: skip


def test_latent_attention_has_wide_queries_and_narrow_values() -> None:
    call = operations("deepseek-v3", tensor_parallel=4).attentions[0]
    assert (call.heads, call.head_dim, call.value_dim) == (32, 192, 128)


def test_heads_of_ulysses_are_divided_by_the_ranks_of_a_sequence() -> None:
    assert operations("llama-3-8b", context_parallel=4, context="heads").attentions[0].heads == 8
    assert operations("llama-3-8b", context_parallel=4).attentions[0].heads == 32


def test_passes_of_a_llama_layer() -> None:
    passes = {item.name: item.elements for item in operations("llama-3-8b").passes}
    # 2 norms and 2 residuals of 4096; 3 forks of 4096 (k, v, up); (32 + 8) heads of 128 rotated; width 14336
    assert passes == {"norm_rms": 8192, "residual": 8192, "fork": 12288, "rotary": 5120, "gated": 14336}


def test_calls_of_the_passes_of_a_llama_layer() -> None:
    calls = {item.name: item.calls for item in operations("llama-3-8b").passes}
    # 2 norms, 2 residuals, 3 forks; queries and keys are rotated apart
    assert calls == {"norm_rms": 2, "residual": 2, "fork": 3, "rotary": 2, "gated": 1}


def test_adapters_touch_inputs_and_outputs_of_their_products() -> None:
    adapted = with_adapters(catalog_model("llama-3-8b"), Adapters(8))
    passes = {item.name: item for item in layer_operations(adapted.layers[0].kind, 4096, Division()).passes}
    # inputs: q, k, v, o, gate, up of 4096 and down of 14336; outputs: q, o, down 4096, k, v 1024, gate, up 14336
    assert (passes["adapter_input"].elements, passes["adapter_input"].calls) == (6 * 4096 + 14336, 7)
    assert (passes["adapter_output"].elements, passes["adapter_output"].calls) == (3 * 4096 + 2 * 1024 + 2 * 14336, 7)


def test_sequence_parallel_divides_norms_and_residuals() -> None:
    passes = {item.name: item.elements for item in operations("llama-3-8b", tensor_parallel=2).passes}
    divided = operations("llama-3-8b", tensor_parallel=2, sequence_parallel=True).passes
    assert passes["norm_rms"] == 8192
    assert {item.name: item.elements for item in divided}["norm_rms"] == 4096
