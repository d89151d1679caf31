"""Clusters as a decision: the minimum over clusters solved alone, what is not solved and why, and every message."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.choosing.answer import chosen_answer, cost
from planner.choosing.bound import least_microseconds
from planner.choosing.choice import Choice, read_choice
from planner.choosing.choosing import Chosen, choose
from planner.choosing.conflict import limits_in_conflict
from planner.choosing.text import chosen_text
from planner.clock import Clock
from planner.errors import InputError, Stopped
from planner.resolve import read_job
from planner.search import best_plan
from tests.commands import run

SMALL = """\
model: {parameters: 30e6, layers: 4, vocabulary: 8000}
cluster:
  CLUSTER
training: {sequence_length: 512, global_batch: 16}
choices: {zero_stage: 1, optimizer_offload: none, parameter_offload: none, activation_offload: none}
"""
THREE = "choose: [{node: aws-p4d.24xlarge, nodes: [1, 2]}, {gpu: l4-24gb, gpus_per_node: 4, gpu_price: 1 USD/hour}]"
# Nothing of these holds a plan of SMALL: memory for a GPU that is smaller than what the libraries take.
TINY = "choose: [{gpu: l4-24gb, gpus_per_node: 1, gpu_memory: 300 MiB}, {node: aws-p4d.24xlarge, gpu_memory: 200 MiB}]"

COUNTS = "expected a whole number, a list of them, or {min: 1, max: 8}"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes SMALL with a cluster and lines behind it."""

    def written(cluster: str, rest: str = "") -> Path:
        path = tmp_path / "job.yaml"
        path.write_text(SMALL.replace("CLUSTER", cluster) + rest, encoding="utf-8")
        return path

    return written


def names(choice: Choice) -> list[str]:
    return [candidate.name for candidate in choice.candidates]


def statuses(found: Chosen) -> dict[str, str]:
    return {outcome.candidate.name: outcome.status for outcome in found.outcomes}


# ── which clusters there are ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ("choose: [{node: dgx-a100-80gb}]", ["1 × dgx-a100-80gb"]),
        ("choose: [{node: dgx-a100-80gb, nodes: [2, 1]}]", ["2 × dgx-a100-80gb", "1 × dgx-a100-80gb"]),
        ("choose: [{node: dgx-a100-80gb, nodes: {min: 1, max: 2}}]", ["1 × dgx-a100-80gb", "2 × dgx-a100-80gb"]),
        ("choose: [{node: dgx-a100-80gb, gpus: 16}]", ["2 × dgx-a100-80gb"]),
        ("choose: [{gpu: l4-24gb, gpus_per_node: 4, gpus: [4, 8]}]", ["1 × 4x-l4-24gb", "2 × 4x-l4-24gb"]),
        ("choose: [{node: dgx-h100}, {node: dgx-h100, nodes: [1, 2]}]", ["1 × dgx-h100", "2 × dgx-h100"]),
        (
            "choose: [{node: dgx-a100-80gb}, {node: dgx-a100-80gb, host_memory: 3 TiB}]",
            ["1 × dgx-a100-80gb", "1 × dgx-a100-80gb (2)"],
        ),
    ],
)  # fmt: skip
def test_counts_become_clusters(write: Write, cluster: str, expected: list[str]) -> None:
    assert names(read_choice(write(cluster))) == expected


def test_a_gpu_stands_for_the_nodes_that_have_it(write: Write) -> None:
    """16 GPUs of machines with 8 are two of them; only what a network joins."""
    found = read_choice(write("choose: [{gpu: h100-sxm-80gb, gpus: 16}]"))
    assert "2 × dgx-h100" in names(found)
    assert all(candidate.gpus == 16 for candidate in found.candidates)


def test_any_gpu_is_every_priced_node(write: Write) -> None:
    found = read_choice(write("gpu: any\n  gpus: 8"))
    assert len(found.candidates) > 20
    assert all(candidate.price_source == "node" for candidate in found.candidates if candidate.job is not None)
    left_out = {candidate.reason for candidate in found.candidates if candidate.job is None}
    assert left_out == {"v100-sxm2-16gb has no bf16", "v100-sxm2-32gb has no bf16", "t4-16gb has no bf16"}


