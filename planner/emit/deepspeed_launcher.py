"""A script for DeepSpeed's own launcher, with its hostfile and the environment it hands to other nodes.

Source: deepspeed 0.19.8 launcher/runner.py (hostfile lines `host slots=N`; `.deepspeed_env` in the working directory).
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.emit import run_files
from planner.emit.launchers import SCRIPT, deepspeed_launcher, environment, exports, shell
from planner.evaluate import Evaluation
from planner.job import Job

TARGET = "deepspeed-launcher"
RUNTIMES = ("deepspeed",)
EXPRESSES = run_files.EXPRESSES


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """launch.sh, the configuration, and for several nodes hostfile and .deepspeed_env."""
    job, found = evaluation.job, dict(run_files.files(evaluation))
    found["launch.sh"] = _script(evaluation)
    if job.cluster.nodes > 1:
        found["hostfile"] = hostfile(job)
        found[".deepspeed_env"] = environment_file(environment(evaluation))
    return found


def hostfile(job: Job, hosts: tuple[str, ...] = ()) -> str:
    """One line for each node; names that nobody gave are node-1, node-2 and so on."""
    names = hosts or tuple(f"node-{number}" for number in range(1, job.cluster.nodes + 1))
    return "".join(f"{name} slots={job.cluster.gpus_per_node}\n" for name in names)


def environment_file(variables: Mapping[str, str]) -> str:
    """Lines `NAME=value`."""
    return "".join(f"{name}={value}\n" for name, value in variables.items())


def _script(evaluation: Evaluation) -> str:
    """The script; it runs on the first node, which reaches the others by ssh."""
    job = evaluation.job
    hosts = "hostfile" if job.cluster.nodes > 1 else ""
    lines = ["#!/bin/sh", "set -eu", 'cd "$(dirname "$0")"', exports(environment(evaluation)).rstrip("\n")]
    lines.append(shell(["exec", *deepspeed_launcher(job, [SCRIPT], hosts)], ['"$@"']))
    return "\n".join(lines) + "\n"
