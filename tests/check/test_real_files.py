"""Files that people have written: the severity of each, and every finding that is expected of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import yaml
from files import FOLDER, INDEX

from planner.check.findings import severity
from planner.check.registry import findings
from planner.check.subject import Subject
from planner.check.text import read_source

ENTRIES = {entry["file"]: entry for entry in yaml.safe_load(INDEX.read_text(encoding="utf-8"))}
OFFLOAD, PARAM = "zero_optimization.offload_optimizer", "zero_optimization.offload_param"
LOSS_SCALING = (
    "bf16.auto_cast", "bf16.loss_scale", "bf16.initial_scale_power", "bf16.loss_scale_window", "bf16.hysteresis",
    "bf16.min_loss_scale",
)  # fmt: skip
# The keys that each file's expected remarks are about, in the order of the index.
EXPECTED: Mapping[str, list[str]] = {
    "01": ["zero_optimization", "train_micro_batch_size_per_gpu"],
    "02": ["zero_optimization.stage3_param_persitance_threshold", f"{PARAM}.device", "fp16.loss_scale",
           f"{PARAM}.max_in_cpu"],
    "04": ["zero_optimization.comm_overlap", "train_batch_size", "activation_checkpointing"],
    "05": ["bf16", OFFLOAD],
    "06": ["fp16.enabled", "zero_optimization.sub_group_size", "zero_optimization.stage3_prefetch_bucket_size",
           "zero_optimization.stage3_param_persistence_threshold", "gradient_clipping"],
    "09": ["fp16.enabled", "bf16.enabled"],
    "10": [*LOSS_SCALING, "sequence_parallel"],
    "14": [PARAM],
    "16": ["zero_optimization.reduce_bucket_size", "zero_optimization.sub_group_size",
           "zero_optimization.allgather_bucket_size", "fp16.loss_scale"],
    "17": ["sparse_attention", "optimizer.type", "gradient_accumulation_steps"],
    "18": ["optimizer.type"],
    "19": ["elasticity", "zero_optimization.stage3_prefetch_bucket_size",
           "zero_optimization.stage3_max_live_parameters",
           "zero_optimization.stage3_gather_fp16_weights_on_model_save"],
    "20": ["zero_optimization.stage3_prefetch_bucket_size"],
    "21": [f"{OFFLOAD}.device", "train_batch_size"],
    "22": ["amp", "scheduler.params.total_num_steps"],
    "24": ["zero_optimization.zero_hpz_partition_size", "zero_optimization.zero_quantized_gradients"],
    "25": ["train_batch_size"],
    "27": ["zero_optimization.reduce_bucket_size", "zero_optimization.stage3_prefetch_bucket_size",
           "fp16.initial_scale_power"],
    "28": ["bf16.enabled", "zero_optimization"],
    "29": ["train_batch_size"],
    "30": ["activation_checkpointing.contiguous_memory_optimization", "activation_checkpointing.number_checkpoints"],
    "31": [f"{OFFLOAD}.ratio"],
    "32": [f"{OFFLOAD}.ratio"],
    "33": ["fp16.enabled", "zero_allow_untested_optimizer"],
    "34": ["zero_optimization.stage"],
    "35": ["optimizer.type"],
    "36": ["zero_optimization.leaf_module"],
    "37": ["zero_optimization.reduce_bucket_size"],
    "38": ["data_types.grad_accum_dtype"],
    "40": ["json"],
}  # fmt: skip


@pytest.mark.parametrize("name", ENTRIES)
def test_severity_and_findings(name: str) -> None:
    found = findings(Subject(read_source(FOLDER / name), 8))
    wanted = ENTRIES[name]["severity"]
    assert severity(found) == ("ok" if wanted == "info" else wanted), found
    assert set(EXPECTED[name[:2]]) <= {finding.key for finding in found}


def test_every_file_is_expected() -> None:
    assert sorted(ENTRIES) == sorted(file.name for file in FOLDER.glob("*.json"))
    assert sorted(EXPECTED) == sorted(name[:2] for name in ENTRIES)
