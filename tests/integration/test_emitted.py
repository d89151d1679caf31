"""DeepSpeed's own parser accepts what is emitted, for hundreds of plans, and reads the batch as it was planned."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("deepspeed")

from deepspeed_parser import parse

from planner.emit.deepspeed import configuration
from planner.job import Job
from planner.plan import Plan
from planner.resolve import read_job
from planner.space import job_space
from planner.specification import specify

FOLDER = Path(__file__).parents[2] / "examples"
# Jobs that leave machines or numerics open, or stand for several, are settled by commands of their own.
OPEN = ("allow", "choose-a-cluster", "sweep")
EXAMPLES = [path for path in sorted(FOLDER.glob("*.yaml")) if path.stem not in OPEN]
PLANS = 300


def legal_plans(job: Job, number: int, seed: int) -> list[Plan]:
    """Random plans that satisfy every rule; memory limits are left aside."""
    generator, space, rules = random.Random(seed), job_space(job), specify(job).rules
    found: list[Plan] = []
    while len(found) < number:
        plan = Plan({choice.name: generator.choice(choice.values) for choice in space.choices})
        if all(rule.satisfied(plan) for rule in rules):
            found.append(plan)
    return found


def holds_auto(value: object) -> bool:
    """Whether "auto" stands anywhere inside."""
    if isinstance(value, dict):
        return any(holds_auto(item) for item in value.values())
    return value == "auto"


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_plan_parses(path: Path) -> None:
    job = read_job(path)
    for plan in legal_plans(job, -(-PLANS // len(EXAMPLES)), seed=1):
        emitted = configuration(job, plan)
        assert not holds_auto(emitted)
        read = parse(emitted, job.cluster.gpus)
        assert read.train_batch_size == job.training.global_batch
        assert read.train_micro_batch_size_per_gpu == plan["micro_batch"]
        assert read.gradient_accumulation_steps == job.micro_batches(plan)
        assert read.zero_config.stage == plan["zero_stage"]
        assert (read.zero_config.offload_optimizer is None) == (plan["optimizer_offload"] == "none")
