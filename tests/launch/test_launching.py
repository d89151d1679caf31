"""Run folders, commands as lists, exit codes, signals; the launcher itself is replaced by small Python programs."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from jobs import job, plan

from planner.emit.launchers import ALLOCATOR, environment, torchrun
from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.launch.command import Command, Where, check_hostfile, command
from planner.launch.folder import RunFolder, default_path
from planner.launch.launching import Launch, command_text, prepare, start
from planner.launch.machine import Machine
from planner.units import GIB

A100 = ("NVIDIA A100-SXM4-80GB", 85_000_000_000)
HERE = Machine((A100, A100), 2048 * GIB)


@pytest.fixture
def planned() -> Evaluation:
    found = job()
    return evaluate(found, plan(found, zero_stage=2))


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train it.py"
    path.write_text("")
    return str(path)


def program(planned: Evaluation, folder: Path, code: str, **changes: object) -> Launch:
    """A launch whose launcher is a Python program."""
    found = Command("torchrun", (sys.executable, "-c", code), {"PLANNER_PLAN": str(folder / "plan.json")})
    return Launch(planned, found, folder, **{"disagreements": (), **changes})  # type: ignore[arg-type]


def status(folder: Path) -> dict[str, object]:
    read: dict[str, object] = json.loads((folder / "status.json").read_text())
    return read


def test_arguments_are_a_list_and_stay_as_they_are(planned: Evaluation, script: str, tmp_path: Path) -> None:
    words = [script, "--text", "a b; rm -rf $HOME", "--out", "{run}/model"]
    found = prepare(planned, words, tmp_path / "run", Where(), HERE)
    assert found.command.arguments == (
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", script, "--text",
        "a b; rm -rf $HOME", "--out", f"{tmp_path}/run/model",
    )  # fmt: skip
    assert found.command.environment["PLANNER_DEEPSPEED"] == f"{tmp_path}/run/deepspeed.json"
    assert "'a b; rm -rf $HOME'" in command_text(found)
    assert not (tmp_path / "run").exists()


def test_a_finished_run(planned: Evaluation, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    code = "import json, os; json.load(open(os.environ['PLANNER_PLAN']))"
    assert start(program(planned, folder, code)) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "command.json", "deepspeed.json", "plan.json", "status.json", "versions.json",
    ]  # fmt: skip
    found = status(folder)
    assert (found["state"], found["exit_code"]) == ("finished", 0)
    assert json.loads((folder / "command.json").read_text())["arguments"][0] == sys.executable


def test_the_exit_code_is_kept(planned: Evaluation, tmp_path: Path) -> None:
    assert start(program(planned, tmp_path / "run", "import sys; sys.exit(7)")) == 7
    assert (status(tmp_path / "run")["state"], status(tmp_path / "run")["exit_code"]) == ("failed", 7)


def test_a_killed_launcher_counts_as_in_a_shell(planned: Evaluation, tmp_path: Path) -> None:
    assert start(program(planned, tmp_path / "run", "import os; os.kill(os.getpid(), 9)")) == 128 + 9


def test_signals_are_passed_on(planned: Evaluation, tmp_path: Path) -> None:
    """The program leaves with 3 when it is interrupted; the folder says which signal it was."""
    code = (
        "import signal, sys, time\nsignal.signal(signal.SIGINT, lambda *_: sys.exit(3))\n"
        f"open({str(tmp_path / 'ready')!r}, 'w').close()\ntime.sleep(60)"
    )

    def interrupt() -> None:
        while not (tmp_path / "ready").exists():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=interrupt)
    thread.start()
    assert start(program(planned, tmp_path / "run", code)) == 3
    thread.join()
    found = status(tmp_path / "run")
    assert (found["state"], found["signal"], found["exit_code"]) == ("interrupted", "SIGINT", 3)
    assert signal.getsignal(signal.SIGINT) is before


def test_an_interrupt_while_files_are_written(
    planned: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.launch.launching.versions", lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert start(program(planned, tmp_path / "run", "")) == 128 + signal.SIGTERM
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["status.json"]
    assert (status(tmp_path / "run")["state"], status(tmp_path / "run")["signal"]) == ("interrupted", "SIGTERM")


def test_a_launcher_that_is_not_there(planned: Evaluation, tmp_path: Path) -> None:
    launch = program(planned, tmp_path / "run", "")
    with pytest.raises(InputError) as caught:
        start(replace(launch, command=replace(launch.command, arguments=("no-such-launcher",))))
    assert str(caught.value) == "--launcher: no-such-launcher cannot be started: No such file or directory"
    assert status(tmp_path / "run")["state"] == "failed"


def test_another_machine_is_refused_unless_told_otherwise(planned: Evaluation, script: str, tmp_path: Path) -> None:
    found = prepare(planned, [script], tmp_path / "run", Where(), Machine((A100,), 2048 * GIB))
    with pytest.raises(InputError) as caught:
        start(found)
    assert str(caught.value) == (
        "cluster: this machine is not what the job says: 1 GPU here, the job's node has 2; "
        "--anyway starts it all the same"
    )
    assert not (tmp_path / "run").exists()
    assert start(program(planned, tmp_path / "run", "", disagreements=("1 GPU",)), anyway=True) == 0


def test_a_folder_with_a_run_is_refused(planned: Evaluation, tmp_path: Path) -> None:
    RunFolder(tmp_path / "run")
    with pytest.raises(InputError) as caught:
        start(program(planned, tmp_path / "run", ""))
    assert str(caught.value) == f"--run: {tmp_path / 'run'} holds a run already; name another folder"


def test_no_gpu_means_processors_for_a_small_job(planned: Evaluation, script: str, tmp_path: Path) -> None:
    found = prepare(planned, [script], tmp_path / "run", Where(), Machine((), 64 * GIB))
    assert found.rehearsal == "no GPU here: this small job is rehearsed on processors"
    assert found.command.environment["PLANNER_DEVICE"] == "cpu"
    assert found.disagreements == ()
    forced = prepare(planned, [script], tmp_path / "run", Where(processors=True), HERE)
    assert forced.rehearsal == "the ranks run on processors, as --cpu says"


def test_a_script_that_is_not_there(planned: Evaluation, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        command(planned, ["nothing.py"], tmp_path, Where())
    assert str(caught.value) == "--: there is no script nothing.py; expected planner launch JOB -- SCRIPT ARGUMENTS"


def several() -> Evaluation:
    found = job(cluster={"node": "dgx-a100-80gb", "nodes": 2}, training={"global_batch": 16})
    return evaluate(found, plan(found))


def test_several_nodes_have_to_be_named(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    with pytest.raises(InputError) as caught:
        prepare(several(), [script], tmp_path / "run", Where())
    assert str(caught.value) == (
        "--launcher: the job has 2 nodes, and nothing says which; expected --hostfile FILE, or a Slurm job of as many "
        "nodes"
    )


def test_a_hostfile_starts_deepspeeds_launcher(script: str, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("one slots=8\ntwo slots=8  # second\n")
    found = prepare(several(), [script], tmp_path / "run", Where(hostfile=hosts))
    assert found.disagreements == ()
    assert found.command.arguments[3:7] == (
        f"--hostfile={hosts}", "--num_nodes=2", "--num_gpus=8", "--no_local_rank",
    )  # fmt: skip
    assert found.command.environment["DS_ENV_FILE"] == f"{tmp_path}/run/.deepspeed_env"


def test_a_hostfile_of_too_few(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("one slots=4\n")
    assert check_hostfile(several(), hosts) == (
        f"1 hosts in {hosts}, the job has 2 nodes", f"4 slots on a host in {hosts}, the job's node has 8 GPUs",
    )  # fmt: skip
    hosts.write_text("one\n")
    with pytest.raises(InputError) as caught:
        check_hostfile(several(), hosts)
    assert str(caught.value) == f"{hosts}:1:1: --hostfile: no host; expected HOST slots=NUMBER"


def test_srun_starts_torchrun_on_each_node(script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """scontrol names the nodes of the allocation; the first is where the ranks meet."""
    fake = tmp_path / "scontrol"
    fake.write_text("#!/bin/sh\necho gpu-7\necho gpu-8\n")
    fake.chmod(0o755)
    for name, value in (
        ("PATH", f"{tmp_path}:{os.environ['PATH']}"), ("SLURM_JOB_ID", "1"), ("SLURM_JOB_NODELIST", "gpu-[7-8]"),
        ("SLURM_JOB_NUM_NODES", "1"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    found = prepare(several(), [script], tmp_path / "run", Where())
    assert found.command.arguments[:5] == (
        "srun", "--kill-on-bad-exit=1", "--nodes=2", "--ntasks-per-node=1", "--gpus-per-node=8",
    )  # fmt: skip
    assert "--rdzv_endpoint=gpu-7:29500" in found.command.arguments
    assert found.disagreements == ("1 nodes in this Slurm job, the job has 2",)


def test_torchrun_alone() -> None:
    assert torchrun(job(), ["a.py"]) == ["torchrun", "--standalone", "--nproc_per_node=2", "a.py"]


def test_a_new_folder_for_each_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = default_path("tiny")
    first.mkdir(parents=True)
    assert first.parts[0] == "runs" and first.name.startswith("tiny-")
    assert default_path("tiny") != first


def test_the_allocator_is_told_unless_the_user_did(
    planned: Evaluation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Segments that grow on NVIDIA's GPUs; other GPUs have none."""
    assert environment(planned)[ALLOCATOR] == "expandable_segments:True"
    other = job(cluster={"gpu": "mi300x-192gb"})
    assert ALLOCATOR not in environment(evaluate(other, plan(other, zero_stage=2)))
    code = f"import os; open('told', 'a').write(os.environ[{ALLOCATOR!r}] + '\\n')"
    monkeypatch.chdir(tmp_path)
    for index, own in enumerate((None, "max_split_size_mb:64")):
        monkeypatch.delenv(ALLOCATOR, raising=False)
        if own:
            monkeypatch.setenv(ALLOCATOR, own)
        found = program(planned, tmp_path / str(index), code)
        told = replace(found.command, environment={**found.command.environment, **environment(planned)})
        assert start(replace(found, command=told)) == 0
    assert (tmp_path / "told").read_text() == "expandable_segments:True\nmax_split_size_mb:64\n"
