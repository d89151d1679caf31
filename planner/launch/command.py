"""The command of a run: which launcher, its arguments as a list, and the environment of the ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.emit.launchers import deepspeed_launcher, environment, torchrun
from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.files import file_bytes
from planner.launch.programs import program
from planner.units import MIB

TORCHRUN = (sys.executable, "-m", "torch.distributed.run")
DEEPSPEED = (sys.executable, "-m", "deepspeed.launcher.runner")
RUN = "{run}"
LARGEST_HOSTFILE = 16 * MIB
# Ranks on processors: nothing is compiled, collectives stay on this machine, a thread for each rank.
PROCESSORS: Mapping[str, str] = {
    "PLANNER_DEVICE": "cpu", "DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1",
    "GLOO_SOCKET_IFNAME": "lo",
}  # fmt: skip


@dataclass(frozen=True)
class Command:
    """`arguments` go to the system as they are, never through a shell; `environment` is what is added to it."""

    launcher: str
    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Where:
    """What the user says about where to start: launcher and hostfile, or neither."""

    launcher: str = ""
    hostfile: Path | None = None
    processors: bool = False


def command(evaluation: Evaluation, script: Sequence[str], folder: Path, where: Where) -> Command:
    """The command that runs `script` under the plan; `{run}` in its words is the run folder.

    Raises InputError for a script that is not there, and where nothing says how other nodes are reached.
    """
    if not script or not Path(script[0]).is_file():
        raise InputError(f"there is no script {script[0] if script else ''}".rstrip(), path="--",
                         expected="planner launch JOB -- SCRIPT ARGUMENTS")  # fmt: skip
    absolute = folder.resolve()
    words = [word.replace(RUN, str(absolute)) for word in script]
    name = launcher(evaluation, where)
    added = {**environment(evaluation, str(absolute)), **(PROCESSORS if where.processors else {})}
    if where.hostfile is not None:
        added["DS_ENV_FILE"] = str(absolute / ".deepspeed_env")
    return Command(name, tuple(_arguments(evaluation, name, words, where)), added)


def launcher(evaluation: Evaluation, where: Where) -> str:
    """The launcher: as told, else DeepSpeed's with a hostfile, srun inside a Slurm job of several nodes, torchrun."""
    nodes, runtime = evaluation.job.cluster.nodes, evaluation.job.runtime.runtime
    found = where.launcher or ("deepspeed" if where.hostfile else "torchrun" if nodes == 1 else _several())
    if found == "deepspeed" and runtime != "deepspeed":
        raise InputError(f"DeepSpeed's launcher runs deepspeed, and the job's runtime is {runtime}", path="--launcher",
                         expected="torchrun or srun")  # fmt: skip
    if found != "srun" and nodes > 1 and where.hostfile is None:
        raise InputError(f"the job has {nodes} nodes, and nothing says which", path="--launcher",
                         expected="--hostfile FILE, or a Slurm job of as many nodes")  # fmt: skip
    return found


def _several() -> str:
    """How several nodes are reached when nobody says."""
    return "srun" if "SLURM_JOB_ID" in os.environ else "torchrun"


def _arguments(evaluation: Evaluation, name: str, words: Sequence[str], where: Where) -> list[str]:
    """The whole command line."""
    job = evaluation.job
    if name == "deepspeed":
        hosts = str(where.hostfile.resolve()) if where.hostfile else ""
        return deepspeed_launcher(job, words, hosts, DEEPSPEED)
    inner = torchrun(job, words, first_host() if job.cluster.nodes > 1 else "", TORCHRUN)
    if name == "torchrun":
        return inner
    nodes = [f"--nodes={job.cluster.nodes}", "--ntasks-per-node=1", f"--gpus-per-node={job.cluster.gpus_per_node}"]
    return ["srun", "--kill-on-bad-exit=1", *nodes, *inner]


def first_host() -> str:
    """The first node of the Slurm job. Raises InputError outside of one."""
    nodes = os.environ.get("SLURM_JOB_NODELIST")
    if not nodes:
        raise InputError("SLURM_JOB_NODELIST is not set", path="--launcher", expected="a Slurm job")
    words = [program("scontrol"), "show", "hostnames", nodes]
    found = subprocess.run(words, capture_output=True, text=True, check=False)
    if found.returncode or not found.stdout.split():
        raise InputError(f"scontrol does not name the nodes of {nodes}", path="--launcher", expected="a Slurm job")
    return found.stdout.split()[0]


def _host_lines(path: Path) -> list[str]:
    """The lines of a hostfile. Raises InputError where it is no text."""
    try:
        return file_bytes(path, LARGEST_HOSTFILE, "a hostfile").decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise InputError("not UTF-8 text", str(path), expected="lines `HOST slots=NUMBER`") from None


def check_hostfile(evaluation: Evaluation, path: Path) -> tuple[str, ...]:
    """Where a hostfile has fewer nodes or GPUs than the job, one sentence each. Raises InputError for a bad line."""
    lines = [line.split("#")[0].split() for line in _host_lines(path)]
    slots: list[int] = []
    for number, words in enumerate(lines, start=1):
        if words and (len(words) != 2 or not words[1].removeprefix("slots=").isdecimal()):
            raise InputError("no host", str(path), number, 1, "--hostfile", expected="HOST slots=NUMBER")
        slots += [int(words[1].removeprefix("slots="))] if words else []
    cluster, found = evaluation.job.cluster, []
    if len(slots) < cluster.nodes:
        found.append(f"{len(slots)} hosts in {path}, the job has {cluster.nodes} nodes")
    if min(slots, default=cluster.gpus_per_node) < cluster.gpus_per_node:
        found.append(f"{min(slots)} slots on a host in {path}, the job's node has {cluster.gpus_per_node} GPUs")
    return tuple(found)
