"""A technique is taken only with the values of other choices that it needs."""

from __future__ import annotations

from typing import Any

import pytest

from constraints import techniques_have_what_they_need as constraint
from planner.plan import Layout
from tests.constraints.agreement import verdicts
from tests.jobs import NVME, PLAIN, job, plan

ONE = {"micro_batch": 1, "checkpoint_interval": 0, "gradient_accumulation_dtype": "bf16", "checkpoint_count": 0,
       **PLAIN}  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"zero_stage": 1, "optimizer_offload": "cpu"},
        {"zero_stage": 3, "optimizer_offload": "nvme"},
        {"zero_stage": 3, "optimizer_offload": "cpu", "parameter_offload": "cpu"},
        {"zero_stage": 3, "optimizer_offload": "nvme", "parameter_offload": "nvme"},
    ],
)
def test_accepts(values: dict[str, Any]) -> None:
    found = job()
    assert constraint.because(found, plan(found, **values)) is None


@pytest.mark.parametrize(
    ("values", "because"),
    [
        (
            {"zero_stage": 0, "optimizer_offload": "cpu"},
            "optimizer_offload cpu needs zero_stage 1 or 2 or 3, the plan has zero_stage 0",
        ),
        (
            {"zero_stage": 2, "optimizer_offload": "nvme"},
            "optimizer_offload nvme needs zero_stage 3, the plan has zero_stage 2",
        ),
        (
            {"zero_stage": 3, "parameter_offload": "cpu"},
            "parameter_offload cpu needs optimizer_offload cpu, the plan has optimizer_offload none",
        ),
        (
            {"zero_stage": 3, "parameter_offload": "nvme"},
            "parameter_offload nvme needs optimizer_offload cpu or nvme, the plan has optimizer_offload none",
        ),
        (
            {"zero_stage": 2, "optimizer_offload": "cpu", "parameter_offload": "cpu"},
            "parameter_offload cpu needs zero_stage 3, the plan has zero_stage 2",
        ),
    ],
)
def test_rejects(values: dict[str, Any], because: str) -> None:
    found = job()
    assert constraint.because(found, plan(found, **values)) == because


def test_a_degree_of_the_layout_can_be_needed() -> None:
    """4-bit gradients need every rank for themselves, tensor-parallel ranks among them."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 2, "nodes": 2, "interconnect": "10 Gbit/s"}
    few = {"reduction_precision": ["compute", "int4"], "tensor_parallel": [1, 2], "zero_stage": 3}
    found = job(cluster=cluster, choices={**ONE, "optimizer_offload": "none", "parameter_offload": "none", **few})
    split = plan(found, zero_stage=3, layout=Layout(tensor=2, data=2), reduction_precision="int4")
    assert constraint.because(found, split) == (
        "reduction_precision int4 needs tensor_parallel 1, the plan has tensor_parallel 2"
    )
    assert constraint.because(found, split.changed(layout=Layout(data=4))) is None
    assert verdicts(constraint, found) == (3, 1)


def test_rules_agree_with_the_sentence() -> None:
    """36 plans: stage 0 keeps 1; stages 1 and 2 keep 2 each (none, cpu); stage 3 keeps all but three.

    Stage 3 loses parameter_offload cpu with optimizer none or nvme, and nvme with none: 9 − 3 = 6. 1 + 2 + 2 + 6 = 11.
    """
    assert verdicts(constraint, job(cluster={"nvme": NVME}, choices=ONE)) == (11, 25)


def test_a_technique_that_the_job_names_needs_its_facts() -> None:
    """Second shards inside the node of a job on one node: the value that is named is refused, the other is not."""
    found = job(choices={"secondary_partition": ["none", "node"]})
    named, without = (plan(found, zero_stage=3, secondary_partition=value) for value in ("node", "none"))
    assert constraint.because(found, without) is None
    assert constraint.because(found, named) == "secondary_partition node does nothing where nodes is 1"
    rules = [rule for rule in constraint.require(found) if rule.scope == ("secondary_partition",)]
    assert [(rule.satisfied(named), rule.satisfied(without)) for rule in rules] == [(False, True)]
