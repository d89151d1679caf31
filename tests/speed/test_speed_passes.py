"""Traffic of memory-bound passes."""

from __future__ import annotations

from planner.speed.operations import LayerOperations, MemoryPass, Product
from planner.speed.passes import Traffic, layer_traffic, loss_cost, pass_cost

PRODUCTS = (Product("gate", 200, 100), Product("up", 200, 100, reads_input_first=False), Product("down", 100, 200))
WORK = LayerOperations(PRODUCTS, (), (MemoryPass("norm_rms", 100), MemoryPass("permute", 50, gathers=True)))


def traffic(direction: str, kernels: str, narrow: bool = False, casts: bool = False, added: float = 0) -> Traffic:
    return layer_traffic(WORK, direction, kernels, narrow, casts, added)


def test_elementwise_passes_and_gathers_apart() -> None:
    # norm 36 B x 100 by 7 kernels; permutation 16 B x 50 by 4
    assert traffic("forward", "huggingface") == Traffic(3600, 800, 0, 11)


def test_liger_replaces_norms_and_leaves_the_rest() -> None:
    assert pass_cost("norm_rms", "liger", "forward") == (4, 1)
    assert pass_cost("residual", "liger", "forward") == pass_cost("residual", "huggingface", "forward")


def test_casts_of_autocast_and_added_gradients_do_not_grow_with_tokens() -> None:
    # 60000 weights: 6 B each for the copy, and 8 B where gradients are added up
    assert traffic("forward", "megatron", casts=True).constant == 360_000
    assert traffic("backward", "megatron", casts=True, added=8).constant == 840_000


def test_narrow_copies_of_shared_inputs_are_made_once() -> None:
    # compiled: 6 B of inputs of 100 (gate and up) and 200 (down), above the norm's 4 B x 100; weights 5 B x 60000
    found = traffic("forward", "compiled", narrow=True)
    assert (found.per_token, found.constant) == (6 * 300 + 400, 300_000)


def test_narrow_copies_as_the_model_code_runs() -> None:
    # eager: 10 B of 100, 100 and 200
    assert traffic("forward", "huggingface", narrow=True).per_token == 10 * 400 + 3600


def test_narrow_weights_may_be_kept_for_the_step() -> None:
    """Transformer Engine makes them in the first micro-batch; inputs of 100 and 200 at 3 B, the norm at 4 B x 100."""
    found = traffic("forward", "megatron", narrow=True)
    assert (found.per_token, found.constant) == (3 * 300 + 400, 0)
    assert pass_cost("narrow_weight_of_the_step", "megatron", "forward") == (4, 1)
    assert pass_cost("narrow_weight_of_the_step", "compiled", "forward") == (0, 0)


def test_losses() -> None:
    assert loss_cost("standard", "forward") == (20, 6)
    assert loss_cost("kernel", "backward") == (4, 1)


def test_frozen_weights_in_4_bits_are_opened_in_every_pass() -> None:
    frozen = LayerOperations(
        (Product("gate", 200, 100, trained=False), Product("adapter", 8, 100, narrow=False)), (), ()
    )
    # 2.6 B x 20000; the adapter stays as it is
    assert layer_traffic(frozen, "backward", "compiled", dequantized=True) == Traffic(0, 0, 52_000, 1)


def test_each_call_of_a_pass_is_kernels_of_its_own() -> None:
    work = LayerOperations((), (), (MemoryPass("norm_rms", 100, calls=2),))
    # 36 B x 100 in all, by 2 x 7 kernels
    assert layer_traffic(work, "forward", "huggingface") == Traffic(3600, 0, 0, 14)


def test_a_scale_per_row_takes_two_copies() -> None:
    # inputs of 100 (gate and up) and 200 (down) at 8 B by 3 kernels, weights of 60000 at 3 B by 1: 400 B of the norm,
    # 300 x 8; 2 copies of inputs and 3 of weights; kernels 1 of the norm, 3 of the permutation, 2 x 3 + 3 x 1
    found = layer_traffic(WORK, "forward", "compiled", narrow=True, row_scaled=True)
    assert found == Traffic(400 + 2400, 600, 180_000, 13)
