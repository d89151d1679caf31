"""What if: every cell is what solving the job with these values gives."""

from __future__ import annotations

import pytest

from planner.page.grid import FREE, grid_axes, rows
from planner.search import best_plan
from planner.variants import machine
from tests.page.reports import LARGE, SMALL, failing, fitting, source


def test_axes_hold_the_jobs_own_values() -> None:
    axes = grid_axes(source(SMALL).job())
    assert axes.lengths == (256, 512, 1024, 2048)
    assert axes.micro_batches == (FREE, 1, 2, 4)  # 8 sequences on 2 ranks
    assert axes.gpus == ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb")


def test_a_job_of_many_layouts_is_asked_less() -> None:
    axes = grid_axes(source(SMALL).job(), near=True)
    assert (axes.lengths, axes.gpus) == ((512, 1024), ("a100-sxm-80gb", "h100-sxm-80gb"))


@pytest.mark.parametrize("size", [FREE, 2])
def test_a_cell_is_what_solving_gives(size: int) -> None:
    asked, grid = source(SMALL), fitting().grid
    job = asked.varied({**machine(asked, "h100-sxm-80gb"), "training.sequence_length": 1024})
    solved = best_plan(job if size == FREE else job.with_choices({"micro_batch": (size,)}))
    cell = grid.cells[1024, size, "h100-sxm-80gb"]
    assert solved is not None and cell.plan is not None
    assert cell.plan.plan == solved.plan
    assert cell.text.startswith("fits: ")


def test_here_is_the_best_plan() -> None:
    found = fitting()
    cell = found.grid.cells[found.grid.here]
    assert cell.plan is not None and found.shown is not None
    assert cell.plan.plan == found.shown.plan


def test_what_does_not_fit_says_what_is_over() -> None:
    cells = {(gpu, length, size): cell for gpu, length, size, cell in rows(failing().grid)}
    cell = cells["rtx4070ti-super-16gb", 512, FREE]
    assert cell.text.startswith("does not fit: ") and cell.text.endswith("(gpu_memory_holds_every_phase)")
    assert cell.plan is not None and cell.plan.violations
    assert len(cells) == 4 * 2 * 3
    assert grid_axes(source(LARGE).job()).micro_batches == (FREE, 1)
