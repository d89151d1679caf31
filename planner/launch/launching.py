"""From an evaluated plan to a run: check the machine, fill the run folder, start the launcher, keep how it ended."""

from __future__ import annotations

import json
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.emit import run_files
from planner.emit.deepspeed_launcher import environment_file
from planner.emit.launchers import ALLOCATOR
from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.launch.command import Command, Where, check_hostfile, command
from planner.launch.folder import RunFolder, versions
from planner.launch.machine import Machine, disagreements, processor_disagreements, this_machine
from planner.launch.orphans import end_orphans
from planner.launch.process import Interrupted, Outcome, interruptible, run
from planner.launch.programs import require
from planner.runtime import PLAN


@dataclass(frozen=True, eq=False)
class Launch:
    """A run that can be started: its command, the folder it will fill, and where the machine is not what the job says.

    `rehearsal` says why the ranks run on processors; empty where they run on GPUs.
    """

    evaluation: Evaluation
    command: Command
    folder: Path
    disagreements: tuple[str, ...]
    rehearsal: str = ""


def prepare(
    evaluation: Evaluation, script: Sequence[str], folder: Path, where: Where, machine: Machine | None = None
) -> Launch:
    """The launch of `script` under the plan, with nothing written and nothing started."""
    if where.hostfile is not None:
        found = check_hostfile(evaluation, where.hostfile)
        return Launch(evaluation, command(evaluation, script, folder, where), folder, found)
    if evaluation.job.cluster.nodes > 1 and not where.processors:
        return Launch(evaluation, command(evaluation, script, folder, where), folder, _slurm(evaluation))
    machine = machine or this_machine()
    why = _rehearsal(evaluation, machine, where)
    where = replace(where, processors=bool(why))
    found = processor_disagreements(evaluation, machine) if why else disagreements(evaluation, machine)
    return Launch(evaluation, command(evaluation, script, folder, where), folder, found, why)


def start(
    launch: Launch, anyway: bool = False, more: Mapping[str, str] | None = None, output: Path | None = None
) -> int:
    """Runs the launch to its end and returns its exit code.

    `more` are further files of the run folder; what the ranks say goes to the file `output` where given. Raises
    InputError where the machine is not what the job says and `anyway` is not set, where what the command starts is not
    installed, and where the folder holds another run.
    """
    if launch.disagreements and not anyway:
        raise InputError("this machine is not what the job says: " + "; ".join(launch.disagreements),
                         path="cluster", hint="--anyway starts it all the same")  # fmt: skip
    require(launch.command.arguments)
    folder = RunFolder(launch.folder)
    try:
        with interruptible():
            folder.add({**run_folder_files(launch), **(more or {})})
    except Interrupted as interrupt:
        folder.set("interrupted", signal=signal.Signals(interrupt.number).name, exit_code=128 + interrupt.number)
        return 128 + interrupt.number
    return _run(launch, folder, output)


def _run(launch: Launch, folder: RunFolder, output: Path | None) -> int:
    """Starts the launcher; the folder says how it went. What the user set of the allocator stays."""
    own = {ALLOCATOR: os.environ[ALLOCATOR]} if ALLOCATOR in os.environ else {}
    added = {**os.environ, **launch.command.environment, **own}
    try:
        with output.open("wb") if output else nullcontext() as stream:
            outcome = run(
                launch.command.arguments, added, lambda process: folder.set("running", process=process), stream
            )
    except OSError as error:
        folder.set("failed", reason=f"{launch.command.arguments[0]}: {error.strerror}")
        raise InputError(
            f"{launch.command.arguments[0]} cannot be started: {error.strerror}", path="--launcher"
        ) from None
    orphans = _orphans(launch, outcome)
    folder.set(state_of(outcome), exit_code=outcome.exit_code, **_signal(outcome), **orphans)
    return outcome.exit_code


def _orphans(launch: Launch, outcome: Outcome) -> dict[str, Any]:
    """Ends the ranks of a launcher that was killed, which could not do so itself."""
    plan = launch.command.environment.get(PLAN)
    if outcome.exit_code != 128 + signal.SIGKILL or plan is None:
        return {}
    return {"killed": list(end_orphans(f"{PLAN}={plan}"))}


def state_of(outcome: Outcome) -> str:
    """The status that an outcome leaves."""
    if outcome.signals:
        return "interrupted"
    return "failed" if outcome.exit_code else "finished"


def _signal(outcome: Outcome) -> dict[str, str]:
    """The first signal's name."""
    return {"signal": signal.Signals(outcome.signals[0]).name} if outcome.signals else {}


def run_folder_files(launch: Launch) -> dict[str, str]:
    """Plan, configuration, command and versions."""
    found = dict(run_files.files(launch.evaluation))
    found["command.json"] = _json(command_answer(launch))
    found["versions.json"] = _json(versions())
    if "DS_ENV_FILE" in launch.command.environment:
        found[".deepspeed_env"] = environment_file(launch.command.environment)
    return found


def command_answer(launch: Launch) -> dict[str, Any]:
    """The command for machines: the list of arguments, what is added to the environment, and where it starts."""
    return {
        "launcher": launch.command.launcher,
        "arguments": list(launch.command.arguments),
        "environment": dict(launch.command.environment),
        "working_directory": str(Path.cwd()),
        "rehearsal": launch.rehearsal,
        "disagreements": list(launch.disagreements),
    }


def command_text(launch: Launch) -> str:
    """The command for people, as a shell would take it."""
    lines = [f"# not what the job says: {text}" for text in launch.disagreements]
    lines += [f"# {launch.rehearsal}"] if launch.rehearsal else []
    lines += [f"# run folder: {launch.folder}"]
    lines += [f"{name}={shlex.quote(value)} \\" for name, value in launch.command.environment.items()]
    return "\n".join([*lines, shlex.join(launch.command.arguments)]) + "\n"


def _rehearsal(evaluation: Evaluation, machine: Machine, where: Where) -> str:
    """Why the ranks run on processors: told so, or a small job on a machine without a GPU."""
    if where.processors:
        return "the ranks run on processors, as --cpu says"
    if not machine.gpus and not processor_disagreements(evaluation, machine):
        return "no GPU here: this small job is rehearsed on processors"
    return ""


def _slurm(evaluation: Evaluation) -> tuple[str, ...]:
    """Where the Slurm job has fewer nodes than the planned one; other nodes' GPUs are Slurm's to give."""
    allocated = os.environ.get("SLURM_JOB_NUM_NODES", "")
    nodes = evaluation.job.cluster.nodes
    if allocated.isdecimal() and int(allocated) < nodes:
        return (f"{allocated} nodes in this Slurm job, the job has {nodes}",)
    return ()


def _json(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"
