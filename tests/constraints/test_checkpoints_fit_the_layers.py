"""checkpoint_count segments of checkpoint_interval layers lie inside the model; both are zero together only."""

from __future__ import annotations

import pytest

from constraints import checkpoints_fit_the_layers as constraint
from planner.plan import Layout
from planner.terms import Rule
from tests.constraints.agreement import verdicts
from tests.jobs import PLAIN, job, plan


@pytest.mark.parametrize(("count", "interval"), [(0, 0), (1, 1), (4, 1), (2, 2), (1, 4), (1, 3)])
def test_accepts(count: int, interval: int) -> None:
    """Four layers: the largest product that fits is 4."""
    found = job()
    assert constraint.because(found, plan(found, checkpoint_count=count, checkpoint_interval=interval)) is None


@pytest.mark.parametrize(("count", "interval", "needed"), [(3, 2, 6), (2, 3, 6), (4, 4, 16)])
def test_rejects(count: int, interval: int, needed: int) -> None:
    found = job()
    assert constraint.because(found, plan(found, checkpoint_count=count, checkpoint_interval=interval)) == (
        f"{count} checkpoints of {interval} layers need {needed} layers, the model has 4"
    )


def test_the_boundary_is_the_number_of_layers() -> None:
    """5 × 1 = 5 is one layer too many."""
    found = job(choices={"checkpoint_count": [4, 5]})
    assert constraint.because(found, plan(found, checkpoint_count=4, checkpoint_interval=1)) is None
    assert constraint.because(found, plan(found, checkpoint_count=5, checkpoint_interval=1)) == (
        "5 checkpoints of 1 layers need 5 layers, the model has 4"
    )


@pytest.mark.parametrize(("count", "interval"), [(0, 1), (1, 0), (0, 4)])
def test_no_checkpoints_has_one_spelling(count: int, interval: int) -> None:
    found = job()
    assert constraint.because(found, plan(found, checkpoint_count=count, checkpoint_interval=interval)) == (
        f"checkpoint_count {count} and checkpoint_interval {interval} are zero only together"
    )


def test_rules_agree_with_the_sentence() -> None:
    """Counts and intervals 0 to 4: (0, 0); intervals 1, 2, 3, 4 allow 4, 2, 1, 1 counts: 9 of 25 pairs."""
    one = {"zero_stage": 0, "optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1,
           "gradient_accumulation_dtype": "bf16", **PLAIN}  # fmt: skip
    assert verdicts(constraint, job(choices=one)) == (9, 16)


def test_the_longest_stage_of_a_pipeline_counts() -> None:
    """Five layers over two stages are three and two; without a pipeline the layout has no say."""
    model = {"parameters": 30_000_000, "layers": 5, "vocabulary": 8000}
    found = job(model=model, training={"runtime": "megatron"}).with_choices({"layout": (Layout(pipeline=2),)})
    (rule,), (plain,) = constraint.require(found), constraint.require(job())
    assert isinstance(rule, Rule) and isinstance(plain, Rule)
    assert rule.scope == ("checkpoint_count", "checkpoint_interval", "layout")
    assert plain.scope == ("checkpoint_count", "checkpoint_interval")
    fits, more = (plan(found, checkpoint_count=count, checkpoint_interval=1) for count in (3, 4))
    assert rule.satisfied(fits) and constraint.because(found, fits) is None
    assert not rule.satisfied(more)
    assert constraint.because(found, more) == (
        "4 checkpoints of 1 layers need 4 layers, the longest pipeline stage has 3"
    )
