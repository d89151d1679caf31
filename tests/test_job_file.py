"""job.yaml: what it holds after reading, and the whole message for each mistake."""

from __future__ import annotations

from typing import Any

import pytest

from planner.errors import InputError
from planner.job_file import AdapterMethod, BatchRange, JobFile, ModelSize, job_schema, read_job_file

JOB = """\
model: llama-2-7b
cluster:
  node: dgx-a100-80gb
  nodes: 2
  host_memory: 1 TiB
  interconnect: 200 Gbit/s
  nvme: {capacity: 3.84 TB, read: 6 GB/s, write: 3 GB/s}
training:
  sequence_length: 4096
  global_batch: 64
choices:
  zero_stage: [1, 2, 3]
  optimizer_offload: none
"""
WHOLE = "expected a whole number such as 4096, 7e9 or 7B"
MODEL = "expected a catalog name, a path to a config.json, or {parameters: 7e9, layers: 32}"
METHOD = "expected full, {lora: {rank: 16}}, {qlora: {rank: 16}} or {dora: {rank: 16}}"
VALUES = "expected one value or a list of values"


def job(old: str = "", new: str = "") -> JobFile:
    assert old in JOB
    return read_job_file("job.yaml", text=JOB.replace(old, new, 1) if old else JOB)[0]


def test_values_are_in_base_units() -> None:
    settings = job()
    assert settings.model == "llama-2-7b"
    assert settings.cluster.host_memory == 1024**4
    assert settings.cluster.interconnect == 25e9  # 200e9 bit/s / 8
    assert settings.cluster.nvme is not None
    assert settings.cluster.nvme.capacity == 3_840_000_000_000
    assert settings.cluster.nvme.read == 6e9
    assert settings.choices == {"zero_stage": (1, 2, 3), "optimizer_offload": ("none",)}
    assert settings.training.batch_bounds == (64, 64)


def test_defaults() -> None:
    settings = job("choices:\n  zero_stage: [1, 2, 3]\n  optimizer_offload: none\n", "")
    training = settings.training
    assert (training.precision, training.optimizer, training.method) == ("bf16", "adamw", "full")
    assert (training.runtime, training.attention, training.loss) == ("deepspeed", "flash", None)
    assert (training.kernels, training.gradient_clipping, training.frozen_models) == (None, 1.0, ())
    assert (training.method_name, training.adapter) == ("full", None)
    assert (settings.choices, settings.objective, settings.time_limit) == ({}, "step_time", 60.0)
    assert (settings.cluster.gpu_memory, settings.model_path) == (None, None)


