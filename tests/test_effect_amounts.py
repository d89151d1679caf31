"""Effects read into terms, further: runtimes, parts of sub-groups, tokens, experts, stages, and whole bytes."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from planner.effect_terms import Reader, allocation_terms, job_effects
from planner.effects import Allocate, AnyEffect, Move, Part, Scale, Shard
from planner.errors import InputError
from planner.job import Job
from planner.plan import Layout
from planner.quantities import BY_NAME
from planner.share import share
from planner.terms import MemoryTerm
from tests.jobs import job

ALONE: dict[str, Any] = {"layout": Layout()}
GROUPS = {"sub_group": 100_000_000}
SHARD = Shard(kind="shard", book="gradients", axis="data")
# 250 million elements are three sub-groups of 100 million, the last of them half full.
HALF_FULL = {"parameters": 250_000_000, "layers": 4, "vocabulary": 8000, "heads": 8}


def allocate(**values: Any) -> Allocate:
    """Two bytes of each trainable parameter in the gradients, unless told otherwise."""
    given = {"name": "line", "book": "gradients", "bytes": 2, "of": "trainable", "moments": "training", **values}
    return Allocate(kind="allocate", **given)


def terms(found: Job, *effects: AnyEffect, stage: str = "whole") -> tuple[MemoryTerm, ...]:
    return allocation_terms(Reader(found, effects, stage))


# ── which act ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_effects_of_another_runtime_are_left_out() -> None:
    lines = (allocate(name="other", runtime="ddp"), allocate(name="own", runtime=["deepspeed", "ddp"]), allocate())
    found = job()
    found = replace(found, runtime=found.runtime.model_copy(update={"effects": lines}))
    names = [effect.name for effect in job_effects(found)[:2] if isinstance(effect, Allocate)]
    assert names == ["own", "line"]


def test_an_unknown_quantity() -> None:
    with pytest.raises(InputError) as caught:
        terms(job(), allocate(of="weights"))
    assert str(caught.value) == f"unknown quantity 'weights'; expected one of {', '.join(BY_NAME)}"


def test_a_divided_book_depends_on_the_layout() -> None:
    found = job()
    assert Reader(found, (SHARD,)).divisor("gradients")[0] == ("layout",)
    assert Reader(found, ()).divisor("gradients")[0] == ()


# ── parts of the sub-groups ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("percentage", "counted"),
    [
        (0, Fraction(0)),
        (33, Fraction(0)),  # 0.99 of a sub-group is none
        (50, Fraction(100, 250)),
        (90, Fraction(200, 250)),
        (100, Fraction(1)),  # three whole ones are more than there is
    ],
)
def test_a_part_is_of_whole_sub_groups(percentage: int, counted: Fraction) -> None:
    """Two bytes of the counted ones on the GPU, and of the others with `rest`."""
    found = job(model=HALF_FULL)
    for rest, part in (False, counted), (True, 1 - counted):
        (term,) = terms(found, allocate(part=Part(choice="optimizer_on_gpu", rest=rest)))
        assert term.scope == ("layout", "sub_group", "optimizer_on_gpu")
        assert term.value({**ALONE, **GROUPS, "optimizer_on_gpu": percentage}) == part * 500_000_000


def test_a_part_of_a_partition() -> None:
    """Of 125 million elements on each of two ranks 100 million are one of two sub-groups."""
    (term,) = terms(job(model=HALF_FULL), SHARD, allocate(over="gradients", part=Part(choice="optimizer_on_gpu")))
    assert term.value({"layout": Layout(data=2), **GROUPS, "optimizer_on_gpu": 50}) == 200_000_000


def test_what_is_not_moved_stays_on_the_gpu() -> None:
    """Of 500 MB the 40 % of one sub-group stay, the rest of both ranks goes to the host; scales act there too."""
    found = job(model=HALF_FULL)
    move = Move(kind="move", book="gradients", to="host", part=Part(choice="optimizer_on_gpu", rest=True))
    values = {**ALONE, **GROUPS, "optimizer_on_gpu": 50}
    sizes = {term.device: term.value(values) for term in terms(found, move, allocate(device="home"))}
    assert sizes == {"gpu": 200_000_000, "host": 2 * 300_000_000}
    quarter = Scale(kind="scale", book="gradients", factor="1/4")
    sizes = {term.device: term.value(values) for term in terms(found, move, quarter, allocate(device="home"))}
    assert sizes == {"gpu": 50_000_000, "host": 2 * 75_000_000}


# ── tokens, experts, stages ──────────────────────────────────────────────────────────────────────────────────────────


def test_bytes_of_each_token() -> None:
    """Two bytes of a stage's input and of its output's gradient for 3 x 512 tokens."""
    found = job()
    (term,) = terms(found, allocate(of="stage_messages"))
    assert term.scope == ("layout", "micro_batch")
    assert term.value({**ALONE, "micro_batch": 3}) == 2 * 2 * found.architecture.hidden * 3 * 512


def test_outputs_of_the_micro_batches_under_way() -> None:
    """Four stages: the first has four outputs to keep, the second three; of two stages none is an inner one."""
    found = job(cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 4}, training={"runtime": "megatron"})
    found, output = found.with_choices({"layout": (Layout(pipeline=4),)}), 2 * found.architecture.hidden * 512
    for stage, times in ("first", 4), ("inner", 3):
        (term,) = terms(found, allocate(of="stage_output"), stage=stage)
        assert term.value({"layout": Layout(pipeline=4), "micro_batch": 1}) == times * output
    (term,) = terms(found, allocate(of="trainable"), stage="inner")
    assert term.value({"layout": Layout(pipeline=2)}) == 0


def test_experts_count_once_for_each_copy() -> None:
    """Two ranks hold four of eight experts each: what both share is the rest once and all eight experts."""
    found, layout = job(model="mixtral-8x7b"), Layout(expert=2, data=2)
    part, values = share(found, layout), {"layout": layout}
    shard = Shard(kind="shard", book="parameters", axis="data")
    (divided,) = terms(found, shard, allocate(book="parameters", of="parameters", over="parameters"))
    (alone,) = terms(found, allocate(book="parameters", of="parameters"))
    assert divided.value(values) == part.parameters + part.experts()
    assert alone.value(values) == 2 * part.parameters


def test_measures_are_those_of_the_stage() -> None:
    found = job(training={"runtime": "megatron"}).with_choices({"layout": (Layout(pipeline=2),)})
    (term,) = terms(found, allocate(of="kept_gradients"), stage="last")
    assert term.measures == ("recomputed_layers@last",)
    assert term.stage == "last"


def test_bytes_are_whole_before_they_are_counted() -> None:
    """A third of a byte of each element that is kept, less a third of each of a layer that is not, both rounded up."""
    found = job()
    _, _, amount = Reader(found, ()).amount("kept_gradients", Fraction(1, 7), None, {})
    kept, layer = BY_NAME["kept_gradients"].elements(share(found, Layout()), {}), found.layer_kinds[0].parameters
    assert kept % 7 and layer % 7
    assert amount({**ALONE, "recomputed_layers": 1}) == -(-kept // 7) - layer // 7


# ── devices ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_line_apart_with_its_source() -> None:
    (term,) = terms(job(), allocate(apart=True, source="here"))
    assert (term.apart, term.source) == (True, "here")


def test_nothing_is_pinned_where_there_is_nothing() -> None:
    (term,) = terms(job(), allocate(device="host", pinned="whole", when={"zero_stage": [2]}))
    assert [term.value({**ALONE, "zero_stage": stage}) for stage in (1, 2)] == [0, 2 * 67_108_864]


def test_one_buffer_is_pinned_as_one() -> None:
    """500 MB whole; 203, 207 and 90 MB in sub-groups of 101, 104 and 45 million elements; 284 and 216 MB in others."""
    found = job(model=HALF_FULL)
    (whole,), (pieces,) = (terms(found, allocate(device="host", pinned=way)) for way in ("whole", "sub_groups"))
    assert whole.value(ALONE) == 2 * (1 << 29)
    assert pieces.value({**ALONE, **GROUPS}) == 2 * (2 * (1 << 28) + (1 << 27))
    assert pieces.value({**ALONE, "sub_group": 1 << 27}) == 2 * ((1 << 29) + (1 << 28))
