"""The back-of-envelope ledger: its arithmetic, its boundaries, and its sentences word for word."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest

from planner.architecture.activations import ActivationSettings, activations
from planner.architecture.size import architecture_from_size
from planner.envelope import (
    Envelope,
    advice,
    burst_book,
    checkpoints,
    envelope,
    envelope_answer,
    envelope_text,
    first_stage,
    gpus_needed,
)
from planner.errors import InputError
from planner.hardware_catalog import gpu
from planner.units import GIB, MIB

A100 = gpu("a100-sxm-80gb")
SEVEN = Envelope(7 * 10**9, 32, A100, 1, 32 * 375 * MIB)
SEVENTY = Envelope(70 * 10**9, 80, A100, 1, 60 * GIB)


def small(parameters: int, kept_whole: int, usable: int, gpus: int = 1, layers: int = 9) -> Envelope:
    """Bytes one can count by hand: 9 layers keep 4 checkpoints, so 9 bytes of activations leave 4."""
    return Envelope(parameters, layers, replace(A100, name="GPU", usable_memory=usable), gpus, kept_whole)


# 2 + 2 + 12 bytes: 16 x 7e9 / 2^30 = 104.3; 16 x 70e9 / 2^30 = 1043.1
@pytest.mark.parametrize(("found", "static"), [(SEVEN, "104.3"), (SEVENTY, "1043.1")])
def test_static_books_cost_16_bytes_per_parameter(found: Envelope, static: str) -> None:
    count = found.parameters
    assert list(found.books.values())[:3] == [2 * count, 2 * count, 12 * count]
    assert f"{found.static / GIB:.1f}" == static
    assert found.total == found.static + found.activations


# 32: √32 = 5.66, 6 + 1; 80: √80 = 8.94, 9 + 1; 36 is a square: 6 + 1; 2: √2 = 1.41, 2 + 1, but only 2 layers
@pytest.mark.parametrize(
    ("layers", "count"), [(1, 1), (2, 2), (3, 3), (4, 3), (5, 4), (32, 7), (36, 7), (37, 8), (80, 10), (126, 13)]
)
def test_checkpoints_by_square_root(layers: int, count: int) -> None:
    assert checkpoints(layers) == count


def test_share_that_checkpoints_keep() -> None:
    assert (SEVEN.kept_share, SEVENTY.kept_share) == (Fraction(7, 32), Fraction(1, 8))
    assert SEVEN.kept == 7 * 375 * MIB
    assert small(1, 10, 99).kept == 5  # 10 x 4/9 = 4.4, rounded up


# N = 10 on 4 GPUs: 160; 2 + 2 + 12/4 = 7 a parameter, 70; 2 + 14/4 = 5.5, 55; 16/4 = 4, 40
def test_stages_divide_optimizer_states_then_gradients_then_parameters() -> None:
    assert [small(10, 9, 1, gpus=4).sharded(stage) for stage in range(4)] == [160, 70, 55, 40]
    assert small(1, 9, 1, gpus=3).sharded(3) == 6  # 16/3 = 5.3, rounded up


@pytest.mark.parametrize(
    ("usable", "book"),
    [(19, "parameters"), (20, "gradients"), (39, "gradients"), (40, "optimizer_states"), (159, "optimizer_states"),
     (160, "activations"), (168, "activations"), (169, None)],
)  # fmt: skip
def test_book_at_which_the_column_outgrows_the_gpu(usable: int, book: str | None) -> None:
    assert burst_book(small(10, 9, usable)) == book  # 20 + 20 + 120 + 9


@pytest.mark.parametrize(
    ("usable", "beside", "stage"),
    [(160, 0, 0), (159, 0, 1), (70, 0, 1), (69, 0, 2), (55, 0, 2), (54, 0, 3), (40, 0, 3), (39, 0, None), (70, 1, 2)],
)
def test_first_stage_that_fits(usable: int, beside: int, stage: int | None) -> None:
    assert first_stage(small(10, 9, usable, gpus=4), beside) == stage


# 160 bytes over n: 4 x 40, 5 x 32; beside 8 bytes 40 leave 32; beside 40 nothing is left
@pytest.mark.parametrize(
    ("usable", "beside", "count"), [(160, 0, 1), (40, 0, 4), (39, 0, 5), (40, 8, 5), (40, 39, 160), (40, 40, None)]
)
def test_gpus_that_zero_3_needs(usable: int, beside: int, count: int | None) -> None:
    assert gpus_needed(small(10, 9, usable), beside) == count


def test_gpus_needed_are_the_fewest() -> None:
    needed = gpus_needed(SEVENTY, SEVENTY.kept)
    assert needed == 15
    assert first_stage(replace(SEVENTY, gpus=15), SEVENTY.kept) == 3
    assert first_stage(replace(SEVENTY, gpus=14), SEVENTY.kept) is None


def test_activations_are_those_of_a_model_of_that_size() -> None:
    shape = architecture_from_size(7 * 10**9, 32)
    layer = activations(shape, ActivationSettings(sequence_length=2048)).layers[0]
    found = envelope(7 * 10**9, 32)
    assert found.activations == 32 * layer.stored.at(2048)
    assert (found.gpu.key, found.gpus) == ("a100-sxm-80gb", 1)


def test_a_gpu_by_name_and_a_number_of_them() -> None:
    found = envelope(7 * 10**9, 32, gpu("rtx4090-24gb"), 4)
    assert (found.gpu.key, found.gpus) == ("rtx4090-24gb", 4)


def test_no_gpus() -> None:
    with pytest.raises(InputError) as caught:
        envelope(7 * 10**9, 32, None, 0)
    assert str(caught.value) == "gpus: 0 is not valid; expected a whole number, 1 or more"


def test_no_such_model() -> None:
    with pytest.raises(InputError) as caught:
        envelope(0, 32)
    assert str(caught.value) == "parameters: 0 is not valid; expected a whole number, 1 or more"


SEVEN_TEXT = """\
7 B parameters, 32 layers: 16-bit mixed precision with Adam

  activations           32 × 375.0 MiB =  11.7 GiB                                    ▒▒▒▒
  optimizer states      12 bytes × 7 B =  78.2 GiB           █████████████████████████
  gradients              2 bytes × 7 B =  13.0 GiB      █████
  parameters             2 bytes × 7 B =  13.0 GiB  ████
  static                16 bytes × 7 B = 104.3 GiB  ██████████████████████████████████
  one GPU                       usable    79.2 GiB  ─────────────────────────┤

