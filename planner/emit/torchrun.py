"""A script that starts a plan with torchrun, on one node or once on each of many."""

from __future__ import annotations

from collections.abc import Mapping

from planner.emit import run_files
from planner.emit.launchers import SCRIPT, environment, exports, shell, torchrun
from planner.evaluate import Evaluation

TARGET = "torchrun"
RUNTIMES = run_files.RUNTIMES
EXPRESSES = run_files.EXPRESSES


def files(evaluation: Evaluation) -> Mapping[str, str]:
    """launch.sh and the configuration that the ranks read."""
    return {"launch.sh": _script(evaluation), **run_files.files(evaluation)}


def _script(evaluation: Evaluation) -> str:
    """The script; with more than one node its first argument is the host where they meet."""
    job = evaluation.job
    lines = ["#!/bin/sh", "set -eu", 'cd "$(dirname "$0")"', exports(environment(evaluation)).rstrip("\n")]
    if job.cluster.nodes == 1:
        lines.append(shell(["exec", *torchrun(job, [SCRIPT])], ['"$@"']))
    else:
        lines.append(f"# Run this on each of the {job.cluster.nodes} nodes: ./launch.sh HOST_OF_THE_FIRST [ARGUMENTS]")
        lines.append('head="${1:?host of the first node}"; shift')
        lines.append(shell(["exec", *torchrun(job, [SCRIPT], "HEAD")], ['"$@"']).replace("=HEAD:", '="$head":'))
    return "\n".join(lines) + "\n"
