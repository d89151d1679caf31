"""Overlays in place of formulas: books to the digit, families known and unknown, and what is refused."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from planner.architecture.overlay import traced_model
from planner.cli import cli
from planner.errors import InputError
from planner.job import Job
from planner.resolve import read_job

# Two layers of a query and output matrix of 8 x 8, a block of 8 x 16 and back, a norm: 64 + 64 + 128 + 128 + 8 = 392.
LAYER: dict[str, Any] = {
    "kind": "Block", "first": 0, "count": 2, "places": [0, 1], "parameters": 392,
    "stored_bytes_per_token": 100, "stored_bytes_constant": 7, "boundary_bytes_per_token": 16,
    "forward_working_bytes_per_token": 120, "forward_surplus_bytes_per_token": 20,
    "backward_surplus_bytes_per_token": 40, "checkpointed_forward_bytes_per_token": 60,
    "recomputed_bytes_per_token": 150, "matmul_flops_per_token": 768, "attention_flops_per_token": 1024,
    "tensors": [
        {"name": "attn.q.weight", "shape": [8, 8]}, {"name": "attn.out.weight", "shape": [8, 8]},
        {"name": "mlp.up.weight", "shape": [16, 8]}, {"name": "mlp.down.weight", "shape": [8, 16]},
        {"name": "norm.weight", "shape": [8]},
    ],
}
# A table of 32 x 8, a head of the same size, a norm of 8: 520.
OUTSIDE: dict[str, Any] = {
    "parameters": 520, "stored_bytes_per_token": 200, "stored_bytes_constant": 12, "table_bytes_per_position": 4,
    "table_bytes_per_token": 0, "named_bytes_per_token": 16, "final_bytes_per_token": 30,
    "final_forward_bytes_per_token": 10, "final_backward_bytes_per_token": 11, "loss_forward_bytes_per_token": 300,
    "loss_backward_bytes_per_token": 400.004, "matmul_flops_per_token": 512,
    "tensors": [
        {"name": "embed.weight", "shape": [32, 8]}, {"name": "norm.weight", "shape": [8]},
        {"name": "lm_head.weight", "shape": [32, 8]},
    ],
}
OVERLAY: dict[str, Any] = {
    "overlay": 1, "model": "odd/config.json", "family": "odd", "config": {"model_type": "odd"}, "hidden": 8,
    "vocabulary": 32, "positions": 64, "tied": False, "in_proportion": True, "parameters": 1304, "layers": [LAYER],
    "outside": OUTSIDE, "forward_peak_bytes": 1, "backward_peak_bytes": 1, "sequence_lengths": [32, 64],
    "attention": "flash", "versions": {"torch": "2.13.0", "transformers": "5.24.0"}, "notes": [],
}
JOB: dict[str, Any] = {
    "model": "overlay.yaml", "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 2},
    "training": {"sequence_length": 128, "global_batch": 4},
}


def written(folder: Path, overlay: dict[str, Any], **training: Any) -> Path:
    """An overlay with a job beside it."""
    (folder / "overlay.yaml").write_text(yaml.safe_dump(overlay, sort_keys=False), encoding="utf-8")
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**JOB, "training": {**JOB["training"], **training}}), encoding="utf-8")
    return path


def changed(**values: Any) -> dict[str, Any]:
    """The overlay with some values replaced."""
    return {**deepcopy(OVERLAY), **values}


def job(folder: Path, overlay: dict[str, Any] = OVERLAY, **training: Any) -> Job:
    """The job beside an overlay."""
    return read_job(written(folder, overlay, **training))


def refusal(folder: Path, overlay: dict[str, Any] = OVERLAY, **training: Any) -> str:
    """The message of a job that is refused, its folder left out."""
    with pytest.raises(InputError) as caught:
        job(folder, overlay, **training)
    return str(caught.value).replace(f"{folder}/", "")


def llama() -> dict[str, Any]:
    """An overlay of a known family: llama, two layers, parameters as its importer counts them."""
    config = {
        "model_type": "llama", "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "vocab_size": 32,
        "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 64, "tie_word_embeddings": False,
    }  # fmt: skip
    # Four matrices of 8 x 8, three of 8 x 16, two norms: 656.
    tensors = [{"name": "attn.weight", "shape": [32, 8]}, {"name": "mlp.weight", "shape": [48, 8]},
               {"name": "norm.weight", "shape": [16]}]
    layer = {**LAYER, "parameters": 656, "tensors": tensors}
    return changed(family="llama", config=config, layers=[layer], parameters=1832)


# ── books ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_activations_are_the_files(tmp_path: Path) -> None:
    found = job(tmp_path).activations
    layer, tokens = found.layers[0], 256
    assert layer.stored.at(tokens) == 7 + 100 * tokens
    assert layer.boundary.at(tokens) == 16 * tokens
    assert layer.forward_live.at(tokens) == 20 * tokens
    assert layer.backward_live.at(tokens) == 40 * tokens
    assert layer.checkpointed_forward_live.at(tokens) == 60 * tokens
    assert layer.checkpointed_backward_live.at(tokens) == 150 * tokens
    assert found.tables.at(tokens) == 4 * 128  # 128 positions, whatever the number of sequences
    assert found.final.at(tokens) == 30 * tokens
    assert found.loss_backward.at(tokens) == 400 * tokens  # 0.004 a token are a few bytes of a run


def test_books_follow_the_file(tmp_path: Path) -> None:
    """Loss, 2 sequences of 128 tokens: 2 layers of 25,607, tables 512, final 7,680, loss 102,400."""
    path = written(tmp_path, OVERLAY)
    run = ["ledger", str(path), "--set", "micro_batch=2", "--set", "checkpoint_interval=0", "--format", "json"]
    answer = CliRunner().invoke(cli, run)
    assert answer.exit_code == 0, answer.output
    data = yaml.safe_load(answer.output)
    loss = data["memory"]["gpu"]["phases"]["loss"]["books"]
    assert loss["activations"] == 2 * (7 + 100 * 256) + 4 * 128 + 30 * 256 + 400 * 256


def test_lines_below_zero_hold_at_the_sequence(tmp_path: Path) -> None:
    # 100 x 128 - 640 bytes over 128 tokens: 95 a token, also for two sequences.
    layer = {**LAYER, "stored_bytes_constant": -640}
    assert job(tmp_path, changed(layers=[layer])).activations.layers[0].stored.at(256) == 95 * 256


def test_flops_are_the_files(tmp_path: Path) -> None:
    # Between tokens 1,024 at 64 tokens, twice as many at 128.
    found = job(tmp_path).flops
    assert (found.layers[0].matmul_per_token, found.layers[0].attention_per_token) == (768, 2048)
    assert found.head_per_token == 512


def test_another_loss_is_that_of_the_formula(tmp_path: Path) -> None:
    found = job(tmp_path, loss="kernel").activations
    assert found.loss_forward.per_token == 2 * 32  # one kernel over 16-bit logits


# ── architectures ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_unknown_family_is_made_of_its_tensors(tmp_path: Path) -> None:
    written(tmp_path, OVERLAY)
    architecture, traced = traced_model(tmp_path / "overlay.yaml")
    assert (architecture.name, architecture.family, architecture.parameters) == ("odd", "odd", 1304)
    (group,) = architecture.layers
    assert [tensor.role for tensor in group.kind.tensors] == ["attention", "attention", "mlp", "mlp", "norm"]
    assert [tensor.role for tensor in architecture.outside] == ["embedding", "norm", "head"]
    assert not traced.known
    assert (group.count, group.kind.attention, group.kind.feed_forward) == (2, None, None)


def test_experts_that_a_token_meets_follow_from_flops(tmp_path: Path) -> None:
    # Four experts of 3 x 8 x 4 = 96; two of them and a router of 32: (2 x 96 + 32) x 2 FLOP.
    tensors = [{"name": f"experts.{index}.w.weight", "shape": [12, 8]} for index in range(4)]
    tensors.append({"name": "router.weight", "shape": [4, 8]})
    layer = {**LAYER, "parameters": 416, "tensors": tensors, "matmul_flops_per_token": 448}
    written(tmp_path, changed(layers=[layer], parameters=1352))
    block = traced_model(tmp_path / "overlay.yaml")[0].layers[0].kind.feed_forward
    assert block is not None
    assert (block.experts, block.experts_per_token, block.width) == (4, 2, 4)


def test_known_family_is_the_importers(tmp_path: Path) -> None:
    found = job(tmp_path, llama())
    kind = found.layer_kinds[0]
    assert kind.attention is not None
    assert kind.attention.heads == 2
    assert found.activations_of(kind).stored.per_token == 100


def test_known_family_divides_as_its_formula_does(tmp_path: Path) -> None:
    """Of the stream, one rank of two has half with sequence parallelism: 16 bytes become 8."""
    found = job(tmp_path, llama())
    assert found.activations_under(2, False).layers[0].boundary.per_token == 8
    assert found.activations_under(2, True).layers[0].boundary.per_token == 16
    assert 50 <= found.activations_under(2, False).layers[0].stored.per_token < 100


def test_answer_says_what_it_rests_on(tmp_path: Path) -> None:
    assert job(tmp_path).assumptions[:2] == (
        "activations and FLOP of layers are those of the model code of torch 2.13.0, transformers 5.24.0, traced in "
        "bf16 with flash attention at 32 and 64 tokens",
        "the family is known by its trace alone: no tensor parallelism, and attention that meets all",
    )


# ── refusals ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_parameters_that_differ_from_the_configuration(tmp_path: Path) -> None:
    overlay = llama()
    overlay["config"]["intermediate_size"] = 24  # three matrices of 8 x 8 more: 192
    message = refusal(tmp_path, overlay)
    assert message.startswith("overlay.yaml:")
    assert message.endswith(
        ": layers[0].parameters: layer 0 was traced with 656 parameters; expected 848, as config describes the model; "
        "trace the model again"
    )


def test_parameters_that_differ_from_the_tensors(tmp_path: Path) -> None:
    message = refusal(tmp_path, changed(layers=[{**LAYER, "parameters": 400}]))
    assert message.endswith("layers[0].parameters: the tensors have 392 parameters; expected 392")


def test_unknown_key(tmp_path: Path) -> None:
    message = refusal(tmp_path, changed(hiden=8))
    assert message.startswith("overlay.yaml:")
    assert "hiden" in message
    assert "did you mean 'hidden'?" in message


def test_another_version(tmp_path: Path) -> None:
    assert refusal(tmp_path, changed(overlay=2)).startswith("overlay.yaml:1:")


def test_missing_file(tmp_path: Path) -> None:
    path = written(tmp_path, OVERLAY)
    (tmp_path / "overlay.yaml").unlink()
    with pytest.raises(InputError, match="there is no such file"):
        read_job(path)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        ({"attention": "eager"},
         "the model was traced with flash attention, the job runs eager; expected attention: flash"),
        ({"kernels": "liger"},
         "the model was traced with kernels huggingface, the job runs with liger; "
         "expected kernels huggingface; or the model by its config.json, without the trace"),
        ({"runtime": "ddp"},
         "the model was traced with precision bf16, the job runs with autocast; "
         "expected precision bf16 or fp16; or the model by its config.json, without the trace"),
    ],
)  # fmt: skip
def test_jobs_that_run_other_code(tmp_path: Path, training: dict[str, Any], message: str) -> None:
    assert refusal(tmp_path, **training).endswith(f"training: {message}")


def test_attention_written_out_holds_between_its_lengths(tmp_path: Path) -> None:
    overlay = changed(attention="eager", in_proportion=False)
    assert refusal(tmp_path, overlay, attention="eager").endswith(
        "training: the trace holds from 32 to 64 tokens, the job has 128; expected a trace at this length: "
        "planner trace MODEL --sequence-length 128"
    )
    assert job(tmp_path, overlay, attention="eager", sequence_length=64).traced is not None
