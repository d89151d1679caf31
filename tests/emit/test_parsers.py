"""Emitted scripts and manifests under the rules of what reads them: shells, Slurm, Kubernetes, Megatron-LM.

None of the last three can be installed beside the tests: options and schema are facts of their public sources, which
stand in tests/data.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import job, plan

from planner.emit.kubernetes import name_of
from planner.emit.targets import emitted
from planner.evaluate import Evaluation, evaluate
from planner.launch.command import Where, command
from planner.plan import Layout
from planner.resolve import plain_plan, read_job

DATA = Path(__file__).parents[1] / "data"
SLURM = json.loads((DATA / "slurm_options.json").read_text(encoding="utf-8"))
KUBEFLOW = json.loads((DATA / "pytorch_job.json").read_text(encoding="utf-8"))
EXAMPLE = Path(__file__).parents[2] / "examples" / "llama-2-70b-64xa100.yaml"


def small() -> Evaluation:
    """Two GPUs of one node."""
    found = job()
    return evaluate(found, plan(found, zero_stage=2))


def large() -> Evaluation:
    """Eight nodes of eight GPUs."""
    found = read_job(EXAMPLE)
    return evaluate(found, plain_plan(found).changed(zero_stage=3))


@pytest.mark.parametrize("target", ["torchrun", "slurm", "deepspeed-launcher"])
@pytest.mark.parametrize("make", [small, large])
def test_shells_read_the_scripts(make: Any, target: str) -> None:
    for name, text in emitted(make(), target).items():
        if name.endswith((".sh", ".sbatch")):
            shell = text.splitlines()[0].removeprefix("#!")
            found = subprocess.run([shell, "-n"], input=text, text=True, capture_output=True, check=False)
            assert (found.returncode, found.stderr) == (0, "")


# ── Slurm ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def slurm_parser(command: str) -> argparse.ArgumentParser:
    """The options of one of Slurm's commands, with an argument or without."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False, add_help=False)
    for name, (argument, *commands) in SLURM["options"].items():
        if command in commands:
            given: dict[str, Any] = {"action": "store_true"} if argument == "no" else {}
            parser.add_argument(f"--{name}", **(given if argument != "optional" else {"nargs": "?", "const": ""}))
    return parser


def batch_options(text: str) -> argparse.Namespace:
    """What sbatch reads: lines `#SBATCH` before the first command."""
    words: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            break
        words += shlex.split(line.removeprefix("#SBATCH")) if line.startswith("#SBATCH") else []
    return slurm_parser("sbatch").parse_args(words)


@pytest.mark.parametrize(("make", "nodes", "gpus"), [(small, "1", "2"), (large, "8", "8")])
def test_sbatch_reads_every_option(make: Any, nodes: str, gpus: str) -> None:
    found = batch_options(emitted(make(), "slurm")["job.sbatch"])
    assert (found.nodes, found.ntasks_per_node, found.gpus_per_node, found.exclusive) == (nodes, "1", gpus, "")
    assert re.fullmatch(r"\d+[KMGT]?", found.mem)


def steps(words: list[str]) -> argparse.Namespace:
    """What srun reads of a command line: its options, up to the program."""
    options = [word for word in words[1 : words.index("torchrun")] if word.startswith("-")]
    return slurm_parser("srun").parse_args(options)


def test_srun_reads_its_options_in_a_batch_script() -> None:
    line = emitted(large(), "slurm")["job.sbatch"].splitlines()[-1]
    assert vars(steps(shlex.split(line)))["kill_on_bad_exit"] == "1"


def test_srun_reads_its_options_in_a_launch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("planner.launch.command.first_host", lambda: "gpu-7")
    monkeypatch.setattr("planner.launch.command.TORCHRUN", ("torchrun",))
    script = tmp_path / "train.py"
    script.write_text("")
    found = command(large(), [str(script)], tmp_path, Where(launcher="srun"))
    read = steps(list(found.arguments))
    assert (read.nodes, read.ntasks_per_node, read.gpus_per_node) == ("8", "1", "8")


# ── Kubernetes ──────────────────────────────────────────────────────────────────────────────────────────────────────

TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
LABEL = r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?"  # RFC 1035


