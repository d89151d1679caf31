"""Emitted scripts and manifests under the rules of what reads them: shells, sbatch, Kubernetes, Megatron-LM.

Neither Slurm nor Megatron-LM can be installed here, so that their options are listed from their public sources.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from jobs import job, plan

from planner.emit.targets import emitted
from planner.evaluate import Evaluation, evaluate
from planner.plan import Layout
from planner.resolve import plain_plan, read_job

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


# ── sbatch ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def batch_parser() -> argparse.ArgumentParser:
    """The options of sbatch that a script of whole nodes may use (Slurm 24.05, manual page of sbatch)."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    for name in ("job-name", "output", "error", "partition", "account", "qos", "time", "mem", "constraint", "gres"):
        parser.add_argument(f"--{name}")
    for name in ("nodes", "ntasks", "ntasks-per-node", "gpus-per-node", "cpus-per-task"):
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--exclusive", nargs="?", choices=["", "user", "mcs", "topo"], const="")
    return parser


def batch_options(text: str) -> argparse.Namespace:
    """What sbatch reads: lines `#SBATCH` before the first command."""
    words: list[str] = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            break
        words += shlex.split(line.removeprefix("#SBATCH")) if line.startswith("#SBATCH") else []
    return batch_parser().parse_args(words)


@pytest.mark.parametrize(("make", "nodes", "gpus"), [(small, 1, 2), (large, 8, 8)])
def test_sbatch_reads_every_option(make: Any, nodes: int, gpus: int) -> None:
    found = batch_options(emitted(make(), "slurm")["job.sbatch"])
    assert (found.nodes, found.ntasks_per_node, found.gpus_per_node) == (nodes, 1, gpus)
    assert re.fullmatch(r"\d+[KMGT]?", found.mem)


# ── Kubernetes ──────────────────────────────────────────────────────────────────────────────────────────────────────

# Fields by object: Kubeflow training-operator v1.9 pkg/apis/kubeflow.org/v1 (pytorch_types.go, common_types.go),
# Kubernetes 1.31 core/v1. A trailing ! marks what has to be there.
FIELDS: dict[str, str] = {
    "PyTorchJob": "apiVersion! kind! metadata! spec!",
    "spec": "nprocPerNode runPolicy elasticPolicy pytorchReplicaSpecs!",
    "replica": "replicas restartPolicy template!",
    "pod": "containers! volumes nodeSelector tolerations hostNetwork",
    "container": "name! image! command args env resources volumeMounts",
}
QUANTITY = r"\d+(\.\d+)?(Ki|Mi|Gi|Ti|Pi|Ei|m|k|M|G|T|P|E)?"
LABEL = r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"


def assert_fields(kind: str, found: dict[str, Any]) -> None:
    """Nothing unknown, nothing missing."""
    known = FIELDS[kind].split()
    assert set(found) <= {name.rstrip("!") for name in known}
    assert {name[:-1] for name in known if name.endswith("!")} <= set(found)


@pytest.mark.parametrize(("make", "pods"), [(small, {"Master": 1}), (large, {"Master": 1, "Worker": 7})])
def test_kubernetes_takes_the_manifest(make: Any, pods: dict[str, int]) -> None:
    config, manifest = yaml.safe_load_all(emitted(make(), "kubernetes")["pytorchjob.yaml"])
    assert (config["apiVersion"], config["kind"]) == ("v1", "ConfigMap")
    assert all(isinstance(text, str) for text in config["data"].values())
    assert sum(map(len, config["data"].values())) < 2**20  # what a ConfigMap may hold
    assert (manifest["apiVersion"], manifest["kind"]) == ("kubeflow.org/v1", "PyTorchJob")
    assert_fields("PyTorchJob", manifest)
    assert_fields("spec", manifest["spec"])
    replicas = manifest["spec"]["pytorchReplicaSpecs"]
    assert {name: one["replicas"] for name, one in replicas.items()} == pods
    assert all(re.fullmatch(LABEL, one["metadata"]["name"]) for one in (config, manifest))
    for one in replicas.values():
        assert_fields("replica", one)
        assert one["restartPolicy"] in ("Always", "OnFailure", "Never", "ExitCode")
        assert_pod(one["template"]["spec"], config["metadata"]["name"])


def assert_pod(pod: dict[str, Any], config: str) -> None:
    """One container called pytorch, whose mounts are volumes and whose amounts are quantities."""
    assert_fields("pod", pod)
    (container,) = pod["containers"]
    assert_fields("container", container)
    assert container["name"] == "pytorch"  # the operator looks for it by this name
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["plan"]["configMap"] == {"name": config}
    assert all(isinstance(one["value"], str) for one in container["env"])
    for amounts in container["resources"].values():
        assert all(re.fullmatch(QUANTITY, str(amount)) for amount in amounts.values())


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
