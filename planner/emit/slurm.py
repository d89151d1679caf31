"""A batch script for Slurm: one torchrun on each node, started by srun.

Source: SchedMD/slurm@284c3b9: src/common/slurm_opt.c, doc/man/man1/sbatch.1 and srun.1 (a step uses all processors of
its nodes unless it asks for some).
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.emit import run_files
from planner.emit.launchers import SCRIPT, environment, exports, plain_name, shell, torchrun
from planner.evaluate import Evaluation
from planner.job import Job

TARGET = "slurm"
RUNTIMES = run_files.RUNTIMES
EXPRESSES = run_files.EXPRESSES


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """job.sbatch and the configuration that the ranks read."""
    return {"job.sbatch": _script(evaluation), **run_files.files(evaluation)}


def _script(evaluation: Evaluation) -> str:
    """The batch script; the first node of the allocation is where the ranks meet."""
    job = evaluation.job
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options(job)), "set -eu"]
    lines.append(exports(environment(evaluation, "$SLURM_SUBMIT_DIR")).rstrip("\n").replace("'", ""))
    if job.cluster.nodes > 1:
        lines.append('head="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"')
    command = shell(["srun", "--kill-on-bad-exit=1", *torchrun(job, [SCRIPT], "HEAD")], ['"$@"'])
    lines.append(command.replace("=HEAD:", '="$head":'))
    return "\n".join(lines) + "\n"


def options(job: Job) -> list[str]:
    """What is asked of Slurm: whole nodes, one task on each, all their memory."""
    cores = job.cluster.node.cpu_cores
    return [
        f"--job-name={plain_name(job)}",
        f"--nodes={job.cluster.nodes}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={job.cluster.gpus_per_node}",
        *([f"--cpus-per-task={cores}"] if cores else []),
        "--mem=0",
        "--exclusive",
        "--output=%x-%j.log",
    ]
