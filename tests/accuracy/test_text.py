"""The accuracy as text."""

from __future__ import annotations

from planner.accuracy.run_log import Run
from planner.accuracy.score import Accuracy, Comparison, Score
from planner.accuracy.text import accuracy_text
from planner.units import GIB

FOUND = Accuracy(
    (
        Score(Run(2, "lab-1", "lab"), Comparison("reserved", 11 * GIB, 10 * GIB), None, "fits", True),
        Score(Run(3, "mine-1", "mine"), None, Comparison("step", 0.75, 1.0), "no", True),
        Score(Run(4, "mine-2", "mine"), None, None, "fits", False, time_unknown="network between nodes not stated"),
    ),
    {"runtime internevo": 12, "method lora": 1},
)


def test_summary() -> None:
    assert accuracy_text(FOUND, rows=False) == (
        "3 runs scored, 13 skipped\n"
        "\n"
        "source  memory  error    bias   worst  time  error    bias   worst  false fits  false nos\n"
        "lab          1  10.0%  +10.0%  +10.0%     0      –       –       –           0          0\n"
        "mine         0      –       –       –     1  25.0%  -25.0%  -25.0%           1          1\n"
        "\n"
        "median over sources: memory 10.0%, time 25.0%\n"
        "false fits 1, false nos 1\n"
        "farthest off in memory: lab-1 (+10.0%)\n"
        "farthest off in time: mine-1 (-25.0%)\n"
        "\n"
        "skipped\n"
        "  12  runtime internevo\n"
        "   1  method lora\n"
        "   1  time only: network between nodes not stated\n"
    )


def test_rows() -> None:
    lines = (
        "run       metric  predicted  measured   error    step  measured   error  verdict  ran\n"
        "lab-1   reserved   11.0 GiB  10.0 GiB  +10.0%       –         –       –     fits  yes\n"
        "mine-1         –          –         –       –  750 ms       1 s  -25.0%       no  yes\n"
        "mine-2         –          –         –       –       –         –       –     fits   no\n"
    )
    assert lines in accuracy_text(FOUND, rows=True)


def test_nothing_scored() -> None:
    text = "0 runs scored, 1 skipped\n\nskipped\n  1  runtime x\n"
    assert accuracy_text(Accuracy((), {"runtime x": 1}), rows=True) == text


def test_one_run_and_nothing_skipped() -> None:
    assert accuracy_text(Accuracy(FOUND.scores[:1], {}), rows=False).startswith("1 run scored, 0 skipped\n")