@pytest.mark.parametrize(
    ("cluster", "rest", "message"),
    [
        (
            "choose: []", "",
            "3:11: cluster.choose: no clusters are listed; expected a list such as [{node: NAME, nodes: 2}]",
        ),
        (
            "choose: [1]", "",
            "3:12: cluster.choose[0]: 1 is a number; expected a cluster such as {node: NAME, nodes: 2}",
        ),
        (
            "choose: [{node: x}]\n  nodes: 2", "",
            "4:3: cluster.nodes: 'nodes' stands beside choose; expected choose alone",
        ),
        (
            "choose: [{node: dgx-a100-80gb, nodes: []}]", "",
            f"3:41: cluster.choose[0].nodes: the list is empty; {COUNTS}",
        ),
        (
            "choose: [{node: dgx-a100-80gb, nodes: [1, x]}]", "",
            f"3:45: cluster.choose[0].nodes[1]: 'x' does not start with a number; {COUNTS}",
        ),
        (
            "choose: [{node: dgx-a100-80gb, nodes: {min: 3, max: 2}}]", "",
            "3:47: cluster.choose[0].nodes.min: min 3 is above max 2; expected min of at most max",
        ),
        (
            "choose: [{node: dgx-a100-80gb, nodes: 1, gpus: 8}]", "",
            "3:44: cluster.choose[0].gpus: nodes and gpus exclude each other; expected one of the two",
        ),
        (
            "choose: [{node: dgx-a100-80gb, gpus: 12}]", "",
            "3:40: cluster.choose[0].gpus: 12 GPUs are no multiple of the 8 of one node",
        ),
        (
            "choose: [{gpu: h100-sxm-80gb, gpus: 12}]", "",
            "3:12: cluster.choose[0]: no node of the catalog makes a cluster of 12 GPUs with gpu: h100-sxm-80gb",
        ),
        (
            "choose: [{node: dgx-a100-80g}]", "",
            "3:19: cluster.choose[0].node: unknown node 'dgx-a100-80g'; did you mean 'dgx-a100-80gb'?",
        ),
        (
            "choose: [{node: dgx-a100-80gb, host_memry: 1 TiB}]", "",
            "3:34: cluster.choose[0].host_memry: unknown key 'host_memry'; expected one of node, gpu, gpus_per_node, "
            "nodes, host_memory, host_memory_bandwidth, nvme, interconnect, gpu_memory, gpu_price; did you mean "
            "'host_memory'?",
        ),
        (
            "choose: [{node: dgx-a100-80gb}]", "objective: memory\n",
            "6:12: objective: 'memory' does not choose a cluster; expected one of step_time, cost, smallest, where the "
            "cluster is left open",
        ),
        (
            "choose: [{gpu: rtx4090-24gb, gpus_per_node: 1}]", "objective: cost\n",
            "3:3: cluster: none of the clusters can be planned: 1 × 1x-rtx4090-24gb: no price is known for "
            "rtx4090-24gb; state gpu_price",
        ),
    ],
)  # fmt: skip
def test_mistakes(write: Write, cluster: str, rest: str, message: str) -> None:
    path = write(cluster, rest)
    with pytest.raises(InputError) as caught:
        read_choice(path)
    assert str(caught.value).replace(f"{path}:", "") == message


def test_a_cluster_that_cannot_be_is_left_out(write: Write) -> None:
    """A workstation has no network for a second one."""
    found = read_choice(write("choose: [{node: workstation-2x-rtx4090, nodes: [1, 2]}]"))
    assert [(candidate.name, candidate.reason) for candidate in found.candidates] == [
        ("1 × workstation-2x-rtx4090", ""),
        ("2 × workstation-2x-rtx4090", "node workstation-2x-rtx4090 has no network to reach another node"),
    ]


def test_other_commands_say_who_chooses(write: Write) -> None:
    path = write(THREE)
    with pytest.raises(InputError) as caught:
        read_job(path)
    assert str(caught.value) == (
        f"{path}:3:3: cluster: the cluster is left open; expected one cluster; planner solve chooses one; --out writes "
        "its job"
    )


