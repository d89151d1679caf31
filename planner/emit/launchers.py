"""Command lines of the launchers as lists of arguments, and the environment that a run starts in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from planner.evaluate import Evaluation
from planner.job import Job

PORT = 29500
SCRIPT = "train.py"
ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF"  # torch 2.13 c10/cuda/CUDAAllocatorConfig.h; older ones know no other name


def torchrun(job: Job, script: Sequence[str], head: str = "", program: Sequence[str] = ("torchrun",)) -> list[str]:
    """torchrun on one node, or on each node of many that meet at the host `head`.

    Source: torch 2.13 torch/distributed/run.py.
    """
    ranks = f"--nproc_per_node={job.cluster.gpus_per_node}"
    if job.cluster.nodes == 1:
        return [*program, "--standalone", ranks, *script]
    meeting = ["--rdzv_backend=c10d", f"--rdzv_endpoint={head}:{PORT}", f"--rdzv_id={plain_name(job)}"]
    return [*program, f"--nnodes={job.cluster.nodes}", ranks, *meeting, *script]


def deepspeed_launcher(
    job: Job, script: Sequence[str], hostfile: str = "", program: Sequence[str] = ("deepspeed",)
) -> list[str]:
    """DeepSpeed's launcher; `hostfile` names the nodes of many.

    Source: deepspeed 0.19.8 launcher/runner.py.
    """
    ranks = f"--num_gpus={job.cluster.gpus_per_node}"
    if job.cluster.nodes == 1 and not hostfile:
        return [*program, ranks, "--no_local_rank", *script]
    nodes = f"--num_nodes={job.cluster.nodes}"
    return [*program, f"--hostfile={hostfile}", nodes, ranks, "--no_local_rank", *script]


def plain_name(job: Job) -> str:
    """The job's name in letters, digits, dots, dashes and underscores, of which no shell or scheduler makes more."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", job.name).lstrip("-.")[:100] or "job"


def environment(evaluation: Evaluation, folder: str = ".") -> Mapping[str, str]:
    """What every rank finds in its environment; `folder` holds the emitted files.

    Threads per rank are the node's cores over its ranks, where the catalog knows the cores: the update of offloaded
    states runs on them. Segments of torch's allocator that grow waste less than those of a fixed size
    (catalogs/software.yaml); on NVIDIA GPUs, where torch has them.
    """
    job = evaluation.job
    cores = job.cluster.node.cpu_cores
    threads = {"OMP_NUM_THREADS": str(max(1, cores // job.cluster.gpus_per_node))} if cores else {}
    configured = {"PLANNER_DEEPSPEED": f"{folder}/deepspeed.json"} if job.runtime.runtime == "deepspeed" else {}
    segments = {ALLOCATOR: "expandable_segments:True"} if job.cluster.gpu.vendor == "nvidia" else {}
    return {"PLANNER_PLAN": f"{folder}/plan.json", **configured, **threads, **segments}


def shell(arguments: Sequence[str], raw: Sequence[str] = ()) -> str:
    """One line of a shell script; `raw` words such as `"$@"` go in as they are."""
    return " ".join([shlex.join(arguments), *raw]).strip()


def exports(variables: Mapping[str, str]) -> str:
    """Lines that export `variables` in a shell script."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in variables.items())
