"""Answers that contradict themselves are caught: each figure of a true answer is changed, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest

from planner.answer import conflict_answer, evaluation_answer, solution_answer
from planner.errors import InternalError, NoPlan
from planner.evaluate import evaluate
from planner.plan import Layout
from planner.search import solve
from planner.second_reading import disagreements, read_again
from tests.jobs import job, plan, random_job, random_plan

Answer = dict[str, Any]
PIPED = {"runtime": "megatron", "sequence_length": 512, "global_batch": 8}
PAIR = {"first": "step_time", "within": "5 %", "then": "memory"}


@lru_cache
def solved(kind: str) -> Answer:
    """True answers: of a plain job, one with limits and a pair of objectives, a pipeline, memory first."""
    overrides: dict[str, dict[str, Any]] = {
        "plain": {},
        "limits": {"limits": {"step_time_at_most": "10 s", "memory_headroom": "5 %"}, "objective": PAIR},
        "pipeline": {"training": PIPED, "choices": {"pipeline_parallel": 2}},
        "memory": {"objective": "memory"},
        "tokens": {"objective": "tokens_per_second"},
    }
    return solution_answer(solve(job(**overrides[kind]), 3), 3)


@pytest.mark.parametrize("kind", ["plain", "limits", "pipeline", "memory", "tokens"])
def test_a_true_answer_is_read_without_a_word(kind: str) -> None:
    assert list(disagreements(solved(kind))) == []
    assert read_again(solved(kind)) is solved(kind)


@pytest.mark.parametrize("seed", range(30))
def test_any_plan_is_read_without_a_word(seed: int) -> None:
    """Also plans that break rules: what they break they say."""
    from random import Random

    found = random_job(seed, small=True)
    answer = evaluation_answer(evaluate(found, random_plan(found, Random(seed))))
    assert list(disagreements(answer)) == []


def test_a_conflict_is_read_with_its_nearest_miss() -> None:
    with pytest.raises(NoPlan) as caught:
        solve(job(cluster={"host_memory": "4 GiB"}))
    answer = conflict_answer(caught.value)
    assert list(disagreements(answer)) == []
    answer["nearest_miss"]["violations"] = []
    assert list(disagreements(answer)) != []
    assert list(disagreements({**answer, "conflict": [], "nearest_miss": None})) == [
        "no plan exists, and no constraint is named"
    ]


def put(*path: Any, value: Any = None, add: Any = None) -> Callable[[Answer], None]:
    """Replaces a value of an answer, or adds to it."""

    def change(answer: Answer) -> None:
        place: Any = answer
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value if add is None else place[path[-1]] + add

    return change


GPU = ("memory", "gpu")
TAMPERED: dict[str, tuple[str, Callable[[Answer], None]]] = {
    "a book": ("plain", put(*GPU, "books", "parameters", add=1)),
    "a line": ("plain", put(*GPU, "lines", 0, "bytes", add=1)),
    "the peak": ("plain", put(*GPU, "peak_bytes", add=-1)),
    "the peak's phase": ("plain", put(*GPU, "peak_phase", value="load")),
    "a phase": ("plain", put(*GPU, "phases", "load", "peak_bytes", add=1)),
    "a phase's book": ("plain", put(*GPU, "phases", "forward", "books", "buffers", add=1)),
    "a phase above the peak": ("plain", lambda answer: _higher(answer)),
    "less than nothing": ("plain", lambda answer: _moved(answer)),
    "the host's books": ("plain", put("memory", "host", "books", "reserve", add=1)),
    "the verdict": ("plain", put(*GPU, "verdict", value="risky")),
    "what can be planned with": ("plain", put(*GPU, "planned_bytes", value=1)),
    "what can be used": ("plain", put(*GPU, "usable_bytes", value=1)),
    "a term": ("plain", put("step_time", "terms", "compute", add=1e-4)),
    "the step time": ("plain", put("step_time", "seconds", add=1e-4)),
    "the low end": ("plain", put("step_time", "low", value=1e9)),
    "the high end": ("plain", put("step_time", "high", value=1e-9)),
    "the throughput": ("plain", put("throughput", "tokens_per_second_per_gpu", add=1.0)),
    "the sequence length": ("plain", put("training", "sequence_length", add=1)),
    "the global batch": ("plain", put("training", "global_batch", add=1)),
    "the micro-batch": ("plain", put("plan", "micro_batch", add=1)),
    "the accumulation": ("plain", put("plan", "gradient_accumulation", add=1)),
    "the data-parallel ranks": ("plain", put("plan", "data_parallel", add=1)),
    "the tensor-parallel ranks": ("plain", put("plan", "tensor_parallel", value=2)),
    "the sequence-parallel ranks": ("plain", put("plan", "sequence_parallel", value=2)),
    "the expert-parallel ranks": ("plain", put("plan", "expert_parallel", value=3)),
    "the pipeline's stages": ("pipeline", put("plan", "pipeline_parallel", value=1)),
    "the GPUs": ("plain", put("cluster", "gpus", value=4)),
    "the layers": ("pipeline", put("model", "layers", add=1)),
    "a stage's layers": ("pipeline", put("model", "layers_of_stages", 0, add=1)),
    "the checkpoints": ("plain", lambda answer: answer["plan"].update(checkpoint_count=5, checkpoint_interval=1)),
    "checkpoints without interval": ("plain", put("plan", "checkpoint_count", value=1)),
    "a limit in bytes": ("plain", put("bounds", -2, "bytes_at_most", value=1)),
    "the deadline": ("limits", put("bounds", 0, "seconds_at_most", value=1e-6)),
    "the headroom": ("limits", put("bounds", 1, "bytes_at_most", value=1)),
    "a violation": ("plain", put("violations", value=[{"constraint": "batch_divides_over_ranks", "because": "so"}])),
    "the bound": ("plain", put("proof", "bound_seconds", add=-1e-3)),
    "a bound above the plan": ("plain", put("proof", "bound_seconds", add=1e-3)),
    "a proof without optimum": ("plain", put("proof", value={"optimal": False, "bound_seconds": 1e-5, "gap": 0.0})),
    "a bound in bytes": ("memory", put("proof", "bound_bytes", add=-(1 << 22))),
    "the second bound": ("limits", put("proof", "then", "bound_bytes", add=-(1 << 22))),
    "the tolerance": ("limits", put("proof", "bound_seconds", value=1e-5)),
    "a bucket of the plan": ("plain", put("plan", "reduce_bucket", add=1)),
    "a bucket of the configuration": ("plain", put("deepspeed", "zero_optimization", "reduce_bucket_size", add=1)),
    "the objective's value": ("tokens", put("objective", "value", add=100.0)),
    "the second objective's value": ("limits", put("objective", "then", "value", add=1 << 20)),
}


def _higher(answer: Answer) -> None:
    """A phase that reaches more than the peak, its own books adding up."""
    phase = answer["memory"]["gpu"]["phases"]["load"]
    more = answer["memory"]["gpu"]["peak_bytes"]
    phase["peak_bytes"] += more
    phase["books"]["parameters"] += more


def _moved(answer: Answer) -> None:
    """Two lines and books that still add up, one of them below zero."""
    found = answer["memory"]["gpu"]
    phase = found["phases"][found["peak_phase"]]
    size = 1 << 40
    for books in (found["books"], phase["books"]):
        books["parameters"] -= size
        books["reserve"] += size
    for book, change in (("parameters", -size), ("reserve", size)):
        next(line for line in found["lines"] if line["book"] == book)["bytes"] += change


@pytest.mark.parametrize("name", TAMPERED)
def test_each_tampering_is_found(name: str) -> None:
    kind, change = TAMPERED[name]
    answer = deepcopy(solved(kind))
    change(answer)
    with pytest.raises(InternalError) as caught:
        read_again(answer)
    assert str(caught.value).startswith("internal error: the answer contradicts itself: ")


def test_a_layout_that_leaves_gpus_idle_says_so() -> None:
    """One rank on two GPUs: the degrees are wrong, and the answer lists the rule that they break."""
    found = replace(job(), choices={"layout": (Layout(data=1),)})
    answer = evaluation_answer(evaluate(found, plan(found)))
    assert "layout_fills_the_cluster" in [item["constraint"] for item in answer["violations"]]
    assert list(disagreements(answer)) == []
    answer["violations"] = []
    assert "the degrees multiply to 1, the cluster has 2 GPUs" in list(disagreements(answer))
