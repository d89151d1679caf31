"""From a job file to a job: what is trained, how it runs, which degrees are fixed."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.layouts import layouts
from planner.plan import Layout
from tests.jobs import DATA, job


def message(**sections: Any) -> str:
    """The whole message without the file."""
    with pytest.raises(InputError) as caught:
        job(**sections)
    return str(caught.value).replace(f"{DATA / 'job.yaml'}:", "")


def test_adapters_reach_the_tensors_and_the_activations() -> None:
    found = job(training={"method": {"lora": {"rank": 4, "targets": ["q", "v"]}}})
    assert (found.settings.method, found.settings.lora_rank, found.settings.lora_targets) == ("lora", 4, ("q", "v"))
    adapters = [tensor for tensor in found.layer_kinds[0].tensors if tensor.trainable]
    assert [tensor.name.split(".")[1] for tensor in adapters] == ["q_proj", "q_proj", "v_proj", "v_proj"]


def test_decomposed_adapters_and_trained_tables() -> None:
    method = {"dora": {"rank": 4, "train_embeddings": True}}
    found = job(training={"method": method})
    assert found.training.method == "dora"
    assert {tensor.role for tensor in found.architecture.outside if tensor.trainable} == {"embedding", "head"}
    assert any(tensor.name.endswith("lora_magnitude") for tensor in found.layer_kinds[0].tensors)


def test_frozen_models_are_counted_without_adapters() -> None:
    """`same` is the model without its adapters."""
    plain = job().architecture.parameters
    found = job(training={"method": {"lora": {"rank": 4}}, "frozen_models": ["same", "same"]})
    assert found.frozen_models == 2 * plain


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({}, ("huggingface", "standard")),
        ({"kernels": "compiled", "loss": "kernel"}, ("compiled", "kernel")),
        # a runtime brings its own layers, a job may name others
        ({"runtime": "megatron"}, ("megatron", "standard")),
        ({"runtime": "megatron", "kernels": "huggingface"}, ("huggingface", "standard")),
    ],
)
def test_kernels_and_loss(training: dict[str, Any], expected: tuple[str, str]) -> None:
    found = job(training=training)
    assert (found.settings.kernels, found.settings.loss) == expected
    assert (found.training.kernels, found.training.loss) == expected


def test_degrees_are_named_under_choices() -> None:
    """Two GPUs: deepspeed divides tensors where it is asked to."""
    assert layouts(job()) == (Layout(data=2),)
    divided = Layout(tensor=2, data=1, whole_stream=True)
    assert layouts(job(choices={"tensor_parallel": 2})) == (divided,)
    assert layouts(job(choices={"tensor_parallel": [1, 2]})) == (Layout(data=2), divided)


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"training": {"kernels": "trition"}},
         "11:12: training.kernels: unknown kernels 'trition'; expected one of huggingface, liger, megatron, compiled"),
        ({"training": {"loss": "kernl"}},
         "11:9: training.loss: unknown loss 'kernl'; expected one of standard, chunked, fused, kernel; "
         "did you mean 'kernel'?"),
        ({"training": {"frozen_models": "same"}},
         "11:18: training.frozen_models: 'same' is text; expected a list"),
        ({"training": {"frozen_models": ["llama-4-9z"]}},
         "12:5: training.frozen_models[0]: unknown model 'llama-4-9z'; expected a key of catalogs/models.yaml, "
         "a path to a config.json, or {parameters: N, layers: L}; did you mean 'llama-3-8b'?"),
        ({"training": {"method": {"lora": {"rank": 4, "targets": ["q", "x"]}}}},
         "16:9: training.method.lora.targets[1]: 'x' is not valid; expected one of q, k, v, o, gate, up, down"),
        ({"training": {"runtime": "megatron"}, "choices": {"tensor_parallel": 0}},
         "13:20: choices.tensor_parallel: '0' is no value of tensor_parallel; expected a whole number, 1 or more"),
        ({"training": {"runtime": "megatron", "fp8_scaling": "row"}},
         "12:16: training.fp8_scaling: Transformer Engine has no scale for each row; expected tensor; "
         "kernels: compiled, as torchao runs it"),
        ({"choices": {"pipeline_parallel": 2}},
         "12:3: choices.pipeline_parallel: deepspeed has no pipeline_parallel; "
         "expected one of tensor_parallel, sequence_parallel"),
        ({"choices": {"layout": 2}},
         "12:11: choices.layout: the layout is fixed by its degrees; "
         "expected one of tensor_parallel, pipeline_parallel, sequence_parallel, expert_parallel, virtual_stages"),
    ],
)  # fmt: skip
def test_mistakes(sections: dict[str, Any], expected: str) -> None:
    assert message(**sections) == expected
