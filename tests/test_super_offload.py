"""Updates on the host beside backward (SuperOffload): what moves out of the optimizer's window, by hand."""

from __future__ import annotations

from typing import Any

import pytest

from planner.cluster import cpu_optimizer_seconds, host_link_seconds
from planner.emit.deepspeed import configuration
from planner.errors import NoPlan
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.ledger import ledger
from planner.search import solve
from planner.space import job_space
from planner.step_time import microseconds
from tests.jobs import job, plan

# The matrices and norms of a layer are one sub-group of 1e8 or more.
LARGEST = 4 * 9_437_184 + 3 * 24_969_216 + 2 * 3_072
MODEL = {"parameters": 2_000_000_000, "layers": 16, "vocabulary": 32000, "heads": 16}


def offloaded(clipping: float = 0.0, **choices: Any) -> Job:
    """One GPU with the optimizer in host memory; 2e9 elements are 18 sub-groups of 1e8 or more."""
    cluster = {"gpu": "gh200-96gb", "gpus_per_node": 1, "host_memory": "480 GB"}
    training = {"sequence_length": 4096, "global_batch": 8, "gradient_clipping": clipping}
    held = {"zero_stage": 3, "optimizer_offload": "cpu", "offloaded_update": ["after_backward", "beside_backward"]}
    return job(model=MODEL, cluster=cluster, training=training, choices={**held, **choices})


def both(found: Job) -> tuple[Evaluation, Evaluation]:
    """A plan that updates in turn, and the same beside backward."""
    turn = plan(found, zero_stage=3, optimizer_offload="cpu", micro_batch=2)
    return evaluate(found, turn), evaluate(found, turn.changed(offloaded_update="beside_backward"))


def test_the_host_updates_beside_the_last_backward() -> None:
    """All of it in the last backward, and once more the largest sub-group: one has its gradients when backward ends."""
    found = offloaded()
    turn, beside = both(found)
    cluster, elements = found.cluster, found.architecture.parameters
    whole, last = (microseconds(cpu_optimizer_seconds(cluster, count, 1)) for count in (elements, LARGEST))
    assert turn.step_time.lanes("optimizer_step")["serial"] - beside.step_time.lanes("optimizer_step")["serial"] == (
        whole - last + microseconds(host_link_seconds(cluster, 4 * elements, "from_gpu", 1))
    )
    assert beside.step_time.lanes("last_backward")["host"] == whole
    assert "host" not in turn.step_time.lanes("last_backward")
    assert beside.step_time.seconds < turn.step_time.seconds


def test_the_process_of_the_optimizer_holds_one_sub_group() -> None:
    """4 bytes of 112 662 528 gradients, pinned in a power of two of bytes, and 0.5 GiB of the process."""
    found = offloaded()
    turn, beside = (ledger(found, one.plan)["host"].peak.total for one in both(found))
    assert beside - turn == 2**29 + 2**29


def test_it_is_planned_on_request_only_and_without_clipping() -> None:
    assert job_space(job(training={"gradient_clipping": 0})).by_name["offloaded_update"].values == ("after_backward",)
    with pytest.raises(NoPlan) as caught:
        solve(offloaded(1.0, offloaded_update="beside_backward"))
    assert caught.value.reasons == (
        "techniques_have_what_they_need: offloaded_update beside_backward does nothing where clipping is norm",
    )


def test_deepspeed_is_told() -> None:
    best = solve(offloaded()).best
    assert best.plan["offloaded_update"] == "beside_backward"
    block = configuration(best.job, best.plan)["zero_optimization"]["offload_optimizer"]
    assert block == {"device": "cpu", "pin_memory": True, "super_offload": True}
    in_turn = configuration(best.job, best.plan.changed(offloaded_update="after_backward"))
    assert "super_offload" not in in_turn["zero_optimization"]["offload_optimizer"]
