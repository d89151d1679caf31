"""The product of the parallel degrees is the number of GPUs."""

from __future__ import annotations

import pytest

from constraints import layout_fills_the_cluster as constraint
from planner.plan import Layout
from tests.constraints.agreement import kept, verdicts
from tests.jobs import PLAIN, job, plan


@pytest.mark.parametrize("layout", [Layout(data=2), Layout(tensor=2), Layout(sequence=2), Layout(pipeline=2)])
def test_accepts(layout: Layout) -> None:
    """1 × 1 × 1 × 2 = 2, wherever the 2 stands."""
    found = job()
    assert constraint.because(found, plan(found, layout=layout)) is None


# 1 rank leaves a GPU idle, 2 × 2 = 4 and 3 ranks are more than there are.
@pytest.mark.parametrize(("layout", "ranks"), [(Layout(), 1), (Layout(tensor=2, data=2), 4), (Layout(data=3), 3)])
def test_rejects(layout: Layout, ranks: int) -> None:
    found = job()
    wrong = plan(found, layout=layout)
    assert constraint.because(found, wrong) == f"the layout has {ranks} ranks, the cluster 2 GPUs"
    assert not all(kept(found, wrong, requirement) for requirement in constraint.require(found))


def test_expert_parallelism_adds_no_ranks() -> None:
    """It lies inside the data-parallel ranks: 2 ranks, not 4."""
    found = job()
    assert constraint.because(found, plan(found, layout=Layout(expert=2, data=2))) is None


def test_rules_agree_with_the_sentence() -> None:
    """The space builds legal layouts only."""
    one = {"optimizer_offload": "none", "parameter_offload": "none", "micro_batch": 1, "checkpoint_interval": 0,
           "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0, **PLAIN}  # fmt: skip
    assert verdicts(constraint, job(choices=one)) == (4, 0)
