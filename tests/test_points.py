"""Points: inner choices, rows of relations, legal combinations and their order, each by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.points import enumerate_points, inner_choices, outer_space
from planner.specification import specify
from tests.jobs import PLAIN, job

ONE = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1,
       "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip

SIX = {**ONE, "micro_batch": [1, 3, 4], "optimizer_offload": ["none", "cpu"], "checkpoint_interval": 0}


def test_the_rows_of_a_job_with_four_layers() -> None:
    """Interval 0 has count 0; intervals 1, 2, 3, 4 have counts up to 4, 2, 1, 1: (recomputed, checkpoints)."""
    points = enumerate_points(specify(job(choices=ONE)))
    assert points.measures == ("recomputed_layers", "checkpoints")
    measures = {
        key: [row[len(points.inner) :] for row in relation.rows] for key, relation in points.relations.items()
    }
    assert measures == {
        (0,): [(0, 0)],
        (1,): [(1, 1), (2, 2), (3, 3), (4, 4)],
        (2,): [(2, 1), (4, 2)],
        (3,): [(3, 1)],
        (4,): [(4, 1)],
    }
    assert {key: relation.boxes for key, relation in points.relations.items()}[(2,)] == ((2, 4), (1, 2))
    assert len(points.points) == 5


def test_a_key_without_rows_has_no_relation() -> None:
    """Five layers do not fit in a segment of a model of four: the rules leave no count for interval 5."""
    relations = enumerate_points(specify(job(choices={**ONE, "checkpoint_interval": [1, 5]}))).relations
    assert list(relations) == [(1,)] and len(relations) == 1
    assert (5,) not in relations and (1,) in relations
    with pytest.raises(KeyError, match="5"):
        relations[(5,)]


def test_what_is_given_beside_a_batch_is_not_gone_through() -> None:
    """Of 2 offloads × 2 losses a batch has four combinations, one with a loss has two."""
    choices = {**SIX, "zero_stage": 1, "loss": ["standard", "chunked"]}
    outer = outer_space(specify(job(choices=choices)), None)
    batch = {"layout": outer.layouts[0], "micro_batch": 1}
    assert len(list(outer.with_batch(batch))) == 4
    some = list(outer.with_batch({**batch, "loss": "chunked"}))
    assert [values["optimizer_offload"] for values in some] == ["none", "cpu"]
    assert {values["loss"] for values in some} == {"chunked"}


def test_two_kinds_of_layers_are_measured_apart() -> None:
    """Two dense layers, then three with experts: three checkpoints of one layer recompute 2 and 1 of them."""
    found = job(model="dense_then_experts/config.json", choices={**ONE, "checkpoint_interval": 1})
    points = enumerate_points(specify(found))
    assert points.measures == ("recomputed_layers", "recomputed_layers_2", "checkpoints")
    rows = [row[len(points.inner) :] for row in points.relations[(1,)].rows]
    assert rows == [(1, 0, 1), (2, 0, 2), (2, 1, 3), (2, 2, 4), (2, 3, 5)]


def test_rules_leave_the_legal_points_only() -> None:
    """Batch 8 on two ranks takes micro-batches 1, 2, 4 and not 3; stage 0 cannot offload."""
    found = job(choices=SIX)
    points = enumerate_points(specify(found))
    pairs = [(point.values["micro_batch"], point.values["optimizer_offload"]) for point in points.points]
    assert pairs == [(1, "none"), (4, "none")]


def test_rules_that_are_not_active_are_not_asked() -> None:
    """Without any rule: 3 micro-batches × 2 offloads × 1 interval."""
    found = job(choices=SIX)
    assert len(enumerate_points(specify(found), frozenset()).points) == 6
    only = frozenset({"batch_divides_over_ranks"})
    assert len(enumerate_points(specify(found), only).points) == 4


def test_ranks_order_points_as_the_space_orders_plans() -> None:
    found = job(choices={**ONE, "micro_batch": [4, 1, 2]})
    points = enumerate_points(specify(found))
    outer = [choice.name for choice in points.space.choices if choice.name not in {c.name for c in points.inner}]
    by_name = points.space.by_name
    positions = {p.rank: [by_name[name].values.index(p.values[name]) for name in outer] for p in points.points}
    assert [positions[rank] for rank in sorted(positions)] == sorted(positions.values())
    assert len(positions) == len(points.points)


def test_a_choice_that_a_rule_reads_is_not_inner(tmp_path: Path) -> None:
    """A technique that needs a checkpoint count of 0 makes that count an outer choice."""
    file = tmp_path / "eager.yaml"
    file.write_text(
        "choice: graph\nsummary: how kernels are launched\norder: 95\ndefault: plain\n"
        "values: {plain: {summary: one by one}, captured: {summary: at once, needs: {checkpoint_count: 0}}}\n",
        encoding="utf-8",
    )
    assert [choice.name for choice in inner_choices(specify(job(choices=ONE)))] == ["checkpoint_count"]
    specification = specify(job([file], choices=ONE))
    assert inner_choices(specification) == ()
    legal = [p for p in specification.space.plans() if all(rule.satisfied(p) for rule in specification.rules)]
    points = enumerate_points(specification).points
    assert len(points) == len(legal) == 10  # the 9 of four layers, and count 0 captured