def misfits(found: Any, schema: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """Where a manifest is not what the operator's schema says: types, fields, what is required, patterns of amounts."""
    if schema.get("int_or_string"):
        if not isinstance(found, (int, str)) or not re.fullmatch(schema.get("pattern", ".*"), str(found)):
            yield f"{path} is no amount"
    elif not isinstance(found, TYPES[schema["type"]]):
        yield f"{path} is no {schema['type']}"
    elif isinstance(found, dict) and ("properties" in schema or "values" in schema):
        yield from (f"{path}.{name} is missing" for name in schema.get("required", ()) if name not in found)
        for name, value in found.items():
            inner = schema.get("properties", {}).get(name) or schema.get("values")
            yield from misfits(value, inner, f"{path}.{name}") if inner else [f"{path}.{name} is not known"]
    elif isinstance(found, list):
        for number, value in enumerate(found):
            yield from misfits(value, schema["items"], f"{path}[{number}]")


@pytest.mark.parametrize(("make", "pods"), [(small, {"Master": 1}), (large, {"Master": 1, "Worker": 7})])
def test_kubernetes_takes_the_manifest(make: Any, pods: dict[str, int]) -> None:
    config, manifest = yaml.safe_load_all(emitted(make(), "kubernetes")["pytorchjob.yaml"])
    assert (config["apiVersion"], config["kind"]) == ("v1", "ConfigMap")
    assert all(isinstance(text, str) for text in config["data"].values())
    assert sum(map(len, config["data"].values())) < 2**20  # what a ConfigMap may hold
    assert (manifest["apiVersion"], manifest["kind"]) == (f"{KUBEFLOW['group']}/v1", KUBEFLOW["kind"])
    assert list(misfits(manifest, KUBEFLOW["schema"])) == []
    assert {name: one["replicas"] for name, one in manifest["spec"]["pytorchReplicaSpecs"].items()} == pods
    assert_admitted(manifest, config["metadata"]["name"])


def assert_admitted(manifest: dict[str, Any], config: str) -> None:
    """What the operator's webhook looks at before it takes a job, and that the pods mount the plan."""
    rules = KUBEFLOW["admission"]
    assert re.fullmatch(LABEL, manifest["metadata"]["name"]) and re.fullmatch(LABEL, config)
    for name, one in manifest["spec"]["pytorchReplicaSpecs"].items():
        assert name in rules["replicas"]
        assert one["replicas"] == rules["masters"] if name == "Master" else one["replicas"] >= 1
        assert one["restartPolicy"] in rules["restart_policies"]
        pod = one["template"]["spec"]
        (container,) = pod["containers"]
        assert container["name"] == rules["container"] and container["image"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert volumes["plan"]["configMap"] == {"name": config}
        gpus = container["resources"]["limits"]
        assert gpus.items() <= container["resources"]["requests"].items()  # devices: requests equal limits


def test_the_schema_bites() -> None:
    manifest = list(yaml.safe_load_all(emitted(small(), "kubernetes")["pytorchjob.yaml"]))[1]
    master = manifest["spec"]["pytorchReplicaSpecs"]["Master"]
    master["replicas"] = "one"
    container = master["template"]["spec"]["containers"][0]
    container["resources"]["limits"]["memory"] = "much"
    del container["name"]
    container["comand"] = []
    place = ".spec.pytorchReplicaSpecs.Master"
    assert list(misfits(manifest, KUBEFLOW["schema"])) == [
        f"{place}.replicas is no integer", f"{place}.template.spec.containers[0].name is missing",
        f"{place}.template.spec.containers[0].resources.limits.memory is no amount",
        f"{place}.template.spec.containers[0].comand is not known",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "label"),
    [("llama-2-7b", "llama-2-7b"), ("7B run!", "job-7b-run"), ("___", "job"), ("x" * 49 + "-y", "x" * 49)],
)
def test_names_begin_with_a_letter_and_end_with_none_but_letters_and_digits(name: str, label: str) -> None:
    assert name_of(replace(job(), name=name)) == label


# ── Megatron-LM ─────────────────────────────────────────────────────────────────────────────────────────────────────

# github:NVIDIA/Megatron-LM@d98e8a6: megatron/training/arguments.py, and the fields that it makes arguments of in
# megatron/core/model_parallel_config.py, core/transformer/transformer_config.py, training/config/training_config.py.
NUMBERS = (
    "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size", "expert-model-parallel-size",
    "num-layers-per-virtual-pipeline-stage", "num-distributed-optimizer-instances", "micro-batch-size",
    "global-batch-size", "seq-length", "num-layers", "hidden-size", "num-attention-heads", "recompute-num-layers",
)  # fmt: skip
SWITCHES = (
    "bf16", "fp16", "use-distributed-optimizer", "overlap-grad-reduce", "overlap-param-gather", "sequence-parallel",
    "accumulate-allreduce-grads-in-fp32",
)  # fmt: skip


def megatron_parser() -> argparse.ArgumentParser:
    """What Megatron-LM reads of what is emitted."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in NUMBERS:
        parser.add_argument(f"--{name}", type=int)
    for name in SWITCHES:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--clip-grad", type=float)
    parser.add_argument("--pipeline-model-parallel-layout")
    parser.add_argument("--recompute-granularity", choices=["full", "selective"])
    parser.add_argument("--recompute-method", choices=["uniform", "block"])
    parser.add_argument("--fp8-format", choices=["e4m3", "hybrid"])
    return parser


@pytest.mark.parametrize("layout", [Layout(tensor=8, pipeline=2, data=4), Layout(tensor=4, pipeline=4, virtual_stages=5,
                                                                                 data=4), Layout(data=64)])  # fmt: skip
def test_megatron_reads_the_arguments(layout: Layout) -> None:
    found = large()
    changed = found.plan.changed(layout=layout, micro_batch=1, checkpoint_count=10, checkpoint_interval=2)
    megatron = found.job.runtime.model_copy(update={"runtime": "megatron"})
    text = emitted(replace(found, job=replace(found.job, runtime=megatron), plan=changed), "megatron")["megatron.args"]
    read = megatron_parser().parse_args(shlex.split(text))
    assert (read.tensor_model_parallel_size, read.pipeline_model_parallel_size) == (layout.tensor, layout.pipeline)
    assert (read.recompute_method, read.recompute_num_layers, read.bf16) == ("block", 20, True)