# ── which is chosen ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("objective", ["step_time", "cost", "smallest"])
def test_the_choice_is_the_best_of_all_clusters_solved_alone(write: Write, objective: str) -> None:
    choice = read_choice(write(THREE, f"objective: {objective}\n"))
    found = choose(choice)
    ranked = []
    for place, candidate in enumerate(choice.candidates):
        assert candidate.job is not None and candidate.price_per_hour is not None
        best = best_plan(candidate.job)
        assert best is not None
        seconds, price, gpus = best.step_time.seconds, candidate.price_per_hour, candidate.gpus
        order = {"step_time": (seconds, price), "cost": (seconds * price,), "smallest": (gpus, price, seconds)}
        ranked.append((order[objective], place, candidate.name, seconds))
    expected = min(ranked)
    assert found.best is not None and found.best.best is not None and found.proven
    assert (found.best.candidate.name, found.best.best.step_time.seconds) == expected[2:]


def test_no_plan_is_below_the_bound(write: Write) -> None:
    for candidate in read_choice(write(THREE)).candidates:
        assert candidate.job is not None
        best = best_plan(candidate.job)
        assert best is not None and 0 < least_microseconds(candidate.job) <= best.step_time.microseconds


def test_a_dear_cluster_is_not_solved(write: Write) -> None:
    """The same machine at a thousand times the price: its bound alone is above the other's cost."""
    dear = "{gpu: l4-24gb, gpus_per_node: 4, gpu_price: 1000 USD/hour}"
    found = choose(read_choice(write(f"choose: [{dear}, {dear.replace('1000', '1')}]", "objective: cost\n")))
    assert statuses(found) == {"1 × 4x-l4-24gb": "not_better", "1 × 4x-l4-24gb (2)": "fits"}
    other = chosen_answer(found)["clusters"][0]
    assert other["because"] == f"costs at least {other['bound_usd_per_million_tokens']:.4f} USD per 10^6 tokens"
    assert found.proven


def test_smallest_stops_at_the_first_that_holds(write: Write) -> None:
    machines = "{node: aws-p4d.24xlarge, nodes: [2, 1]}, {gpu: l4-24gb, gpus_per_node: 1, gpu_memory: 300 MiB}"
    found = choose(read_choice(write(f"choose: [{machines}]", "objective: smallest\n")))
    assert statuses(found) == {
        "2 × aws-p4d.24xlarge": "not_better", "1 × aws-p4d.24xlarge": "fits", "1 × 1x-l4-24gb": "no_plan",
    }  # fmt: skip
    answers = {entry["name"]: entry.get("because") for entry in chosen_answer(found)["clusters"]}
    assert answers == {
        "2 × aws-p4d.24xlarge": "has more GPUs",
        "1 × aws-p4d.24xlarge": None,
        "1 × 1x-l4-24gb": "gpu_memory_holds_every_phase cannot hold",
    }


def test_limits_of_the_job_hold_on_every_cluster(write: Write) -> None:
    """The deadline is the fastest cluster's best step: others miss it."""
    fastest = choose(read_choice(write(THREE))).best
    assert fastest is not None and fastest.best is not None
    seconds = fastest.best.step_time.seconds
    found = choose(read_choice(write(THREE, f"objective: cost\nlimits: {{step_time_at_most: {seconds} s}}\n")))
    assert found.best is not None and found.best.best is not None
    assert found.best.best.step_time.seconds <= seconds
    late = [outcome for outcome in found.outcomes if outcome.status == "no_plan"]
    assert {outcome.conflict for outcome in late} <= {("step_time_is_within_the_deadline",)}
    assert late


def test_a_named_conflict_is_one(write: Write) -> None:
    for candidate in read_choice(write(TINY)).candidates:
        assert candidate.job is not None
        assert limits_in_conflict(candidate.job) == ("gpu_memory_holds_every_phase",)


