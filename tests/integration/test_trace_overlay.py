"""From a trace to a plan: the real model's figures in the books, for families with and without formulas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import yaml
from click.testing import CliRunner

from planner.architecture.families import model_types
from planner.cli import cli
from planner.job import Job
from planner.resolve import read_job

FIELDS = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 128, "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
}  # fmt: skip
JOB: dict[str, Any] = {
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 2},
    "training": {"sequence_length": 1024, "global_batch": 8},
}
WITHOUT_FORMULA = "nanochat"


def traced_job(folder: Path, family: str) -> Path:
    """A job beside the overlay of a tiny model of a family."""
    config = folder / "config.json"
    config.write_text(json.dumps({"model_type": family, **FIELDS}), encoding="utf-8")
    answer = CliRunner().invoke(cli, ["trace", str(config), "--out", str(folder)])
    assert answer.exit_code == 0, answer.output
    return job_file(folder, "overlay.yaml")


def job_file(folder: Path, model: str) -> Path:
    """A job of a model beside it."""
    path = folder / f"{model}-job.yaml"
    path.write_text(yaml.safe_dump({"model": model, **JOB}), encoding="utf-8")
    return path


def ledger(path: Path) -> dict[str, Any]:
    """The answer of `planner ledger`."""
    answer = CliRunner().invoke(cli, ["ledger", str(path), "--format", "json"])
    assert answer.exit_code == 0, answer.output
    found: dict[str, Any] = json.loads(answer.output)
    return found


def test_known_family_stores_what_its_formula_says(tmp_path: Path) -> None:
    path = traced_job(tmp_path, "qwen3")
    traced, formula = read_job(path), read_job(job_file(tmp_path, "config.json"))
    assert _amounts(traced) == pytest.approx(_amounts(formula), rel=0.01)
    whole, own = ledger(path)["memory"]["gpu"], ledger(tmp_path / "config.json-job.yaml")["memory"]["gpu"]
    assert whole["peak_bytes"] == pytest.approx(own["peak_bytes"], rel=0.01)


def _amounts(job: Job) -> list[int]:
    """Stored, kept at a checkpoint and held in recomputation by one layer, for one sequence; held in the loss."""
    layer = job.activations.layers[0]
    amounts = (layer.stored, layer.boundary, layer.checkpointed_backward_live, job.activations.loss_backward)
    return [amount.at(1024) for amount in amounts]


def test_unknown_family_has_a_verdict(tmp_path: Path) -> None:
    assert WITHOUT_FORMULA not in model_types()
    path = traced_job(tmp_path, WITHOUT_FORMULA)
    answer = ledger(path)
    assert answer["memory"]["gpu"]["verdict"] == "fits"
    assert answer["step_time"]["seconds"] > 0
    assert "activations and FLOP of layers are those of the model code of torch" in " ".join(answer["assumptions"])
