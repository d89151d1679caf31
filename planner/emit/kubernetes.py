"""A Kubeflow PyTorchJob with its configuration in a ConfigMap.

Source: kubeflow/training-operator@6f74c7f (v1.9.0): manifests/base/crds/kubeflow.org_pytorchjobs.yaml,
pkg/webhooks/pytorch/pytorchjob_webhook.go, pkg/controller.v1/pytorch/: it sets PET_NNODES, PET_NPROC_PER_NODE,
PET_NODE_RANK, PET_MASTER_ADDR and PET_MASTER_PORT, which torchrun reads.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.emit import run_files
from planner.emit.launchers import SCRIPT, environment
from planner.emit.yaml_file import yaml_text
from planner.evaluate import Evaluation
from planner.job import Job
from planner.units import MIB

TARGET = "kubernetes"
RUNTIMES = run_files.RUNTIMES
EXPRESSES = run_files.EXPRESSES
IMAGE = "your-registry/your-training-image:tag"
FOLDER = "/planner"


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """pytorchjob.yaml: two documents, the ConfigMap and the PyTorchJob."""
    documents = (config_map(evaluation), pytorch_job(evaluation))
    return {"pytorchjob.yaml": "---\n".join(yaml_text(document) for document in documents)}


def name_of(job: Job) -> str:
    """The job's name as a DNS label that begins with a letter (RFC 1035), which the operator asks for."""
    words = re.sub(r"[^a-z0-9]+", "-", job.name.lower()).strip("-")
    return (words if words[:1].isalpha() else f"job-{words}")[:50].strip("-")


def config_map(evaluation: Evaluation) -> dict[str, Any]:
    """The files that the ranks read."""
    name = f"{name_of(evaluation.job)}-plan"
    data = dict(run_files.files(evaluation))
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pytorch_job(evaluation: Evaluation) -> dict[str, Any]:
    """One pod for each node; the first one is the master."""
    job, pod = evaluation.job, _pod(evaluation)
    replicas = {"Master": _replicas(1, pod)}
    if job.cluster.nodes > 1:
        replicas["Worker"] = _replicas(job.cluster.nodes - 1, pod)
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "metadata": {"name": name_of(job)},
        "spec": {"nprocPerNode": str(job.cluster.gpus_per_node), "pytorchReplicaSpecs": replicas},
    }


def _replicas(count: int, pod: dict[str, Any]) -> dict[str, Any]:
    """Pods that are not started again when they fail."""
    return {"replicas": count, "restartPolicy": "Never", "template": {"spec": pod}}


def _pod(evaluation: Evaluation) -> dict[str, Any]:
    """A pod with all GPUs of a node, the host memory of the ledger, and shared memory for NCCL."""
    gpu, count = evaluation.job.cluster.gpu, evaluation.job.cluster.gpus_per_node
    resource = "amd.com/gpu" if gpu.vendor.lower() == "amd" else "nvidia.com/gpu"
    host = -(-evaluation.ledger["host"].peak.total // MIB)
    container = {
        "name": "pytorch",
        "image": IMAGE,
        "command": ["torchrun", SCRIPT],
        "env": [{"name": name, "value": value} for name, value in environment(evaluation, FOLDER).items()],
        "resources": {"limits": {resource: count}, "requests": {resource: count, "memory": f"{host}Mi"}},
        "volumeMounts": [{"name": "plan", "mountPath": FOLDER}, {"name": "shm", "mountPath": "/dev/shm"}],
    }
    volumes = [
        {"name": "plan", "configMap": {"name": f"{name_of(evaluation.job)}-plan"}},
        {"name": "shm", "emptyDir": {"medium": "Memory"}},
    ]
    return {"containers": [container], "volumes": volumes}
