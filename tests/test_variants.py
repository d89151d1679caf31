"""A job file with values replaced: as the file with these values would be read, mistakes included."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.variants import Source, machine, method

EXAMPLES = Path(__file__).parents[1] / "examples"
A100 = Source(EXAMPLES / "llama-2-7b-8xa100.yaml")
SMALL = Source(EXAMPLES / "llama-2-7b-1xrtx4090.yaml")


def test_a_value_is_replaced_and_the_rest_stays() -> None:
    found = A100.varied({"training.sequence_length": 2048})
    assert (found.training.sequence_length, found.training.global_batch) == (2048, 64)
    assert found.cluster.node.key == A100.job().cluster.node.key


def test_a_mistake_is_one_of_the_file() -> None:
    with pytest.raises(InputError) as caught:
        A100.varied({"training.optimizer": "adamv"})
    assert caught.value.path == "training.optimizer"
    assert "unknown optimizer 'adamv'" in caught.value.message


def test_pins_stay_on_top_until_a_choice_is_set_free() -> None:
    pinned = Source(A100.path, pins=(("zero_stage", 2), ("micro_batch", 1)))
    assert pinned.varied({"training.sequence_length": 2048}).choices == {"zero_stage": (2,), "micro_batch": (1,)}
    assert pinned.without("zero_stage").choices == {"micro_batch": (1,)}


def test_a_choice_of_the_file_is_set_free(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(A100.path.read_text() + "choices: {zero_stage: [1, 2], micro_batch: 1}\n")
    assert Source(path).without("micro_batch").choices == {"zero_stage": (1, 2)}


def test_another_gpu_takes_the_node_that_has_as_many_of_them() -> None:
    found = A100.varied(machine(A100, "h100-sxm-80gb"))
    assert (found.cluster.gpu.key, found.cluster.gpus) == ("h100-sxm-80gb", 8)


def test_another_gpu_of_a_plain_machine() -> None:
    found = SMALL.varied(machine(SMALL, "a100-sxm-40gb"))
    assert (found.cluster.gpu.key, found.cluster.gpus) == ("a100-sxm-40gb", 1)


def test_a_node_is_a_machine_too() -> None:
    assert SMALL.varied(machine(SMALL, "dgx-h100")).cluster.gpus == 8


def test_the_same_gpu_changes_nothing() -> None:
    assert machine(A100, "a100-sxm-80gb") == {}


@pytest.mark.parametrize(
    ("text", "value"),
    [("full", "full"), ("lora16", {"lora": {"rank": 16}}), ("qlora", {"qlora": {"rank": 16}}),
     ("lora64", {"lora": {"rank": 64}})],
)  # fmt: skip
def test_methods_in_one_word(text: str, value: object) -> None:
    assert method(text) == value


def test_an_unknown_method() -> None:
    with pytest.raises(InputError) as caught:
        method("dora16")
    assert str(caught.value) == (
        "--method: unknown method 'dora16'; expected full, lora16 or qlora16 (with any rank)"
    )  # fmt: skip
