"""Whether runs are ranked as measured, and the page that says so, word for word."""

from __future__ import annotations

import pytest

from planner.accuracy import accuracy_page
from planner.accuracy.order import Order, median_tau, orders
from planner.accuracy.run_log import Run
from planner.accuracy.score import Accuracy, Comparison, Score


def timed(number: int, measured: float, predicted: float | None, source: str = "lab", **task: object) -> Score:
    """A run of a task with its measured and its predicted step."""
    run = Run(line=number, id=f"{source}-{number}", source=source, **task)  # type: ignore[arg-type]
    time = None if predicted is None else Comparison("step", predicted, measured)
    return Score(run, None, time, "fits", True)


def test_pairs_of_one_task_agree_or_not() -> None:
    """1 < 2 < 4 s are predicted as 1, 3 and 2: two pairs of three agree, (2 - 1) / 3."""
    scores = [timed(1, 1.0, 1.0), timed(2, 2.0, 3.0), timed(3, 4.0, 2.0)]
    assert orders(scores) == (Order("lab", 3, 3, pytest.approx(1 / 3)),)


def test_measured_steps_that_are_a_tie_count_for_nothing() -> None:
    """Within half a percent; two of the three pairs are left."""
    scores = [timed(1, 1.0, 1.0), timed(2, 1.004, 0.5), timed(3, 2.0, 3.0)]
    assert orders(scores) == (Order("lab", 3, 2, 1.0),)


def test_other_tasks_and_other_sources_are_not_compared() -> None:
    scores = [
        timed(1, 1.0, 1.0, global_batch=8), timed(2, 2.0, 1.0, global_batch=16),
        timed(1, 2.0, 1.0, "home", gpu="a"), timed(2, 1.0, 2.0, "home", gpu="a"), timed(3, 1.0, None, "home", gpu="a"),
    ]  # fmt: skip
    assert orders(scores) == (Order("home", 2, 1, -1.0),)


def test_the_median_is_of_sources_with_six_runs_or_more() -> None:
    few, some, many = Order("few", 5, 9, -1.0), Order("some", 6, 9, 0.2), Order("many", 30, 90, 0.6)
    assert median_tau([few, some, many]) == pytest.approx(0.4)
    assert median_tau([few]) is None


# ── the page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def scored(number: int, memory: float, **more: object) -> Score:
    """A run whose memory is predicted so many times too high."""
    score = timed(number, 2.0, 1.0 + number)
    unknown = str(more.get("unknown", ""))
    return Score(score.run, Comparison("reserved", memory, 1.0), score.time, "fits", True, unknown)


def test_the_page() -> None:
    """Two runs: memory +10 % and -20 %, steps of 2 s predicted as 2 and 3 s; a tie of their measured steps."""
    found = Accuracy((scored(1, 1.1), scored(2, 0.8, unknown="network not stated")), {"runtime x": 3})
    assert accuracy_page(found).partition("## By source\n\n")[2] == (
        "| source | memory rows | mean error | bias | worst | time rows | mean error | bias | worst | false fits | "
        "false nos |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| lab | 2 | 15.0 % | -5.0 % | -20.0 % | 2 | 25.0 % | +25.0 % | +50.0 % | 0 | 0 |\n"
        "\n"
        "Over all 2 scored runs: median of sources 15.0 % for memory and 25.0 % for step time, 0 false fits, 0 false "
        "nos.\n"
        "\n"
        "## Order\n"
        "\n"
        "Kendall's tau over pairs of runs with the same model, machines and batch that differ in configuration: 1 "
        "where every pair is ranked as measured, 0 where the order is a coin's.\n"
        "\n"
        "| source | runs | pairs | tau |\n"
        "| --- | --- | --- | --- |\n"
        "\n"
        "No source has enough such runs.\n"
        "\n"
        "## Not scored\n"
        "\n"
        "| runs | reason |\n"
        "| --- | --- |\n"
        "| 3 | runtime x |\n"
        "| 1 | step time only: network not stated |\n"
    )


def test_the_page_of_runs_that_are_ordered_and_of_nothing_skipped() -> None:
    page = accuracy_page(Accuracy(tuple(timed(n, float(n), float(n)) for n in range(1, 7)), {}))
    assert "\n| lab | 0 | – | – | – | 6 | 0.0 % | +0.0 % | +0.0 % | 0 | 0 |\n" in page
    # 6 · 5 / 2 pairs
    assert page.endswith("| lab | 6 | 15 | 1.00 |\n\nMedian of sources with six or more: 1.00.\n")


def test_the_page_of_nothing() -> None:
    assert "Over all 0 scored runs: median of sources – for memory and – for step time" in accuracy_page(
        Accuracy((), {})
    )
