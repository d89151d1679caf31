"""From a run to a job and a plan, or the reason why not."""

from __future__ import annotations

from pathlib import Path

import pytest
from logs import PARAMETERS, write_log

from planner.accuracy.run_job import Case, run_case
from planner.accuracy.run_log import read_run_log
from planner.accuracy.run_model import Skipped
from planner.job import Job
from planner.plan import Layout
from planner.sizes import SIZES, own_size
from tests.jobs import PLAIN


def case(folder: Path, **cells: str) -> Case:
    """The case of the small run with cells replaced."""
    (run,) = read_run_log(write_log(folder, cells))
    return run_case(run)


def test_a_run_becomes_a_job_and_a_plan(tmp_path: Path) -> None:
    found = case(tmp_path)
    job, training = found.job, found.job.training
    assert (job.architecture.parameters, job.cluster.gpus, job.runtime.runtime) == (PARAMETERS, 2, "deepspeed")
    assert (training.sequence_length, training.global_batch) == (128, 8)
    assert (training.precision.key, training.optimizer.key, training.attention) == ("bf16", "adamw", "flash")
    assert dict(found.plan) == {
        "layout": Layout(data=2), "zero_stage": 2, "optimizer_offload": "none", "parameter_offload": "none",
        "gradient_accumulation_dtype": "bf16", "micro_batch": 2, "checkpoint_interval": 0, "checkpoint_count": 0,
        **PLAIN, **{name: own_size(job, name) for name in SIZES},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("recompute", "expected"),
    [("none", (0, 0)), ("full", (1, 2)), ("partial:1 of 2", (1, 1)), ("partial:0 of 2", (0, 0))],
)
def test_recompute_is_checkpoints_from_the_first_layer_on(
    tmp_path: Path, recompute: str, expected: tuple[int, int]
) -> None:
    plan = case(tmp_path, recompute=recompute).plan
    assert (plan["checkpoint_interval"], plan["checkpoint_count"]) == expected


@pytest.mark.parametrize(
    "cells",
    [
        {"global_batch": ""},  # 2 sequences × 2 times × 2 ranks = 8
        {"micro_batch": ""},  # 8 / (2 times × 2 ranks) = 2
        {"gradient_accumulation": ""},  # 8 / (2 × 2) = 2
        {"data_parallel": "", "tensor_parallel": "1", "pipeline_parallel": "1", "context_parallel": "1"},
    ],
)
def test_what_other_columns_imply_may_be_empty(tmp_path: Path, cells: dict[str, str]) -> None:
    found = case(tmp_path, **cells)
    assert (found.job.training.global_batch, found.plan["micro_batch"]) == (8, 2)


def test_one_gpu_needs_no_degrees_and_no_node(tmp_path: Path) -> None:
    cells = {"gpus": "1", "gpus_per_node": "", "data_parallel": "", "zero_stage": "0", "runtime": "single"}
    found = case(tmp_path, **cells, global_batch="4")
    assert (found.job.cluster.gpus, found.job.runtime.runtime, found.plan["layout"]) == (1, "ddp", Layout(data=1))


@pytest.mark.parametrize(("stated", "expected"), [("2", "bf16"), ("4", "fp32"), ("6", "fp32")])
def test_gradients_of_deepspeed(tmp_path: Path, stated: str, expected: str) -> None:
    assert case(tmp_path, gradient_bytes=stated).plan["gradient_accumulation_dtype"] == expected


def test_names_of_the_log_become_names_of_the_catalog(tmp_path: Path) -> None:
    cells = {"runtime": "fsdp2", "zero_stage": "3", "parameter_bytes": "2", "gradient_bytes": "2", "master_bytes": "0"}
    names = {"optimizer": "adam-bf16-states", "attention": "te-fused", "kernels": "liger;chunked-loss"}
    training = case(tmp_path, **cells, **names).job.training
    assert (training.precision.key, training.optimizer.key) == ("pure-bf16", "adamw-bf16-states")
    assert (training.attention, training.kernels, training.loss) == ("flash", "liger", "chunked")


@pytest.mark.parametrize(
    ("cells", "unknown", "bandwidth"),
    [
        ({}, "", None),
        ({"gpus": "4", "data_parallel": "4", "global_batch": "16"}, "network between nodes not stated", None),
        # 2 × 100 Gbit/s = 25 GB/s for a node
        ({"gpus": "4", "data_parallel": "4", "global_batch": "16", "interconnect": "2x100Gb"}, "", 25e9),
    ],
)
def test_the_network_between_nodes(
    tmp_path: Path, cells: dict[str, str], unknown: str, bandwidth: float | None
) -> None:
    found = case(tmp_path, **cells)
    assert found.time_unknown == unknown
    node = found.job.cluster.node
    assert bandwidth is None or node.nics * node.nic_bandwidth == pytest.approx(bandwidth)


