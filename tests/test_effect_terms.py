"""Effects read into terms: sizes, shards, homes, widths and conditions, each on the smallest job where it bites."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from planner.effect_terms import Reader, allocation_terms, job_effects, pinned_bytes, power_of_two, unique
from planner.effects import Allocate, AnyEffect, AtLeast, AtMost, Format, Move, OneOf, Scale, Shard
from planner.errors import InputError
from planner.job import Job
from planner.plan import Layout
from planner.terms import MemoryTerm
from tests.jobs import job

TWO = Layout(data=2)
ONE: dict[str, Any] = {"layout": Layout()}


def allocate(**values: Any) -> Allocate:
    """Two bytes of each of the 30 million trainable parameters in the gradients, unless told otherwise."""
    given = {"name": "line", "book": "gradients", "bytes": 2, "of": "trainable", "moments": "training", **values}
    return Allocate(kind="allocate", **given)


def terms(*effects: AnyEffect, found: Job | None = None) -> tuple[MemoryTerm, ...]:
    """The terms of effects in the small job."""
    return allocation_terms(Reader(found or job(), effects))


def only(*effects: AnyEffect, found: Job | None = None) -> MemoryTerm:
    """The single term of effects."""
    (term,) = terms(*effects, found=found)
    return term


# ── sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("size", "expected"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (1 << 30, 1 << 30)])
def test_power_of_two(size: int, expected: int) -> None:
    assert power_of_two(size) == expected


@pytest.mark.parametrize(
    ("size", "pieces", "expected"),
    [
        (5, (3, 2), 6),  # 4 + 2
        (6, (3, 3), 8),  # 4 + 4
        (9, (9,), 16),  # one buffer of 9
        (8, (1,), 8),  # a power of two already
        (17, (8, 8, 1), 17),
        (14, (3, 3, 1), 18),  # twice as much of each: 8 + 8 + 2
        (7, (3, 3, 1), 9),
        (5, (3, 3), 8),  # two and a half bytes each are three
    ],
)
def test_pinned_bytes(size: int, pieces: tuple[int, ...], expected: int) -> None:
    assert pinned_bytes(size, pieces) == expected


def test_bytes_times_elements() -> None:
    """2 × 30e6 bytes; nothing is read to know them."""
    term = only(allocate())
    assert (term.name, term.device, term.book, term.scope, term.measures) == (
        "line",
        "gpu",
        "gradients",
        ("layout",),
        (),
    )
    assert term.value(ONE) == 60_000_000


def test_a_fraction_of_a_byte_is_rounded_up_once() -> None:
    """Half a byte of 30 000 001 parameters is 15 000 000.5."""
    found = job(model={"parameters": 30_000_001, "layers": 4, "vocabulary": 8000})
    assert only(allocate(bytes="1/2"), found=found).value(ONE) == 15_000_001


def test_a_plain_number_of_bytes() -> None:
    assert only(allocate(of="one", bytes=966)).value(ONE) == 966


def test_slopes_are_rounded_up_like_the_constant() -> None:
    """Two bytes of what is kept, less two bytes of each recomputed layer."""
    found = job()
    term = only(allocate(of="kept_gradients"), found=found)
    layer = found.layer_kinds[0].parameters
    assert term.measures == ("recomputed_layers",)
    all_kept = 2 * (30_000_000 - 8000 * found.architecture.hidden)
    assert [term.value({**ONE, "recomputed_layers": count}) for count in (0, 1, 4)] == [
        all_kept, all_kept - 2 * layer, all_kept - 8 * layer,
    ]  # fmt: skip


# ── widths ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("precision", "width", "expected"),
    [("bf16", "compute", 2), ("fp32", "compute", 4), ("bf16", "master", 4), ("fp16", "communication", 2),
     ("bf16", "optimizer_state", 8)],
)  # fmt: skip
def test_named_widths_follow_the_job(precision: str, width: str, expected: int) -> None:
    found = job(training={"precision": precision})
    assert only(allocate(bytes=width), found=found).value(ONE) == expected * 30_000_000


def test_a_format_stands_in_for_a_width() -> None:
    """One byte instead of two while stage 3 is on; other widths keep theirs, and the first format that acts counts."""
    stage = {"zero_stage": OneOf(values=(3,))}
    lean = Format(kind="format", width="gather", bytes="1", when=stage)
    other = Format(kind="format", width="gather", bytes="1/2")
    term = only(allocate(bytes="gather"), lean)
    assert term.scope == ("layout", "zero_stage")
    assert [term.value({**ONE, "zero_stage": found}) for found in (2, 3)] == [60_000_000, 30_000_000]
    assert only(allocate(bytes="compute"), lean).scope == ("layout",)
    both = only(allocate(bytes="gather"), lean, other)
    assert [both.value({**ONE, "zero_stage": found}) for found in (2, 3)] == [15_000_000, 30_000_000]


@pytest.mark.parametrize(("dtype", "expected"), [("bf16", 2), ("fp32", 4)])
def test_the_accumulation_width_is_a_choice(dtype: str, expected: int) -> None:
    term = only(allocate(bytes="accumulation"))
    assert term.scope == ("layout", "gradient_accumulation_dtype")
    assert term.value({**ONE, "gradient_accumulation_dtype": dtype}) == expected * 30_000_000


# ── shards and scales ────────────────────────────────────────────────────────────────────────────────────────────────

SHARD = Shard(kind="shard", book="gradients", axis="data", when={"zero_stage": [2, 3]})


@pytest.mark.parametrize(("stage", "expected"), [(0, 60_000_000), (1, 60_000_000), (2, 30_000_000), (3, 30_000_000)])
def test_a_sharded_book_is_divided_where_the_shard_acts(stage: int, expected: int) -> None:
    term = only(SHARD, allocate(over="gradients"))
    assert set(term.scope) == {"zero_stage", "layout"}
    assert term.value({"zero_stage": stage, "layout": TWO}) == expected


def test_a_share_is_rounded_up() -> None:
    """60e6 + 2 bytes over 4 ranks are 15 000 000.5."""
    found = job(model={"parameters": 30_000_001, "layers": 4, "vocabulary": 8000})
    term = only(SHARD, allocate(over="gradients"), found=found)
    assert term.value({"zero_stage": 2, "layout": Layout(data=4)}) == 15_000_001


def test_a_shard_of_another_book_divides_nothing() -> None:
    other = Shard(kind="shard", book="parameters", axis="data")
    assert only(other, allocate(over="gradients")).value(ONE) == 60_000_000


def test_a_scale_multiplies_the_persistent_part_only() -> None:
    """A quarter of 60e6 where the line is divided like its book; a buffer of the same book stays."""
    scale = Scale(kind="scale", book="gradients", factor="1/4", when={"optimizer_offload": "cpu"})
    persistent, buffer = terms(scale, allocate(over="gradients"), allocate(name="buffer"))
    assert persistent.value({**ONE, "optimizer_offload": "cpu"}) == 15_000_000
    assert persistent.value({**ONE, "optimizer_offload": "none"}) == 60_000_000
    assert buffer.scope == ("layout",) and buffer.value(ONE) == 60_000_000


def test_two_scales_multiply() -> None:
    half = Scale(kind="scale", book="gradients", factor=0.5)
    assert only(half, half, allocate(over="gradients")).value(ONE) == 15_000_000


# ── homes ────────────────────────────────────────────────────────────────────────────────────────────────────────────

MOVES = (
    Move(kind="move", book="gradients", to="host", when={"optimizer_offload": "cpu"}),
    Move(kind="move", book="gradients", to="nvme", when={"optimizer_offload": "nvme"}),
)


def test_a_line_at_home_stands_on_one_device() -> None:
    """60e6 bytes of one rank on the GPU; on host or NVMe those of both ranks of the node."""
    found = terms(*MOVES, allocate(device="home"))
    assert [term.device for term in found] == ["gpu", "host", "nvme"]
    sizes = {
        offload: [term.value({**ONE, "optimizer_offload": offload, "layout": TWO}) for term in found]
        for offload in ("none", "cpu", "nvme")
    }
    assert sizes == {"none": [60_000_000, 0, 0], "cpu": [0, 120_000_000, 0], "nvme": [0, 0, 120_000_000]}


def test_without_moves_home_is_the_gpu() -> None:
    assert only(allocate(device="home")).device == "gpu"


def test_host_lines_count_for_each_rank_of_a_node_unless_shared() -> None:
    """Two ranks: 2 × 60e6, or once."""
    assert only(allocate(device="host")).value({"layout": TWO}) == 120_000_000
    assert only(allocate(device="host", per="node")).value({"layout": TWO}) == 60_000_000


def test_pinned_host_memory_is_rounded_up_for_each_rank() -> None:
    """60e6 bytes are pinned as 2^26 = 67 108 864, for two ranks."""
    assert only(allocate(device="host", pinned="whole")).value({"layout": TWO}) == 2 * 67_108_864


def test_pinned_sub_groups_are_rounded_up_one_by_one() -> None:
    """4 bytes of 1e9 parameters in sub-groups of 100 million or more, on each of two ranks.

    Four of 137 million or more are pinned as 2^30 each, four of up to 111 million as 2^29, the last 182 016 as 2^20.
    """
    found = job(model={"parameters": 2_000_000_000, "layers": 4})
    term = only(allocate(device="host", pinned="sub_groups"), found=found)
    assert term.value({"layout": TWO, "sub_group": 100_000_000}) == 2 * (4 * (1 << 30) + 4 * (1 << 29) + (1 << 20))


def test_pinning_rounds_on_the_host_only() -> None:
    on_gpu, on_host, on_nvme = terms(*MOVES, allocate(device="home", pinned="whole"))
    assert on_gpu.value({**ONE, "optimizer_offload": "none", "layout": TWO}) == 60_000_000
    assert on_host.value({**ONE, "optimizer_offload": "cpu", "layout": TWO}) == 2 * 67_108_864
    assert on_nvme.value({**ONE, "optimizer_offload": "nvme", "layout": TWO}) == 120_000_000


# ── conditions ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("micro_batch", "expected"), [(1, 60_000_000), (2, 60_000_000), (4, 0)])
def test_gradient_accumulation_of_at_least_two(micro_batch: int, expected: int) -> None:
    """A batch of 8 on two ranks: 4, 2 and 1 micro-batches."""
    term = only(allocate(when={"gradient_accumulation": {"at_least": 2}}))
    assert term.scope == ("layout", "micro_batch")
    assert term.value({"layout": TWO, "micro_batch": micro_batch}) == expected


def test_at_most_is_the_other_side() -> None:
    term = only(allocate(when={"gradient_accumulation": {"at_most": 1}}))
    assert [term.value({"layout": TWO, "micro_batch": size}) for size in (2, 4)] == [0, 60_000_000]


def test_all_conditions_must_hold() -> None:
    term = only(allocate(when={"zero_stage": [1, 2], "data_parallel": {"at_least": 2}}))
    values = [(stage, Layout(data=ranks)) for stage in (0, 2) for ranks in (1, 2)]
    assert [term.value({"zero_stage": stage, "layout": layout}) for stage, layout in values] == [0, 0, 0, 60_000_000]


def test_an_unknown_name_in_a_condition() -> None:
    with pytest.raises(InputError) as caught:
        terms(allocate(when={"stage": 1}))
    assert str(caught.value) == "when.stage: unknown name 'stage' in a condition"


@pytest.mark.parametrize(
    ("test", "value", "expected"),
    [(AtLeast(at_least=2), 2, True), (AtLeast(at_least=2), 1, False), (AtLeast(at_least=2), "bf16", False),
     (AtMost(at_most=2), 2, True), (AtMost(at_most=2), 3, False), (OneOf(values=(1, "bf16")), "bf16", True),
     (OneOf(values=(1, "bf16")), 2, False)],
)  # fmt: skip
def test_tests_of_values(test: Any, value: object, expected: bool) -> None:
    assert test.admits(value) is expected


# ── the effects of a job ─────────────────────────────────────────────────────────────────────────────────────────────


def test_effects_of_a_technique_act_with_their_value_only() -> None:
    shards = [effect for effect in job_effects(job()) if isinstance(effect, Shard)]
    stages = {(effect.book, stage) for effect in shards for stage in effect.when["zero_stage"].values}  # type: ignore[union-attr]
    assert stages == {
        ("optimizer_states", 1), ("optimizer_states", 2), ("optimizer_states", 3),
        ("gradients", 2), ("gradients", 3), ("parameters", 3),
    }  # fmt: skip


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_effects_of_another_precision_are_left_out(precision: str) -> None:
    conditions = [effect.when["precision"] for effect in job_effects(job(training={"precision": precision}))
                  if "precision" in effect.when]  # fmt: skip
    assert conditions and all(test.admits(precision) for test in conditions)


def test_named_sets_of_moments() -> None:
    assert allocate(moments="step").moments == ("gradient_norm", "optimizer_step")
    assert allocate(moments=["load", "step"]).moments == ("load", "gradient_norm", "optimizer_step")
    assert allocate(bytes="1/3").bytes == Fraction(1, 3)


def test_unique_keeps_the_first_of_each() -> None:
    assert unique(["b", "a", "b", "c", "a"]) == ("b", "a", "c")
