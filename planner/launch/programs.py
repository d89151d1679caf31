"""What a launch needs beside planner: programs on the path, and packages of this Python.

Source: deepspeed 0.19.8 launcher/runner.py (ssh to the first host of a hostfile, pdsh to several).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from shutil import which

from planner.errors import InputError

# Where each program comes from, for those who miss it.
PROGRAMS = {
    "scontrol": "it belongs to Slurm: start from a node of the cluster, or name the nodes with --hostfile FILE",
    "srun": "it belongs to Slurm: start from a node of the cluster, or name the nodes with --hostfile FILE",
    "pdsh": "DeepSpeed's launcher reaches other nodes with it: install pdsh, or start with --launcher srun under Slurm",
    "ssh": "DeepSpeed's launcher reaches other nodes with it: install an OpenSSH client",
}
# The package that each module of a launcher is in.
MODULES = {"torch.distributed.run": "torch", "deepspeed.launcher.runner": "deepspeed"}
INSTALL = "pip install 'planner[launch]' brings it"


def program(name: str) -> str:
    """The name of a program that is there. Raises InputError with where it comes from."""
    if which(name) is None:
        raise InputError(f"there is no program {name} here", path="--launcher", hint=PROGRAMS[name])
    return name


def packages(*names: str) -> None:
    """Raises InputError for the first package that this Python does not have."""
    for name in names:
        if find_spec(name) is None:
            raise InputError(f"{name} is not installed", path="--launcher", hint=INSTALL)


def require(arguments: Sequence[str]) -> None:
    """What the command line starts is there: Slurm's programs, the launcher's package, the way to other nodes.

    Raises InputError for the first that is not.
    """
    if arguments[0] in PROGRAMS:
        program(arguments[0])
    packages(*(MODULES[word] for word in arguments if word in MODULES))
    if any(word.startswith("--hostfile=") for word in arguments):
        program("ssh")
        if "--num_nodes=1" not in arguments:
            program("pdsh")