def test_every_way_to_say_it() -> None:
    size = job("llama-2-7b", "{parameters: 7e9, layers: 32}").model
    assert isinstance(size, ModelSize)
    assert (size.parameters, size.layers, size.hidden) == (7_000_000_000, 32, None)
    assert job("llama-2-7b", "models/config.json").model_path == "models/config.json"
    batch = job("64", "{min: 32, max: 128}").training
    assert batch.global_batch == BatchRange(min=32, max=128)
    assert batch.batch_bounds == (32, 128)
    lora = job("choices:", "  method: {qlora: {rank: 16}}\nchoices:").training
    assert isinstance(lora.method, AdapterMethod)
    assert lora.adapter is not None and (lora.method_name, lora.adapter.rank) == ("qlora", 16)
    assert job("choices:", "time_limit: 2 min\nchoices:").time_limit == 120.0
    assert job("choices:", "time_limit: 30\nchoices:").time_limit == 30.0
    assert job("node: dgx-a100-80gb", "gpu: a100-sxm-80gb\n  gpus_per_node: 8").cluster.gpus_per_node == 8


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("llama-2-7b", "7", f"1:8: model: 7 is a number; {MODEL}"),
        ("llama-2-7b", "", f"1:7: model: no value is given; {MODEL}"),
        (
            "llama-2-7b",
            "{parameters: 7e9, layrs: 32}",
            "1:26: model.layrs: unknown key 'layrs'; expected one of parameters, layers, hidden, intermediate, heads, "
            "key_value_heads, vocabulary; did you mean 'layers'?",
        ),
        (
            "llama-2-7b",
            "{parameters: 7e9}",
            "1:8: model.layers: missing key 'layers'; expected number of transformer layers",
        ),
        ("llama-2-7b", "{parameters: -1, layers: 32}", f"1:21: model.parameters: -1 is negative; {WHOLE}"),
        (
            "llama-2-7b",
            "{parameters: 7e9, layers: 100001}",
            f"1:34: model.layers: 100001 is beyond the largest value taken here, 100000; {WHOLE}",
        ),
        ("4096", "0", f"9:20: training.sequence_length: 0 is zero; {WHOLE}"),
        ("4096", "-5", f"9:20: training.sequence_length: -5 is negative; {WHOLE}"),
        ("4096", "4096.5", f"9:20: training.sequence_length: 4096.5 is not a whole number; {WHOLE}"),
        ("4096", "true", f"9:20: training.sequence_length: true is a truth value; {WHOLE}"),
        ("4096", ".nan", "9:20: training.sequence_length: .nan is not a finite number; expected a finite number"),
        (
            "4096",
            "10^30",
            f"9:20: training.sequence_length: '10^30' is not written as a number and a unit; {WHOLE}",
        ),
        (
            "4096",
            "1e30",
            f"9:20: training.sequence_length: 1e+30 is beyond the largest value taken here, 1e+09; {WHOLE}",
        ),
        (
            "sequence_length",
            "sequence_lenght",
            "9:3: training.sequence_lenght: unknown key 'sequence_lenght'; did you mean 'sequence_length'?",
        ),
        (
            "64",
            "[1]",
            "10:17: training.global_batch: a list stands here; expected a whole number, or {min: 32, max: 128}",
        ),
        (
            "64",
            "{min: 4, max: 2}",
            "10:23: training.global_batch.min: min 4 is above max 2; expected min of at most max",
        ),
        (
            "64",
            "{min: 4, mx: 3}",
            "10:26: training.global_batch.mx: unknown key 'mx'; expected one of min, max; did you mean 'max'?",
        ),
        (
            "node: dgx-a100-80gb",
            "gpu: a100-sxm-80gb",
            "3:3: cluster.gpus_per_node: missing key 'gpus_per_node'; expected GPUs in one node, with gpu",
        ),
        (
            "node: dgx-a100-80gb",
            "gpu: a100-sxm-80gb\n  node: x",
            "3:8: cluster.gpu: node and gpu exclude each other; expected one of the two",
        ),
        (
            "  node: dgx-a100-80gb\n",
            "",
            "3:3: cluster: no machine is named; expected node: NAME, or gpu: NAME with gpus_per_node: NUMBER",
        ),
        (
            "nodes: 2",
            "gpus_per_node: 4",
            "4:18: cluster.gpus_per_node: the node says how many GPUs it has; expected gpus_per_node with gpu only",
        ),
        ("nodes: 2", "nodes: no", f"4:10: cluster.nodes: 'no' does not start with a number; {WHOLE}"),
        (
            "1 TiB",
            "1 TIB",
            "5:16: cluster.host_memory: '1 TIB' has the unknown unit 'TIB'; expected a memory size such as 80 GiB; "
            "did you mean 'TiB'?",
        ),
        ("1 TiB", "1024", "5:16: cluster.host_memory: 1024 has no unit; expected a memory size such as 80 GiB"),
        (
            "200 Gbit/s",
            "200 Gb/s",
            "6:17: cluster.interconnect: '200 Gb/s' has the unknown unit 'Gb/s'; expected a bandwidth such as "
            "25 GB/s or 200 Gbit/s; did you mean 'Gbit/s'?",
        ),
        (
            "read: 6",
            "raed: 6",
            "7:29: cluster.nvme.raed: unknown key 'raed'; expected one of capacity, read, write; did you mean 'read'?",
        ),
        ("[1, 2, 3]", "[]", f"12:15: choices.zero_stage: the list is empty; {VALUES}"),
        ("[1, 2, 3]", "[1, 1]", "12:19: choices.zero_stage[1]: 1 stands twice; expected each value once"),
        ("[1, 2, 3]", "[1, [2]]", "12:19: choices.zero_stage[1]: a list stands here; expected a value"),
        (
            "none",
            "~",
            f"13:22: choices.optimizer_offload: no value is given; {VALUES}; "
            "for the technique none, write the word none",
        ),
        (
            "choices:",
            "objective: memroy\nchoices:",
            "11:12: objective: 'memroy' is not valid; expected one of step_time, "
            "tokens_per_second, memory, cost_per_token, cost; did you mean 'memory'?",
        ),
        ("choices:", "time_limit: 0\nchoices:", "11:13: time_limit: 0 is zero; expected a number above 0"),
        (
            "choices:",
            "  precision: bf61\nchoices:",
            "11:14: training.precision: 'bf61' is not valid; expected one of fp32, fp16, bf16, pure-bf16, fp8; "
            "did you mean 'bf16'?",
        ),
        (
            "choices:",
            "  precision: [bf16]\nchoices:",
            "11:14: training.precision: a list stands here; expected one of fp32, fp16, bf16, pure-bf16, fp8",
        ),
        (
            "choices:",
            "  method: lora\nchoices:",
            f"11:11: training.method: 'lora' is not valid; {METHOD}; write {{lora: {{rank: 16}}}}",
        ),
        (
            "choices:",
            "  method: {lora: 16}\nchoices:",
            "11:18: training.method.lora: 16 is a number; expected a mapping",
        ),
        (
            "choices:",
            "  method: {lroa: {rank: 16}}\nchoices:",
            "11:12: training.method.lroa: unknown key 'lroa'; expected one of lora, qlora, dora; did you mean 'lora'?",
        ),
        (
            "choices:",
            "  method: {lora: {rnk: 16}}\nchoices:",
            "11:19: training.method.lora.rnk: unknown key 'rnk'; expected one of rank, targets, "
            "train_embeddings; did you mean 'rank'?",
        ),
        ("choices:", "  method: {}\nchoices:", f"11:11: training.method: one method is needed; {METHOD}"),
        (
            "choices:",
            "  optimizer: 5\nchoices:",
            '11:14: training.optimizer: 5 is a number; expected a name; put it in quotes: "..."',
        ),
        (
            "choices:",
            "choises:",
            "11:1: choises: unknown key 'choises'; expected one of model, cluster, training, choices, allow, limits, "
            "objective, time_limit; did you mean 'choices'?",
        ),
        (
            "choices:",
            "model: x\nchoices:",
            "11:1: model: the key 'model' stands twice, first at 1:1; expected each key once",
        ),
        (
            "choices:",
            "objective: [step_time, cost]\nchoices:",
            "11:12: objective.then: step_time and cost rise and fall together on one cluster; expected memory as one "
            "of the two",
        ),
        (
            "choices:",
            "objective: [memory]\nchoices:",
            "11:12: objective: the list has 1 entries; expected one objective, [step_time, memory] or {first: "
            "step_time, within: 1 %, then: memory}",
        ),
        (
            "choices:",
            "objective: {first: memory, within: 3, then: step_time}\nchoices:",
            "11:36: objective.within: 3 is not a share below 1; expected a share such as 1 % or 0.01",
        ),
        (
            "choices:",
            "limits: {step_time_at_most: 2}\nchoices:",
            "11:29: limits.step_time_at_most: 2 has no unit; expected a time such as 10 us or 1.5 s",
        ),
        (
            "choices:",
            "limits: {memory_headroom: much}\nchoices:",
            "11:27: limits.memory_headroom: 'much' does not start with a number; expected a memory size such as 80 GiB",
        ),
        (JOB, "- a", "1:1: a list stands here; expected a mapping"),
        (JOB, "{}", f"1:1: model: missing key 'model'; {MODEL}"),
    ],
)
def test_mistakes_name_place_expectation_and_nearest_spelling(old: str, new: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        job(old, new)
    assert str(caught.value) == f"job.yaml:{expected}"


def test_json_job_files_have_places_too() -> None:
    text = '{\n "model": "llama-2-7b",\n "cluster": {"node": "dgx-h100"},\n "training": {"sequence_length": 0}\n}'
    with pytest.raises(InputError) as caught:
        read_job_file("job.json", text=text)
    assert str(caught.value) == f"job.json:4:34: training.sequence_length: 0 is zero; {WHOLE}"


def test_schema_describes_every_field() -> None:
    schema = job_schema()
    definitions: dict[str, Any] = {"JobFile": schema, **schema["$defs"]}
    assert sorted(definitions) == [
        "Adapter", "AdapterMethod", "AllowSettings", "BatchRange", "ClusterSettings", "JobFile", "LimitSettings",
        "ModelSize", "NvmeOverride", "ObjectivePair", "TrainingSettings",
    ]  # fmt: skip
    for name, definition in definitions.items():
        assert definition["additionalProperties"] is False, name
        assert definition["description"], name
        for field, details in definition["properties"].items():
            assert details.get("description"), f"{name}.{field}"
