"""What a launch needs and does not find is named with where it comes from."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import job, plan

from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.launch import programs
from planner.launch.command import DEEPSPEED, TORCHRUN, Where, first_host
from planner.launch.launching import prepare, start
from planner.launch.programs import PROGRAMS, packages, program, require

SLURM = "it belongs to Slurm: start from a node of the cluster, or name the nodes with --hostfile FILE"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A path with no program on it; put one there by touching it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(programs, "find_spec", lambda name: name)
    return folder


def put(folder: Path, name: str) -> None:
    (folder / name).write_text("#!/bin/sh\n")
    (folder / name).chmod(0o755)


def several() -> Evaluation:
    found = job(cluster={"node": "dgx-a100-80gb", "nodes": 2}, training={"global_batch": 16})
    return evaluate(found, plan(found))


def message(arguments: tuple[str, ...]) -> str:
    with pytest.raises(InputError) as caught:
        require(arguments)
    return str(caught.value)


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_program_says_where_it_comes_from(name: str, bare: Path) -> None:
    with pytest.raises(InputError) as caught:
        program(name)
    assert str(caught.value) == f"--launcher: there is no program {name} here; {PROGRAMS[name]}"
    put(bare, name)
    assert program(name) == name


def test_without_scontrol_nobody_names_the_nodes(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu-[7-8]")
    with pytest.raises(InputError) as caught:
        first_host()
    assert str(caught.value) == f"--launcher: there is no program scontrol here; {SLURM}"


def test_a_scontrol_that_names_none(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(bare, "scontrol")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gpu-[7-8]")
    with pytest.raises(InputError) as caught:
        first_host()
    assert str(caught.value) == "--launcher: scontrol does not name the nodes of gpu-[7-8]; expected a Slurm job"


def test_srun(bare: Path) -> None:
    assert message(("srun", "--nodes=2", *TORCHRUN)) == f"--launcher: there is no program srun here; {SLURM}"
    put(bare, "srun")
    require(("srun", "--nodes=2", *TORCHRUN))


def test_other_nodes_are_reached_by_pdsh_and_ssh(bare: Path) -> None:
    one, two = ((*DEEPSPEED, "--hostfile=/hosts", f"--num_nodes={nodes}") for nodes in (1, 2))
    require(DEEPSPEED)
    assert message(one) == f"--launcher: there is no program ssh here; {PROGRAMS['ssh']}"
    put(bare, "ssh")
    require(one)
    assert message(two) == f"--launcher: there is no program pdsh here; {PROGRAMS['pdsh']}"
    put(bare, "pdsh")
    require(two)


@pytest.mark.parametrize(("launcher", "package"), [(TORCHRUN, "torch"), (DEEPSPEED, "deepspeed")])
def test_the_launchers_package(launcher: tuple[str, ...], package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "find_spec", lambda name: None)
    told = f"--launcher: {package} is not installed; pip install 'planner[launch]' brings it"
    assert message(launcher) == told


def test_packages_that_are_there() -> None:
    packages("json", "pytest")


def test_a_launch_that_lacks_something_leaves_no_folder(bare: Path, tmp_path: Path) -> None:
    script, hosts = tmp_path / "train.py", tmp_path / "hosts"
    script.write_text("")
    hosts.write_text("one slots=8\ntwo slots=8\n")
    found = prepare(several(), [str(script)], tmp_path / "run", Where(hostfile=hosts))
    with pytest.raises(InputError) as caught:
        start(found)
    assert str(caught.value).startswith("--launcher: there is no program ssh here")
    assert not (tmp_path / "run").exists()