Optimizer states: 4 bytes of 32-bit master copy and two moments of 4 bytes.
Activations: an estimate for micro-batch 1 and 2048 tokens, a Llama-like shape of this size, all its
  layers, nothing recomputed.
Logits, buffers and the allocator's margin are left out; `planner solve` counts them.

Checkpoints: ceil(√32) + 1 = 7 checkpoints keep about 22 % of the activations (7 / 32, 2.6 GiB) for
  one more forward pass, about 33 % more compute (Chen et al. 2016, arXiv:1604.06174; with one more
  for the last, partial segment).

On one NVIDIA A100 SXM 80 GB (79.2 GiB usable) the static books burst: 104.3 GiB. The column
  outgrows the GPU at the optimizer states.
More GPUs: ZeRO-3 needs 2 beside the 2.6 GiB of checkpoints: 16/2 bytes × 7 B = 52.2 GiB on each.
Offload: the optimizer in host memory leaves 2 bytes × 7 B = 13.0 GiB on the GPU (ZeRO-2), which
  fits; all hosts together hold 18 bytes × 7 B = 117.3 GiB (4 master copy, 8 moments, 4 gradients, 2
  buffer).
Unit price: moments in 8 bits make it (2 + 2 + 6.032) bytes × 7 B = 65.4 GiB, which fits on one GPU.
Quantization: a frozen 4-bit base (QLoRA) takes 0.5 bytes × 7 B = 3.3 GiB and fits on one GPU; its
  scales and the adapters come on top.
"""

SEVENTY_TEXT = """\
70 B parameters, 80 layers: 16-bit mixed precision with Adam

  activations           80 × 768.0 MiB =   60.0 GiB                                      ▒▒
  optimizer states     12 bytes × 70 B =  782.3 GiB           ███████████████████████████
  gradients             2 bytes × 70 B =  130.4 GiB      █████
  parameters            2 bytes × 70 B =  130.4 GiB  ████
  static               16 bytes × 70 B = 1043.1 GiB  ████████████████████████████████████
  one GPU                       usable     79.2 GiB  ──┤

Optimizer states: 4 bytes of 32-bit master copy and two moments of 4 bytes.
Activations: an estimate for micro-batch 1 and 2048 tokens, a Llama-like shape of this size, all its
  layers, nothing recomputed.
Logits, buffers and the allocator's margin are left out; `planner solve` counts them.

Checkpoints: ceil(√80) + 1 = 10 checkpoints keep about 13 % of the activations (10 / 80, 7.5 GiB)
  for one more forward pass, about 33 % more compute (Chen et al. 2016, arXiv:1604.06174; with one
  more for the last, partial segment).

On one NVIDIA A100 SXM 80 GB (79.2 GiB usable) the static books burst: 1043.1 GiB. The column
  outgrows the GPU at the parameters.
More GPUs: ZeRO-3 needs 14 for the static books and 15 beside the 7.5 GiB of checkpoints: 16/15
  bytes × 70 B = 69.5 GiB on each.