RACK = {"gpu": "gb200-192gb", "gpus": "96", "data_parallel": "96", "global_batch": "384"}


@pytest.mark.parametrize(
    ("cells", "per_node"),
    [
        ({"gpus_per_node": ""}, 48),  # NVLink joins 72; the most that divide 96
        ({"gpus_per_node": "4"}, 4),
        ({"gpus_per_node": "4", "interconnect": "NVLink5 (NVL72), 400Gb/s per GPU"}, 48),
        ({"gpus_per_node": "", "gpu": "a100-sxm-80gb"}, 8),
    ],
)
def test_one_link_may_join_machines(tmp_path: Path, cells: dict[str, str], per_node: int) -> None:
    assert case(tmp_path, **{**RACK, **cells}).job.cluster.gpus_per_node == per_node


@pytest.mark.parametrize(
    ("cells", "watts", "unknown"),
    [
        ({"gpu": "b200-180gb"}, 1000, ""),
        ({"gpu": "b200-180gb", "notes": "power-limited B200"}, 700, ""),
        ({"notes": "power limited"}, 400, "power limit of the GPU not stated"),
    ],
)
def test_gpus_held_below_their_power(tmp_path: Path, cells: dict[str, str], watts: int, unknown: str) -> None:
    found = case(tmp_path, **cells)
    assert (found.job.cluster.gpu.power_watts, found.time_unknown) == (watts, unknown)


@pytest.mark.parametrize(
    ("cells", "scaling"),
    [
        ({"notes": "float8 rowwise, bf16 all-gather"}, "row"),
        ({"notes": "float8 tensorwise"}, "tensor"),
        ({"notes": "rowwise", "precision": "bf16"}, "tensor"),
    ],
)
def test_what_shares_a_scale_stands_in_the_notes(tmp_path: Path, cells: dict[str, str], scaling: str) -> None:
    job = case(tmp_path, **{"gpu": "h100-sxm-80gb", "precision": "fp8", **cells}).job
    assert job.training.fp8_scaling == scaling


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ({"runtime": ""}, "runtime not stated"),
        ({"runtime": "colossalai"}, "runtime colossalai"),
        ({"gpus": ""}, "gpus not stated"),
        ({"tensor_parallel": "2"}, "ranks do not multiply to gpus"),
        ({"tensor_parallel": "2", "data_parallel": "1", "pipeline_parallel": "1", "context_parallel": "1",
          "runtime": "ddp"}, "tensor parallelism under ddp"),
        ({"tensor_parallel": "1", "data_parallel": "1", "pipeline_parallel": "2", "context_parallel": "1"},
         "pipeline parallelism under deepspeed"),
        ({"tensor_parallel": "1", "data_parallel": "1", "pipeline_parallel": "1", "context_parallel": "2",
          "runtime": "ddp"}, "sequence parallelism under ddp"),
        ({"expert_parallel": "2"}, "expert parallelism under deepspeed"),
        ({"expert_parallel": "4", "runtime": "megatron"}, "expert parallelism beyond the data-parallel ranks"),
        ({"data_parallel": ""}, "tensor_parallel not stated"),
        ({"data_parallel": "1", "tensor_parallel": "1", "pipeline_parallel": "1", "context_parallel": "1"},
         "ranks do not multiply to gpus"),
        ({"gpu": ""}, "gpu not stated"),
        ({"gpu": "a100"}, "unknown GPU a100"),
        ({"gpus": "3", "data_parallel": "3"}, "nodes of unequal size"),
        ({"method": ""}, "method not stated"),
        ({"method": "prefix"}, "method prefix"),
        ({"method": "lora"}, "lora_rank not stated"),
        ({"offload_optimizer": ""}, "offload_optimizer not stated"),
        ({"offload_activations": "cpu"}, "breaks techniques_exist_in_the_runtime"),
        ({"precision": "mxfp8"}, "precision mxfp8"),
        ({"precision": "fp8"}, "a100-sxm-80gb has no fp8"),
        ({"precision": "fp16", "parameter_bytes": "2", "master_bytes": "0"}, "precision pure-fp16"),
        ({"gradient_bytes": "3"}, "gradients of 3 bytes"),
        ({"runtime": "fsdp2", "zero_stage": "3", "gradient_bytes": "2"}, "gradients of 2 bytes"),
        ({"optimizer": "shampoo"}, "optimizer shampoo"),
        ({"attention": "ring"}, "attention ring"),
        ({"kernels": "liger;apex"}, "kernels apex"),
        ({"kernels": "te"}, "kernels te"),
        ({"micro_batch": "", "gradient_accumulation": ""}, "gradient_accumulation not stated"),
        ({"global_batch": "", "micro_batch": ""}, "micro_batch not stated"),
        ({"gradient_accumulation": "3"}, "batch contradicts its parts"),
        ({"architecture": "bert"}, "architecture bert"),
        ({"zero_stage": ""}, "zero_stage not stated"),
        ({"recompute": ""}, "recompute not stated"),
        ({"recompute": "every_2"}, "recompute every_2"),
        ({"recompute": "partial:1 of 3"}, "recompute partial:1 of 3"),
        ({"runtime": "ddp"}, "breaks techniques_exist_in_the_runtime"),
        ({"zero_stage": "0", "gradient_bytes": "4"}, "breaks accumulation_dtype_suits_the_stage"),
    ],
)  # fmt: skip
def test_reasons(tmp_path: Path, cells: dict[str, str], reason: str) -> None:
    with pytest.raises(Skipped) as caught:
        case(tmp_path, **cells)
    assert str(caught.value) == reason


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"date": "2025-07"}, "flash"),  # handed grouped keys, torch's SDPA takes its flash kernel
        ({"date": "2025-06"}, "sdpa"),  # before, keys were repeated for it
        ({}, "sdpa"),  # A100: announced in 2020-11, so of 2022-11
        ({"date": "2025-06", "runtime": "megatron", "zero_stage": "1", "gradient_bytes": "4"}, "flash"),  # its own
    ],
)
def test_an_empty_attention_is_what_torch_picks(tmp_path: Path, cells: dict[str, str], expected: str) -> None:
    assert case(tmp_path, attention="", **cells).job.training.attention == expected


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"kernels": "compile", "date": "2025-03"}, "standard"),
        ({"kernels": "compile", "date": "2025-04"}, "kernel"),
        ({"kernels": "compile;chunked-loss", "date": "2025-04"}, "chunked"),
        ({"kernels": "liger", "date": "2025-04"}, "standard"),
    ],
)
def test_the_loss_of_a_compiled_run_is_compiled_since_training_code_does_so(
    tmp_path: Path, cells: dict[str, str], expected: str
) -> None:
    assert case(tmp_path, **cells).job.training.loss == expected