def test_an_interrupt_keeps_the_best_so_far(write: Write) -> None:
    """After the first cluster, the fastest by its bound; nobody looks at the others."""
    clock = Clock(60.0)

    def interrupt(done: int, _: int) -> None:
        clock.interrupted = True

    found = choose(read_choice(write(THREE)), clock, interrupt)
    assert found.best is not None and found.best.candidate.name == "2 × aws-p4d.24xlarge"
    assert found.stopped == "an interrupt"
    assert list(statuses(found).values()).count("fits") == 1
    assert found.proven == ("not_reached" not in statuses(found).values())
    assert chosen_answer(found)["choice"]["stopped"] == "an interrupt"


def test_time_that_runs_out_before_any_plan_is_told(write: Write) -> None:
    found = choose(read_choice(write(THREE), time_limit=1e-9))
    assert isinstance(found.failure, Stopped)
    assert str(found.failure) == ("stopped without a plan: the time limit of 1e-09 s; 3 of 3 clusters were not solved")


# ── how it is told ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_answer_is_that_of_the_cluster_alone(write: Write, tmp_path: Path) -> None:
    """--out writes the job on the chosen cluster; solved alone it has the same plan and proof."""
    path, out = write(THREE, "objective: cost\n"), tmp_path / "out"
    found = choose(read_choice(path))
    answer = json.loads(json.dumps(chosen_answer(found)))
    assert answer["status"] == "optimal" and answer["choice"]["optimal"]
    assert [entry["status"] for entry in answer["clusters"]].count("fits") >= 1
    assert found.best is not None and found.best.best is not None
    assert answer["choice"]["value"] == cost(found.best.candidate, found.best.best.step_time.seconds)
    from planner.choosing.choice import job_text

    out.mkdir()
    (out / "job.yaml").write_text(job_text(found.choice, found.best.candidate, path), encoding="utf-8")
    alone = best_plan(read_job(out / "job.yaml"))
    assert alone is not None
    assert (alone.plan, alone.step_time) == (found.best.best.plan, found.best.best.step_time)


def test_commands_answer(write: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(THREE, "objective: cost\n")
    code, out, err = run(capsys, "solve", str(path), "--out", str(tmp_path / "out"))
    assert code == 0
    assert out.startswith("3 clusters, the least cost per token is wanted\n\n  cluster ")
    assert "Proven: no plan on any of the clusters is better." in out
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        "deepspeed.json", "job.yaml", "plan.json", "plan.txt",
    ]  # fmt: skip
    code, _, err = run(capsys, "solve", str(path), "--top", "2")
    assert (code, err) == (2, "planner: --top: one plan is told for each cluster; leave --top out\n")


def test_where_none_fits_every_cluster_says_why(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "solve", str(write(TINY)), "--format", "json")
    answer = json.loads(out)
    assert (code, err) == (3, "planner: no plan on any of the 2 clusters: gpu_memory_holds_every_phase\n")
    assert (answer["status"], answer["choice"]["cluster"]) == ("infeasible", None)
    assert [entry["conflict"] for entry in answer["clusters"]] == [["gpu_memory_holds_every_phase"]] * 2


def test_many_clusters_are_told_in_groups(write: Write) -> None:
    found = choose(read_choice(write("gpu: any\n  gpus: [4, 8]", "objective: smallest\n")))
    text = chosen_text(found)
    assert "not better; the closest, " in text
    assert "clusters: left out: t4-16gb has no bf16" in text


def test_the_schema_knows_open_clusters_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "schema")
    schema = json.loads(out)
    closed, choose, alone = schema["properties"]["cluster"]["anyOf"]
    assert (closed, alone) == ({"$ref": "#/$defs/ClusterSettings"}, {"$ref": "#/$defs/OpenCluster"})
    assert choose["properties"]["choose"]["items"] == {"$ref": "#/$defs/OpenCluster"}
    assert {"nodes", "gpus", "gpu", "gpu_price"} <= set(schema["$defs"]["OpenCluster"]["properties"])
    assert schema["properties"]["objective"]["anyOf"][-1]["const"] == "smallest"
    assert schema["properties"]["sweep"]["additionalProperties"]["minItems"] == 1
