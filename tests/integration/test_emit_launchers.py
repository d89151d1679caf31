"""torchrun's and DeepSpeed's own parsers read the commands and the hostfile that are emitted."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")

from planner.emit.targets import emitted
from planner.evaluate import Evaluation, evaluate
from planner.resolve import plain_plan, read_job

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = {"llama-2-7b-8xa100": (1, 8), "llama-2-70b-64xa100": (8, 8)}


def planned(name: str) -> Evaluation:
    found = read_job(EXAMPLES / f"{name}.yaml")
    return evaluate(found, plain_plan(found).changed(zero_stage=3))


def command(text: str, launcher: str) -> list[str]:
    """The words behind the launcher in a script's last line."""
    words = shlex.split(text.splitlines()[-1].replace('"$head"', "host-1").replace('"$@"', "--steps 3"))
    return words[words.index(launcher) + 1 :]


@pytest.mark.parametrize("name", JOBS)
@pytest.mark.parametrize(("target", "file"), [("torchrun", "launch.sh"), ("slurm", "job.sbatch")])
def test_torchrun_reads_the_command(name: str, target: str, file: str) -> None:
    from torch.distributed.run import config_from_args, get_args_parser

    nodes, gpus = JOBS[name]
    read = get_args_parser().parse_args(command(emitted(planned(name), target)[file], "torchrun"))
    assert (read.training_script, read.training_script_args) == ("train.py", ["--steps", "3"])
    configuration = config_from_args(read)[0]
    assert (configuration.min_nodes, configuration.max_nodes, configuration.nproc_per_node) == (nodes, nodes, gpus)
    assert configuration.rdzv_endpoint == ("host-1:29500" if nodes > 1 else configuration.rdzv_endpoint)


@pytest.mark.parametrize("name", JOBS)
def test_deepspeed_reads_command_and_hostfile(name: str, tmp_path: Path) -> None:
    from deepspeed.launcher.runner import fetch_hostfile, parse_args, parse_inclusion_exclusion

    nodes, gpus = JOBS[name]
    files = emitted(planned(name), "deepspeed-launcher")
    read = parse_args(command(files["launch.sh"], "deepspeed"))
    assert (read.user_script, read.user_args) == ("train.py", ["--steps", "3"])
    assert read.num_gpus == gpus
    if nodes == 1:
        return
    (tmp_path / read.hostfile).write_text(files["hostfile"])
    pool = fetch_hostfile(str(tmp_path / read.hostfile))
    assert read.num_nodes == nodes
    assert list(parse_inclusion_exclusion(pool, "", "").values()) == [list(range(gpus))] * nodes
