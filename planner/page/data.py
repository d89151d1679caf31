"""What the page shows: explanation, frontier and grid of one job, all of them answers of other commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.errors import NoPlan
from planner.evaluate import Evaluation
from planner.explain.explanation import Explanation, NoPlanExplained, explain
from planner.frontier import Frontier, frontier
from planner.job import Job
from planner.page.grid import Grid, rows, solve_grid
from planner.page.plans import Plans
from planner.page.timeline import ROWS, STATES
from planner.sweep import Progress
from planner.terms import BOOKS, PHASES, WINDOWS
from planner.variants import Source

MOST_POINTS = 240  # of the frontier that the page has plans of


@dataclass(frozen=True, eq=False)
class Report:
    """Everything about a job; `frontier` is None where nothing fits."""

    job: Job
    explanation: Explanation | NoPlanExplained
    frontier: Frontier | None
    grid: Grid
    most_points: int = MOST_POINTS

    @property
    def failure(self) -> NoPlan | None:
        """The proof that nothing fits."""
        return self.explanation.failure if isinstance(self.explanation, NoPlanExplained) else None

    @property
    def shown(self) -> Evaluation | None:
        """The plan that the page starts with: the best one, or else the nearest miss."""
        if isinstance(self.explanation, NoPlanExplained):
            miss: Evaluation | None = self.explanation.failure.nearest_miss
            return miss
        return self.explanation.best

    @property
    def points(self) -> Sequence[tuple[int, Evaluation]]:
        """The frontier's points with their numbers from 1, thinned evenly where there are very many."""
        numbered = list(enumerate(self.frontier.points, 1)) if self.frontier is not None else []
        if len(numbered) <= self.most_points:
            return numbered
        last = len(numbered) - 1
        return [numbered[round(step * last / (self.most_points - 1))] for step in range(self.most_points)]


def report(source: Source, progress: Progress | None = None) -> Report:
    """The answers that a page is made of, each solved; raises InputError and Stopped as solving does."""
    explanation = explain(source, progress=progress)
    found = None if isinstance(explanation, NoPlanExplained) else frontier(source.job(), progress=progress)
    return Report(source.job(), explanation, found, solve_grid(source, progress))


def script_data(found: Report, plans: Plans) -> dict[str, Any]:
    """What the page's script looks things up in; it holds every plan that the page can show."""
    shown = found.shown
    first = plans.number(shown) if shown is not None else None
    cells = {
        f"{gpu}|{length}|{size}": [cell.text, plans.number(cell.plan) if cell.plan is not None else None]
        for gpu, length, size, cell in rows(found.grid)
    }
    return {
        "first": first,
        "books": list(BOOKS),
        "phases": list(PHASES),
        "windows": list(WINDOWS),
        "rows": list(ROWS),
        "states": list(STATES),
        "cells": cells,
        "meanings": plans.meanings,
        "strings": plans.strings.texts,
        "plans": plans.entries,
    }
