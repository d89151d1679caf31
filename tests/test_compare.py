"""Comparisons: who is ahead where, what differs, and what stands where a subject has no plan."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli import cli
from planner.compare import Comparison, Stretch, book_changes, compare, joined, rows, sources
from planner.compare_answer import comparison_answer, comparison_picture, comparison_text
from planner.errors import InputError
from planner.plot.picture import Picture

EXAMPLES = Path(__file__).parents[1] / "examples"
A100 = EXAMPLES / "llama-2-7b-8xa100.yaml"
NOTHING = "compare: there is nothing to compare; expected several jobs, or one job with one of --gpu A,B, "


@pytest.fixture(scope="module")
def gpus() -> Comparison:
    """The same job on two GPUs, of which one is better in everything."""
    return compare(sources((A100,), (), "a100-sxm-80gb,h100-sxm-80gb", None, None))


def test_the_faster_gpu_is_ahead_everywhere(gpus: Comparison) -> None:
    assert gpus.dominance == (("h100-sxm-80gb", "a100-sxm-80gb"),)
    assert [stretch.name for stretch in gpus.stretches] == ["h100-sxm-80gb"]
    assert gpus.stretches[-1].end == inf


def test_the_table_holds_what_differs_and_nothing_else(gpus: Comparison) -> None:
    found = rows(gpus)
    assert found["GPUs"] == ["8 × a100-sxm-80gb", "8 × h100-sxm-80gb"]
    assert "step time" in found
    assert "model" not in found
    assert all(len(set(texts)) > 1 for texts in found.values())


def test_books_change_by_the_difference_of_the_peaks(gpus: Comparison) -> None:
    one, other = (subject.best for subject in gpus.subjects)
    assert one is not None and other is not None
    found = book_changes(gpus)["h100-sxm-80gb"]
    assert sum(found.values()) == other.peak_bytes - one.peak_bytes


def test_both_frontiers_stand_in_one_picture(gpus: Comparison) -> None:
    shown = comparison_picture(gpus)
    assert isinstance(shown, Picture)
    assert [series.name for series in shown.series] == ["a100-sxm-80gb", "h100-sxm-80gb"]
    text = comparison_text(gpus)
    assert "h100-sxm-80gb is at least as good as a100-sxm-80gb everywhere" in text


def test_lengths_are_compared_by_the_time_of_a_token() -> None:
    found = compare(sources((A100,), (), None, None, "2048,4096"))
    assert [axis.name for axis in found.subjects[0].frontier.axes] == ["memory", "token_time"]  # type: ignore[union-attr]


def test_a_subject_without_a_plan_says_why() -> None:
    names = ("llama-2-7b-1xrtx4090", "llama-2-7b-1xrtx4090-small-host")
    found = compare(sources([EXAMPLES / f"{name}.yaml" for name in names], (), None, None, None))
    answer = comparison_answer(found)
    assert [subject["status"] for subject in answer["subjects"].values()] == ["optimal", "infeasible"]
    assert "gpu_memory_holds_every_phase" in answer["subjects"][names[1]]["conflict"]
    assert rows(found)["step time"][1] == "no plan"
    assert f"{names[1]} has no plan: " in comparison_text(found)
    assert found.stretches[0].lead is None


def test_neighbours_with_the_same_name_are_one_stretch() -> None:
    """The lead is the largest; what is alone and what is ahead stay apart."""
    found = [Stretch("a", 1, 2, None), Stretch("a", 2, 3, None), Stretch("a", 3, 4, 0.1), Stretch("a", 4, inf, 0.3)]
    assert joined(found) == [Stretch("a", 1, 3, None), Stretch("a", 3, inf, 0.3)]


@pytest.mark.parametrize(
    "words",
    [[str(A100)], [str(A100), "--gpu", "a100-sxm-80gb", "--method", "full"], [str(A100), str(A100), "--gpu", "x"]],
)
def test_nothing_to_compare(words: list[str]) -> None:
    found = CliRunner().invoke(cli, ["compare", *words])
    assert isinstance(found.exception, InputError)
    assert str(found.exception) == f"{NOTHING}--method full,lora16, --sequence-length A,B"


def test_a_length_that_is_none() -> None:
    with pytest.raises(InputError) as caught:
        sources((A100,), (), None, None, "4k,8k")
    assert str(caught.value) == "--sequence-length: '4k' is no number of tokens; expected such as 4096,8192"


def test_the_command_answers_json_and_draws(tmp_path: Path) -> None:
    path = tmp_path / "two.svg"
    words = ["compare", str(A100), "--method", "full,lora16", "--format", "json", "--plot", str(path)]
    found = CliRunner().invoke(cli, words)
    answer = json.loads(found.stdout)
    assert list(answer["subjects"]) == ["full", "lora16"]
    assert answer["subjects"]["full"]["frontier"]["points"]
    assert path.read_text().startswith("<svg")


def test_a_deepspeed_file_stands_beside_the_plans(tmp_path: Path) -> None:
    """Stage 3 with all 64 sequences of the job: 8 ranks of 8 at once do not fit without recomputation."""
    path = tmp_path / "mine.json"
    path.write_text(
        json.dumps({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": True},
                    "zero_optimization": {"stage": 3}})
    )  # fmt: skip
    found = compare(sources((A100,), (), None, None, None, (path,)), (path,))
    mine, planned = found.subjects
    assert (mine.name, planned.name) == ("mine", "llama-2-7b-8xa100")
    assert mine.best is not None and mine.best.plan["zero_stage"] == 3
    assert mine.frontier is None
    assert rows(found)["verdict"] == ["breaks gpu_memory_holds_every_phase", "fits"]
    assert "mine breaks gpu_memory_holds_every_phase: " in comparison_text(found)
    assert comparison_answer(found)["subjects"]["mine"]["violations"]
