"""`planner.runtime.apply` on real Hugging Face models: which layers recompute, and that nothing but memory changes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
import transformers

from planner.errors import InputError
from planner.runtime import apply

LAYERS = 6


def llama(**changes: Any) -> Any:
    """A Llama of six layers, the same weights every time."""
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS, num_attention_heads=4, vocab_size=101,
        use_cache=False, **changes,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).train()


def forwards(model: Any) -> Counter[int]:
    """Counts the forward passes of each layer's MLP from now on."""
    counted: Counter[int] = Counter()
    for index, layer in enumerate(model.model.layers):
        layer.mlp.register_forward_pre_hook(lambda *_, index=index: counted.update([index]))
    return counted


def step(model: Any) -> tuple[float, list[Any]]:
    """Loss and gradients of one forward and backward pass."""
    model.zero_grad()
    torch.manual_seed(1)
    tokens = torch.randint(0, 101, (2, 20))
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    return loss.item(), [parameter.grad for parameter in model.parameters()]


def assert_same(one: tuple[float, list[Any]], other: tuple[float, list[Any]], tolerance: float = 0.0) -> None:
    assert one[0] == pytest.approx(other[0], rel=tolerance or 1e-12)
    for ours, theirs in zip(one[1], other[1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("count", "interval"), [(0, 0), (1, 1), (4, 1), (6, 1), (2, 2), (1, 3), (2, 3), (1, 6)])
def test_the_first_segments_are_recomputed_and_nothing_else(count: int, interval: int) -> None:
    model = llama()
    assert apply(model, {"checkpoint_count": count, "checkpoint_interval": interval}) is model
    counted = forwards(model)
    found = step(model)
    inside = count * interval
    assert [counted[index] for index in range(LAYERS)] == [2] * inside + [1] * (LAYERS - inside)
    assert_same(found, step(llama()))


def test_a_later_plan_replaces_the_first() -> None:
    model = apply(llama(), {"checkpoint_count": 6, "checkpoint_interval": 1})
    counted = forwards(apply(model, {"checkpoint_count": 1, "checkpoint_interval": 2}))
    step(model)
    assert [counted[index] for index in range(LAYERS)] == [2, 2, 1, 1, 1, 1]


def test_two_steps_and_evaluation_between_them() -> None:
    model, plain = apply(llama(), {"checkpoint_count": 2, "checkpoint_interval": 3}), llama()
    for _ in range(2):
        assert_same(step(model), step(plain))
        with torch.no_grad():
            tokens = torch.arange(12)[None]
            torch.testing.assert_close(model.eval()(tokens).logits, plain.eval()(tokens).logits)
        model.train()
        plain.train()


def test_segments_keep_only_their_inputs() -> None:
    """Elements saved for backward inside the layers: with three checkpoints of two layers, three hidden states."""
    kept: list[int] = []

    def pack(tensor: Any) -> Any:
        kept.append(tensor.numel() if tensor.shape[-1] == 96 else 0)  # the MLP's width
        return tensor

    for plan, found in (({}, True), ({"checkpoint_count": 3, "checkpoint_interval": 2}, False)):
        kept.clear()
        model = apply(llama(), plan)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            model(input_ids=torch.ones(1, 8, dtype=torch.long))
        assert any(kept) == found


@pytest.mark.parametrize("count", [0, 1, 3])
def test_offloaded_activations_give_the_same_gradients(count: int) -> None:
    plan = {"checkpoint_count": count, "checkpoint_interval": 2 if count else 0, "activation_offload": "cpu"}
    assert_same(step(apply(llama(), plan)), step(llama()))


def products(plan: dict[str, Any]) -> tuple[int, tuple[float, list[Any]]]:
    """Matrix products of one step, and its loss and gradients."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.number += function is torch.ops.aten.mm.default
            return function(*args, **(kwargs or {}))

    model = apply(llama(), plan)
    with Count() as count:
        found = step(model)
    return count.number, found


def test_selective_recomputation_keeps_every_second_product() -> None:
    """Seven products a layer: nothing needs the last one again, and selective keeps the other odd ones."""
    whole = {"checkpoint_count": 6, "checkpoint_interval": 1}
    counts = {name: products({**whole, "recompute_policy": name}) for name in ("full", "selective")}
    none = products({})
    assert counts["full"][0] - none[0] == 6 * 6
    assert counts["selective"][0] - none[0] == 6 * 3
    assert_same(counts["selective"][1], none[1])


def test_chunked_loss() -> None:
    """38 labels in chunks of 16: two whole chunks and one of 6."""
    from planner.runtime.losses import chunk_the_loss

    model = apply(llama(), {"plan": {"checkpoint_count": 0}, "training": {"loss": "chunked"}})
    assert_same(step(model), step(llama()), 1e-5)
    chunk_the_loss(model, tokens=16)
    assert_same(step(apply(model, {})), step(llama()), 1e-5)
    assert model(input_ids=torch.ones(1, 4, dtype=torch.long)).logits.shape == (1, 4, 101)


@pytest.mark.parametrize("tiles", [4, 16])
def test_tiles_of_feed_forward_blocks(tiles: int) -> None:
    """The rows of a step in as many parts as they fill; called again with one tile the model is its own."""
    pytest.importorskip("deepspeed")
    assert_same(step(apply(llama(), {"mlp_tiles": tiles})), step(llama()), 1e-5)
    both = {"mlp_tiles": tiles, "checkpoint_count": 3, "checkpoint_interval": 2}
    assert_same(step(apply(llama(), both)), step(llama()), 1e-5)
    assert products(both)[0] > products({"checkpoint_count": 3, "checkpoint_interval": 2})[0]
    again = apply(apply(llama(), both), {})
    assert not any("forward" in block.__dict__ for block in again.modules())


def test_a_model_without_blocks_to_tile() -> None:
    with pytest.raises(InputError) as caught:
        apply(torch.nn.Linear(2, 2), {"mlp_tiles": 4})
    assert str(caught.value) == (
        "mlp_tiles: Linear has no feed-forward blocks that can be tiled; expected a model of transformers whose blocks "
        "have gate_proj, up_proj, down_proj"
    )


def test_more_checkpoints_than_layers() -> None:
    with pytest.raises(InputError) as caught:
        apply(llama(), {"checkpoint_count": 4, "checkpoint_interval": 2})
    assert str(caught.value) == "checkpoint_count: the plan checkpoints 4 × 2 layers, and the model has 6"


def test_a_model_whose_layers_cannot_be_checkpointed() -> None:
    with pytest.raises(InputError) as caught:
        apply(torch.nn.Linear(2, 2), {"checkpoint_count": 1, "checkpoint_interval": 1})
    assert str(caught.value) == (
        "checkpoint_count: Linear has no layers that transformers can checkpoint; expected a model of transformers 5 "
        "whose layers are GradientCheckpointingLayer"
    )


@pytest.mark.parametrize("family", ["qwen3", "gemma2", "gpt2", "mixtral"])
def test_other_families(family: str) -> None:
    """Masks per kind of layer, layers with several inputs, experts."""
    shape = {
        "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 101, "head_dim": 16, "use_cache": False, "attention_dropout": 0.0,
        "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "pad_token_id": 0, "num_local_experts": 4,
    }  # fmt: skip
    models = []
    for _ in range(2):
        torch.manual_seed(0)
        config = transformers.AutoConfig.for_model(family, **shape)
        models.append(transformers.AutoModelForCausalLM.from_config(config).train())
    apply(models[0], {"checkpoint_count": 2, "checkpoint_interval": 2})
    assert_same(step(models[0]), step(models[1]), 1e-6)
