"""Affine forms: bounds over boxes, dominance, and sums over points, each by hand."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy
import pytest

from planner.errors import InputError
from planner.forms import Form, Reader, affine, may_be_largest, memory_forms, time_forms, undominated
from planner.plan import whole
from planner.terms import MemoryTerm, Term, TimeTerm


@pytest.mark.parametrize(
    ("form", "least", "most"),
    [
        (Form(10, (0, 0)), 10, 10),
        (Form(10, (2, 0)), 12, 18),  # 10 + 2 × 1 and 10 + 2 × 4
        (Form(10, (-2, 0)), 2, 8),  # 10 − 2 × 4 and 10 − 2 × 1
        (Form(10, (2, -3)), 6, 18),  # 10 + 2 × 1 − 3 × 2 and 10 + 2 × 4 − 0
    ],
)
def test_bounds_over_boxes(form: Form, least: int, most: int) -> None:
    """The first measure lies in 1 to 4, the second in 0 to 2."""
    boxes = ((1, 4), (0, 2))
    assert (form.least(boxes), form.most(boxes)) == (least, most)


def test_forms_add() -> None:
    assert Form(1, (2, 3)).plus(Form(10, (20, -3))) == Form(11, (22, 0))


@pytest.mark.parametrize(
    ("forms", "kept"),
    [
        # 10 is above 3x at x = 0 and below it at 4: both can be the largest.
        ([Form(10, (0,)), Form(0, (3,))], {Form(10, (0,)), Form(0, (3,))}),
        # 5 + x is at most 9 on 0 to 4.
        ([Form(10, (0,)), Form(5, (1,))], {Form(10, (0,))}),
        # 6 + x is 10 at 4: never above.
        ([Form(10, (0,)), Form(6, (1,))], {Form(10, (0,))}),
        # 7 + x is 11 at 4.
        ([Form(10, (0,)), Form(7, (1,))], {Form(10, (0,)), Form(7, (1,))}),
        # Equal forms stay once.
        ([Form(1, (1,)), Form(1, (1,))], {Form(1, (1,))}),
        # Of parallel lines the upper one stays.
        ([Form(1, (-1,)), Form(2, (-1,)), Form(0, (-1,))], {Form(2, (-1,))}),
    ],
)
def test_dominance(forms: list[Form], kept: set[Form]) -> None:
    found = undominated(forms, ((0, 4),))
    assert set(found) == kept and len(found) == len(kept)


def test_a_body_is_read_at_zero_and_one() -> None:
    """7 + 3 layers × micro-batch 2 at each recomputed layer; the measure it does not name has no slope."""
    term = Term("line", ("micro_batch",), ("layers",), lambda v: 7 + 3 * whole(v, "micro_batch") * whole(v, "layers"))
    assert affine(term, {"micro_batch": 2}, ("checkpoints", "layers")) == Form(7, (0, 6))


# ── sums over points ─────────────────────────────────────────────────────────────────────────────────────────────────


def memory(name: str, moments: tuple[str, ...], constant: int, slope: int, device: str = "gpu") -> MemoryTerm:
    """`constant` × micro_batch + `slope` × layers bytes."""
    return MemoryTerm(
        name, ("micro_batch",), ("layers",), lambda v: constant * whole(v, "micro_batch") + slope * whole(v, "layers"),
        device, "activations", moments,
    )  # fmt: skip


def time(window: str, lane: str, constant: int, slope: int = 0) -> TimeTerm:
    """`constant` + `slope` × layers microseconds."""
    return TimeTerm("work", (), ("layers",), lambda v: constant + slope * whole(v, "layers"), window, lane)


def box(*ends: int) -> Any:
    """One end of the box of the one measure at each point."""
    return numpy.array([[end] for end in ends], dtype=numpy.int64)


def test_terms_add_up_by_place() -> None:
    """Two terms in forward, one of them in loss too, at micro-batches 1 and 3."""
    reader = Reader([memory("a", ("forward", "loss"), 10, 2), memory("b", ("forward",), 5, -1)], ["layers"])
    assert reader.places == [("gpu", "forward whole"), ("gpu", "loss whole")]
    sums = reader.sums([{"micro_batch": 1}, {"micro_batch": 3}])
    assert sums.tolist() == [[[15, 1], [10, 2]], [[45, 1], [30, 2]]]


def test_a_term_is_read_once_for_each_combination_of_its_scope() -> None:
    read: list[int] = []

    def body(values: object) -> int:
        read.append(1)
        return 7

    reader = Reader([MemoryTerm("a", ("micro_batch",), (), body, "gpu", "buffers", ("loss",))], ["layers"])
    reader.sums([{"micro_batch": 1}, {"micro_batch": 1}, {"micro_batch": 2}])
    assert len(read) == 2


def test_forms_of_the_moments_that_can_be_the_peak() -> None:
    """Forward 15 + x, loss 10 + 2x. On 0 to 4 forward is above loss; on 0 to 8 loss reaches 26 against 23."""
    reader = Reader([memory("a", ("forward", "loss"), 10, 2), memory("b", ("forward",), 5, -1)], ["layers"])
    sums = reader.sums([{"micro_batch": 1}, {"micro_batch": 1}])
    small, large = memory_forms(reader, sums, box(0, 0), box(4, 8))
    assert small == {"gpu": (Form(15, (1,)),)}
    assert set(large["gpu"]) == {Form(15, (1,)), Form(10, (2,))}


def test_devices_keep_their_own_forms() -> None:
    reader = Reader([memory("a", ("loss",), 10, 0), memory("b", ("loss",), 3, 0, "host")], ["layers"])
    (found,) = memory_forms(reader, reader.sums([{"micro_batch": 2}]), box(0), box(4))
    assert found == {"gpu": (Form(20, (0,)),), "host": (Form(6, (0,)),)}


def test_each_window_takes_its_longest_lane() -> None:
    """Forward 10 beside 4; backward 20 + 5x beside 30, with 2 serial: 10 + 2 + max(20 + 5x, 30)."""
    reader = Reader(
        [
            time("forward", "compute", 10), time("forward", "communication", 4), time("backward", "compute", 20, 5),
            time("backward", "communication", 30), time("backward", "serial", 2),
        ],
        ["layers"],
    )  # fmt: skip
    (found,) = time_forms(reader, reader.sums([{}]), box(0), box(4))
    assert set(found) == {Form(32, (5,)), Form(42, (0,))}
    (never,) = time_forms(reader, reader.sums([{}]), box(0), box(2))
    assert set(never) == {Form(42, (0,))} or set(never) == {Form(32, (5,)), Form(42, (0,))}  # equal at 2


@pytest.mark.parametrize("seed", range(20))
def test_what_is_dropped_is_never_the_largest(seed: int) -> None:
    """Drawn forms of two measures at every corner and inside their boxes."""
    draw = Random(seed)
    rows = [[draw.randint(-50, 50) for _ in range(3)] for _ in range(draw.randint(1, 6))]
    forms = [Form(row[0], (row[1], row[2])) for row in rows]
    boxes = ((0, draw.randint(0, 6)), (1, draw.randint(1, 6)))
    low, high = (numpy.array([[end[side] for end in boxes]]) for side in (0, 1))
    keep = may_be_largest(numpy.array([rows]), low, high)[0]
    for kept in (undominated(forms, boxes), [form for form, stays in zip(forms, keep, strict=True) if stays]):
        for x in range(boxes[0][0], boxes[0][1] + 1):
            for y in range(boxes[1][0], boxes[1][1] + 1):
                here = ((x, x), (y, y))
                assert max(form.least(here) for form in kept) == max(form.least(here) for form in forms)


def test_numbers_beyond_exact_sums_are_refused_by_name() -> None:
    reader = Reader([memory("optimizer moments", ("loss",), 2**56, 0)], ["layers"])
    with pytest.raises(InputError) as caught:
        reader.sums([{"micro_batch": 1}])
    assert str(caught.value) == "optimizer moments is beyond what can be planned exactly; expected a smaller job"
