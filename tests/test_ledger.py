"""Books over moments and stages, and what an allocator takes for them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.job import Job
from planner.layouts import STAGES, WHOLE
from planner.ledger import Capacity, DeviceLedger, Line, Moment, Shown, ledger, stage_ledgers
from planner.plan import Layout, Plan
from planner.terms import BOOKS, MOMENTS, PHASES
from tests.jobs import job, plan

MODEL = {"parameters": 100_000_000, "layers": 8, "vocabulary": 8000, "heads": 8}


def device(usable: int = 10_000, **moments: tuple[Line, ...]) -> DeviceLedger:
    """The ledger of a GPU with these lines; moments that are not named are empty."""
    found = tuple(Moment(name, moments.get(name, ())) for name in MOMENTS)
    return DeviceLedger("gpu", found, Capacity(usable, int(usable / 1.1)))


def pool(size: int, name: str = "tensors") -> Line:
    return Line(name, "activations", size)


def apart(size: int, name: str = "bucket") -> Line:
    return Line(name, "buffers", size, apart=True)


def kept(*idle: Line, **moments: tuple[Line, ...]) -> DeviceLedger:
    """The ledger of a GPU with blocks that are there at no moment."""
    return replace(device(**moments), idle=idle)


def reserve(size: int) -> Line:
    return Line("context", "reserve", size)


def test_the_peak_is_one_moment_never_a_sum() -> None:
    found = device(forward=(pool(300),), backward_end=(pool(200), apart(150)), optimizer_step=(pool(340),))
    assert (found.peak.name, found.peak.total, found.peak.phase) == ("backward_end", 350, "backward")
    assert found.peak.books == {**dict.fromkeys(BOOKS, 0), "activations": 200, "buffers": 150}
    assert list(found.phases) == list(PHASES)
    assert found.phase("optimizer_step").total == 340


def test_tensors_are_everything_but_the_reserve() -> None:
    assert device(forward=(pool(300), reserve(500)), loss=(pool(400),)).tensors() == 400


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        # one pool: 300 with a tenth of waste
        ({"forward": (pool(300),)}, 330),
        # the bucket of backward adds to the most that the pool takes in forward: 1.1 × 300 + 100
        ({"forward": (pool(300),), "backward_end": (pool(50), apart(100))}, 430),
        # the same bucket at two moments is one, at its largest
        ({"forward": (pool(300), apart(40)), "backward_end": (apart(100),)}, 430),
        # two buckets are two, also where they are never there together
        ({"forward": (pool(300),), "loss": (apart(70, "a"),), "backward_end": (apart(100, "b"),)}, 500),
        # two lines of one name at a moment: the larger stands for both in what adds, the tensors are 1.1 × 400
        ({"forward": (pool(200), apart(100), apart(100))}, 440),
        # the reserve is not the allocator's
        ({"forward": (pool(300), reserve(1000))}, 330),
    ],
)
def test_what_the_allocator_reserves(moments: dict[str, tuple[Line, ...]], expected: float) -> None:
    assert device(**moments).reserved(1.1) == pytest.approx(expected)


def test_a_block_that_is_idle_adds_to_what_is_reserved_and_to_no_moment() -> None:
    """1.1 × 300 + 80; with the bucket of the same name, which goes into the block, the larger of the two: + 100."""
    found = kept(apart(80), forward=(pool(300),))
    assert (found.peak.total, found.tensors(), found.reserved(1.1)) == (300, 300, pytest.approx(410))
    assert kept(apart(80), forward=(pool(200), apart(100)), loss=(pool(300),)).reserved(1.1) == pytest.approx(430)


def test_never_more_than_the_gpu_has_is_reserved() -> None:
    """1.1 × 900 = 990, of 1000 the context has 50; tensors that exceed what is left are counted whole."""
    assert device(1000, forward=(pool(900), reserve(50))).reserved(1.1) == 950
    assert device(1000, forward=(pool(980), reserve(50))).reserved(1.1) == 980


@pytest.mark.parametrize(("size", "verdict"), [(909, "fits"), (910, "risky"), (1000, "risky"), (1001, "no")])
def test_verdicts(size: int, verdict: str) -> None:
    """1000 usable bytes, of which 1000 / 1.1 = 909 are planned with."""
    assert device(1000, forward=(pool(size),)).verdict == verdict


def divided(layout: Layout, **values: object) -> tuple[Job, Plan]:
    """A job with one layout, and its plainest plan with some values replaced."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}
    found = job(model=MODEL, cluster=cluster, training={"runtime": "megatron"}).with_choices({"layout": (layout,)})
    return found, plan(found, layout=layout, **values)


def test_each_stage_has_books_of_its_own() -> None:
    """Table of 8000 rows on the first and on the last; two layers everywhere."""
    found, one = divided(Layout(pipeline=4))
    ledgers = stage_ledgers(found, one)
    assert tuple(ledgers) == STAGES
    layer, width = found.layer_kinds[0].parameters, found.architecture.hidden
    outside = sum(tensor.elements for tensor in found.architecture.outside)
    held = {
        stage: next(m for m in books["gpu"].moments if m.name == "forward").books["parameters"]
        for stage, books in ledgers.items()
    }
    assert held == {
        "first": 2 * (2 * layer + 8000 * width),
        "inner": 2 * 2 * layer,
        "last": 2 * (2 * layer + outside - 8000 * width),
    }


def test_the_ledger_is_that_of_the_stage_that_holds_the_most() -> None:
    found, one = divided(Layout(pipeline=4), checkpoint_interval=1, checkpoint_count=2)
    ledgers, largest = stage_ledgers(found, one), ledger(found, one)
    for name, books in largest.items():
        assert books.peak.total == max(ledgers[stage][name].peak.total for stage in STAGES)


def test_without_a_pipeline_there_is_one_ledger() -> None:
    found, one = divided(Layout(data=4))
    ledgers = stage_ledgers(found, one)
    assert tuple(ledgers) == (WHOLE,)
    assert ledger(found, one)["gpu"] == ledgers[WHOLE]["gpu"]


def test_lines_that_stand_apart_say_so_in_the_catalog() -> None:
    """DeepSpeed's flat gradients of the step are allocated whole, larger than any free block."""
    found = job()
    books = ledger(found, plan(found, zero_stage=2))["gpu"]
    step = next(moment for moment in books.moments if moment.name == "optimizer_step")
    assert {line.name for line in step.lines if line.apart} == {
        "flat gradients of the partition", "fp32 gradients of the partition",
    }  # fmt: skip


def test_what_tools_show() -> None:
    """60 of 80 bytes in tensors, 15 of them apart, and 10 of reserve: 45 x 1.2 + 15 = 69, less than 60 x 1.2 = 72.

    Of that 70 are there: the allocator is 2 short.
    """
    lines = (Line("pool", "activations", 45), Line("alone", "buffers", 15, apart=True), Line("context", "reserve", 10))
    found = DeviceLedger("gpu", (Moment("forward", lines),), Capacity(80, 70))
    assert found.shown(1.2) == Shown(allocated=60, reserved=70, device=80, short=2)
    assert found.shown(1.1) == Shown(allocated=60, reserved=66, device=76, short=0)