# ── layouts ──────────────────────────────────────────────────────────────────────────────────────────────────────────

EIGHT = {"gpus": "8", "gpus_per_node": "8", "zero_stage": "1", "global_batch": "16", "gradient_bytes": ""}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        # 8 / (2 · 2 · 1) = 2 data-parallel ranks, stated too
        ({"runtime": "megatron", "tensor_parallel": "2", "pipeline_parallel": "2", "context_parallel": "1",
          "data_parallel": "2", "micro_batch": "2", "gradient_accumulation": "4"},
         Layout(tensor=2, pipeline=2, data=2, whole_stream=True)),
        # a divided stream, two chunks to a stage, context parallelism; what is left is one rank
        ({"runtime": "megatron", "tensor_parallel": "2", "pipeline_parallel": "2", "context_parallel": "2",
          "data_parallel": "", "micro_batch": "2", "gradient_accumulation": "8", "virtual_stages": "2",
          "sequence_parallel_activations": "yes"},
         Layout(tensor=2, pipeline=2, sequence=2, data=1, virtual_stages=2)),
        # FSDP on request
        ({"runtime": "fsdp2", "zero_stage": "3", "tensor_parallel": "2", "pipeline_parallel": "1",
          "context_parallel": "1", "data_parallel": "4", "micro_batch": "2", "gradient_accumulation": "2",
          "sequence_parallel_activations": "yes"},
         Layout(tensor=2, data=4)),
        # the states shared by four ranks of eight; a group of all is the usual one
        ({"runtime": "fsdp2", "zero_stage": "3", "data_parallel": "8", "micro_batch": "2", "shard_group": "4",
          "gradient_accumulation": "1"},
         Layout(data=8, shard=4)),
        ({"runtime": "fsdp2", "zero_stage": "3", "data_parallel": "8", "micro_batch": "2", "shard_group": "8",
          "gradient_accumulation": "1"},
         Layout(data=8)),
    ],
)  # fmt: skip
def test_layouts(tmp_path: Path, cells: dict[str, str], expected: Layout) -> None:
    found = case(tmp_path, **{**EIGHT, **cells})
    assert found.plan["layout"] == expected
    assert found.job.choices["layout"] == (expected,)