Offload: the optimizer in host memory leaves 2 bytes × 70 B = 130.4 GiB on the GPU (ZeRO-2), which
  does not fit; all hosts together hold 18 bytes × 70 B = 1173.5 GiB (4 master copy, 8 moments, 4
  gradients, 2 buffer).
Unit price: moments in 8 bits make it (2 + 2 + 6.032) bytes × 70 B = 654.0 GiB, which does not fit
  on one GPU.
Quantization: a frozen 4-bit base (QLoRA) takes 0.5 bytes × 70 B = 32.6 GiB and fits on one GPU; its
  scales and the adapters come on top.
"""


@pytest.mark.parametrize(("found", "text"), [(SEVEN, SEVEN_TEXT), (SEVENTY, SEVENTY_TEXT)], ids=["7e9", "70e9"])
def test_text(found: Envelope, text: str) -> None:
    assert envelope_text(found) == text


@pytest.mark.parametrize("layers", [1, 2, 80, 1000])
@pytest.mark.parametrize("parameters", [10**6, 125 * 10**6, 6_738_415_616, 10**13, 10**18])
@pytest.mark.parametrize("gpus", [1, 7, 4096])
def test_text_is_at_most_100_columns_wide(parameters: int, layers: int, gpus: int) -> None:
    found = Envelope(parameters, layers, gpu("rtx-pro-6000-96gb"), gpus, 10**6 * layers)
    assert max(len(line) for line in envelope_text(found).splitlines()) <= 100


def test_arrow_where_the_gpu_holds_more_than_all_books() -> None:
    found = Envelope(10**8, 12, A100, 1, 10**9)
    assert f"  one GPU                       usable    79.2 GiB  {'─' * 38}→\n" in envelope_text(found)


def test_more_checkpoints_than_layers() -> None:
    text = envelope_text(Envelope(10**8, 2, A100, 1, 10**9))
    assert "ceil(√2) + 1 = 3, but one a layer at most: 2 checkpoints keep about 100 % of the\n" in text
    assert "but one a layer at most: 1 checkpoint keeps" in envelope_text(Envelope(10**8, 1, A100, 1, 10**9))


# N = 10 on 4 GPUs: 160 bytes whole, 70 at stage 1; 79 - 70 = 9 hold all activations, 78 - 70 = 8 do not
def test_zero_stage_with_room_for_all_activations() -> None:
    assert advice(small(10, 9, 79, gpus=4))[:3] == [
        "On each of 4 GPU (79 B usable) the static books burst: 160 B. The column outgrows the GPU at the optimizer "
        "states.",
        "Redundancy: ZeRO-1 is the first stage that fits on 4 GPUs beside the 4 B of checkpoints: "
        "(2 + 2 + 12/4) bytes × 10 = 70 B of static books on each.",
        "Activations: 9 B are left; all 9 B fit.",
    ]


def test_zero_stage_with_room_for_checkpoints_only() -> None:
    assert advice(small(10, 9, 78, gpus=4))[1:3] == [
        "Redundancy: ZeRO-1 is the first stage that fits on 4 GPUs beside the 4 B of checkpoints: "
        "(2 + 2 + 12/4) bytes × 10 = 70 B of static books on each.",
        "Activations: 8 B are left; 9 B burst, and 4 B with 4 checkpoints fit.",
    ]


# 73 - 70 = 3 < 4 bytes of checkpoints: stage 1 fits alone, stage 2 (55) with them
def test_a_stage_that_leaves_no_room_for_checkpoints_is_passed_over() -> None:
    assert advice(small(10, 9, 73, gpus=4))[1] == (
        "Redundancy: ZeRO-2 is the first stage that fits on 4 GPUs beside the 4 B of checkpoints: "
        "(2 + 14/4) bytes × 10 = 55 B of static books on each."
    )


def test_no_stage_fits() -> None:
    assert advice(small(10, 9, 39, gpus=4))[1:3] == [
        "Redundancy: no ZeRO stage fits on 4 GPUs: ZeRO-3 leaves 16/4 bytes × 10 = 40 B on each.",
        "More GPUs: ZeRO-3 needs 5 beside the 4 B of checkpoints: 16/5 bytes × 10 = 32 B on each.",
    ]


# 43 bytes hold the 40 of ZeRO-3 but not the 4 of checkpoints too
def test_no_stage_fits_beside_checkpoints() -> None:
    assert advice(small(10, 9, 43, gpus=4))[1:3] == [
        "Redundancy: no ZeRO stage fits beside the 4 B of checkpoints on 4 GPUs: ZeRO-3 leaves 16/4 bytes × 10 = 40 B "
        "on each.",
        "More GPUs: ZeRO-3 needs 4 for the static books and 5 beside the 4 B of checkpoints: 16/5 bytes × 10 = 32 B on "
        "each.",
    ]


def test_checkpoints_that_fill_the_gpu() -> None:
    assert advice(small(10, 90, 40))[1] == (
        "More GPUs: ZeRO-3 needs 4 for the static books; the 40 B of checkpoints do not fit on any number, tensor "
        "parallelism divides them."
    )


# 24 - 4 = 20 bytes hold the 2 x 10 of parameters; 23 - 4 do not, but ZeRO-3 divides them by 4
@pytest.mark.parametrize(
    ("usable", "gpus", "left"),
    [
        (24, 4, "2 bytes × 10 = 20 B on the GPU (ZeRO-2), which fits"),
        (23, 4, "2/4 bytes × 10 = 5 B on the GPU (ZeRO-3), which fits"),
        (8, 4, "2/4 bytes × 10 = 5 B on the GPU (ZeRO-3), which does not fit"),
        (23, 1, "2 bytes × 10 = 20 B on the GPU (ZeRO-2), which does not fit"),
    ],
)
def test_optimizer_in_host_memory(usable: int, gpus: int, left: str) -> None:
    assert advice(small(10, 9, usable, gpus))[-3] == (
        f"Offload: the optimizer in host memory leaves {left}; all hosts together hold 18 bytes × 10 = 180 B (4 master "
        "copy, 8 moments, 4 gradients, 2 buffer)."
    )


# 10.032 x 1000 = 10032 bytes and 0.5 x 1000 = 500, each beside the 4 of checkpoints
@pytest.mark.parametrize(
    ("usable", "eight_bit", "four_bit"),
    [(10036, "fits", "fits"), (10035, "does not fit", "fits"), (503, "does not fit", "does not fit")],
)
def test_lower_unit_prices(usable: int, eight_bit: str, four_bit: str) -> None:
    assert advice(small(1000, 9, usable))[-2:] == [
        f"Unit price: moments in 8 bits make it (2 + 2 + 6.032) bytes × 1000 = 9.8 KiB, which {eight_bit} on one GPU.",
        f"Quantization: a frozen 4-bit base (QLoRA) takes 0.5 bytes × 1000 = 500 B and {four_bit} on one GPU; its "
        "scales and the adapters come on top.",
    ]


def test_checkpoints_cut_activations_that_burst() -> None:
    assert advice(small(10, 9, 164)) == [
        "On one GPU (164 B usable) the activations burst: 160 B of static books fit, 169 B with the activations do "
        "not.",
        "Checkpoints: 4 of them keep 4 B; 164 B in all fit.",
        "Accumulation: a larger batch runs as more micro-batches of 1, and no book grows.",
    ]


def test_static_books_make_room_where_checkpoints_are_not_enough() -> None:
    assert advice(small(10, 9, 163))[:3] == [
        "On one GPU (163 B usable) the activations burst: 160 B of static books fit, 169 B with the activations do "
        "not.",
        "Checkpoints: 4 of them keep 4 B; 164 B in all still burst, so the static books must make room.",
        "More GPUs: ZeRO-3 needs 2 beside the 4 B of checkpoints: 16/2 bytes × 10 = 80 B on each.",
    ]


# 178 - 160 = 18 bytes hold two sequences of 9
@pytest.mark.parametrize(("usable", "micro_batch"), [(169, 2), (177, 2), (178, 3)])
def test_nothing_bursts(usable: int, micro_batch: int) -> None:
    assert advice(small(10, 9, usable)) == [
        f"On one GPU ({usable} B usable) nothing bursts: 169 B.",
        f"The activations would burst first, at a micro-batch of about {micro_batch}; checkpoints cut them, and so do "
        "smaller micro-batches with more accumulation.",
    ]


def test_answer() -> None:
    found = small(10, 9, 43, gpus=4)
    answer = envelope_answer(found)
    assert json.loads(json.dumps(answer)) == {
        "status": "evaluated",
        "parameters": 10,
        "layers": 9,
        "books": {"parameters": 20, "gradients": 20, "optimizer_states": 120, "activations": 9},
        "static_bytes": 160,
        "total_bytes": 169,
        "checkpoints": 4,
        "activations_kept_share": 4 / 9,
        "activations_kept_bytes": 4,
        "recomputed_share": 1 / 3,
        "gpu": {"name": "a100-sxm-80gb", "count": 4, "usable_bytes": 43},
        "bursts": "optimizer_states",
        "zero": {
            "static_bytes_per_gpu": {"0": 160, "1": 70, "2": 55, "3": 40},
            "first_stage": 3,
            "first_stage_with_checkpoints": None,
            "gpus_needed": 4,
            "gpus_needed_with_checkpoints": 5,
        },
        "host_bytes": 180,
        "advice": advice(found),
    }


def test_answer_where_nothing_bursts() -> None:
    assert envelope_answer(small(10, 9, 169))["bursts"] is None