def test_every_layer_of_the_longest_stage_is_recomputed(tmp_path: Path) -> None:
    """Two layers in two stages: one checkpoint each."""
    cells = {"tensor_parallel": "4", "pipeline_parallel": "2", "context_parallel": "1", "data_parallel": "1"}
    found = case(tmp_path, **EIGHT, **cells, runtime="megatron", recompute="full", gradient_accumulation="8")
    assert (found.plan["checkpoint_interval"], found.plan["checkpoint_count"]) == (1, 1)


def test_a_node_that_is_not_stated_is_a_usual_one(tmp_path: Path) -> None:
    """Up to eight GPUs share a node."""
    job = case(tmp_path, gpus_per_node="").job
    assert (job.cluster.gpus_per_node, job.cluster.nodes) == (2, 1)


# ── methods, kernels, recomputation ──────────────────────────────────────────────────────────────────────────────────


def trained(job: Job) -> set[str]:
    """Weights of the first layer that carry an adapter."""
    names = (tensor.name for tensor in job.architecture.layers[0].kind.tensors if tensor.trainable)
    return {name.split(".")[1] for name in names}


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ("", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
        ("LoRA on q,v", {"q_proj", "v_proj"}),
        (
            "rank 16; LoRA on query,value,output,mlp",
            {"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
        ),
        ("LoRA on all", {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}),
    ],
)
def test_targets_stand_in_the_notes(tmp_path: Path, notes: str, expected: set[str]) -> None:
    job = case(tmp_path, method="lora", lora_rank="8", notes=notes).job
    assert job.training.method == "lora"
    assert trained(job) == expected


def test_decomposed_adapters(tmp_path: Path) -> None:
    """Outputs of the seven matrices, 4 · 64 + 2 · 256 + 64 = 832, in two layers: that many magnitudes."""
    plain, decomposed = (case(tmp_path, method=method, lora_rank="8").job for method in ("lora", "dora"))
    assert decomposed.trainable_parameters - plain.trainable_parameters == 2 * 832


def test_an_optimizer_in_backward_does_not_clip(tmp_path: Path) -> None:
    cells = {"gpus": "1", "gpus_per_node": "1", "data_parallel": "1", "zero_stage": "0", "runtime": "single"}
    parts = {"global_batch": "2", "micro_batch": "2", "gradient_accumulation": "1"}
    found = case(tmp_path, **cells, **parts, kernels="optimizer-in-backward")
    assert found.plan["optimizer_update"] == "in_backward"
    assert found.job.training.gradient_clipping == 0


FSDP = {"runtime": "fsdp2", "zero_stage": "3", "gradient_bytes": ""}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({**FSDP, "recompute": "selective"}, ("selective", 1, 2)),
        ({**FSDP, "recompute": "full"}, ("full", 1, 2)),
        # Megatron's makes the core attention again, of which flash attention keeps nothing
        ({"runtime": "megatron", "zero_stage": "1", "recompute": "selective"}, ("full", 0, 0)),
    ],
)
def test_selective_recomputation(tmp_path: Path, cells: dict[str, str], expected: tuple[str, int, int]) -> None:
    plan = case(tmp_path, **cells).plan
    assert (plan["recompute_policy"], plan["checkpoint_interval"], plan["checkpoint_count"]) == expected


def test_activations_on_the_host(tmp_path: Path) -> None:
    assert case(tmp_path, **FSDP, offload_activations="cpu").plan["activation_offload"] == "cpu"


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({}, ("huggingface", "standard")),
        ({"kernels": "compile"}, ("compiled", "standard")),
        ({"kernels": "liger;fused-loss"}, ("liger", "fused")),
        # what changes nothing that is counted
        ({"kernels": "expandable-segments"}, ("huggingface", "standard")),
        ({"runtime": "megatron", "zero_stage": "1"}, ("megatron", "standard")),
        # MPT's own code has flash-attn's loss
        ({"architecture": "mpt", "tied_embeddings": "yes"}, ("huggingface", "kernel")),
    ],
)
def test_kernels_and_losses(tmp_path: Path, cells: dict[str, str], expected: tuple[str, str]) -> None:
    training = case(tmp_path, **cells).job.training
    assert (training.kernels, training.loss) == expected


def test_a_reason_prints() -> None:
    """What a log states comes back in reasons, without the characters that turn a terminal around."""
    assert str(Skipped("attention \u202eflash")) == "attention \N{REPLACEMENT CHARACTER}flash"
