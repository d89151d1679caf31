"""The targets that a plan can be written for, and what each of them cannot say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol, cast

from planner.emit import (
    accelerate,
    deepspeed,
    deepspeed_launcher,
    fsdp2,
    kubernetes,
    megatron,
    slurm,
    torchrun,
    trainer,
)
from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.job import Job
from planner.plan import Layout, Plan
from planner.reading import nearest
from planner.sizes import default_of
from planner.units import shown


class Target(Protocol):
    """The names that every target's module has: `EXPRESSES` are the choices it writes down."""

    TARGET: str
    RUNTIMES: tuple[str, ...]
    EXPRESSES: tuple[str, ...]

    def files(self, evaluation: Evaluation) -> Mapping[str, str]:
        """Text by file name."""


ALL = cast(
    tuple[Target, ...],
    (deepspeed, trainer, accelerate, fsdp2, torchrun, slurm, deepspeed_launcher, kubernetes, megatron),
)
NAMES = tuple(target.TARGET for target in ALL)


def emitted(evaluation: Evaluation, name: str) -> Mapping[str, str]:
    """The files of the target `name`. Raises InputError where the job's runtime is not one of its own."""
    return target_for(evaluation.job, name).files(evaluation)


def target_for(job: Job, name: str) -> Target:
    """The target `name`. Raises InputError for an unknown one, and where it does not run the job's runtime."""
    found = {target.TARGET: target for target in ALL}.get(name)
    if found is None:
        raise InputError(f"unknown target {shown(name)}", path="--to", expected="one of " + ", ".join(NAMES),
                         hint=nearest(name, NAMES))  # fmt: skip
    runtime = job.runtime.runtime
    if runtime not in found.RUNTIMES:
        fitting = [target.TARGET for target in ALL if runtime in target.RUNTIMES]
        raise InputError(
            f"the target {name} runs {', '.join(found.RUNTIMES)}, and the job's runtime is {runtime}",
            path="--to", expected="one of " + ", ".join(fitting),
        )  # fmt: skip
    return found


def notes(evaluation: Evaluation, name: str) -> tuple[str, ...]:
    """One sentence for each choice and setting of the plan that the target's files do not carry out."""
    target = target_for(evaluation.job, name)
    return (*_choices(evaluation.job, evaluation.plan, target), *_settings(evaluation.job))


APPLIED = ("checkpoint_count", "checkpoint_interval", "activation_offload", "recompute_policy", "loss", "mlp_tiles")
APPLY = "planner.runtime.apply(model, plan) does it"


def _choices(job: Job, plan: Plan, target: Target) -> Iterator[str]:
    """Choices that are not at their neutral value and that the target has no words for."""
    count, interval = plan.get("checkpoint_count", 0), plan.get("checkpoint_interval", 0)
    if count and "checkpoint_count" not in target.EXPRESSES and not _switched(job, plan, target):
        yield f"checkpointing of {count} segments of {interval} layers stands in no configuration file: {APPLY}"
    if plan.get("activation_offload", "none") != "none" and "activation_offload" not in target.EXPRESSES:
        yield f"activation offload stands in no configuration file: {APPLY}"
    if count and plan.get("recompute_policy", "full") != "full" and "recompute_policy" not in target.EXPRESSES:
        yield f"{plan['recompute_policy']} recomputation stands in no configuration file: {APPLY}"
    if plan.get("loss", "standard") != "standard":
        yield f"the {plan['loss']} loss stands in no configuration file: {APPLY}"
    if plan.get("mlp_tiles", 1) != 1:
        yield f"feed-forward blocks in {plan['mlp_tiles']} tiles stand in no configuration file: {APPLY}"
    if plan.get("offloaded_update") == "beside_backward":
        yield "each rank needs cores of its own for the host's updates: deepspeed --bind_cores_to_rank"
    for name, value in plan.items():
        if name in (*target.EXPRESSES, *APPLIED) or _neutral(job, name, value):
            continue
        yield f"{name} {value} is not in these files: set it in the training script"


def _switched(job: Job, plan: Plan, target: Target) -> bool:
    """Whether the target's own switch says the same."""
    return target.TARGET == "trainer" and trainer.checkpoints_every_layer(job, plan)


def _neutral(job: Job, name: str, value: object) -> bool:
    """Whether a value asks for nothing: off, or what training does anyhow."""
    plain = ("none", 0, job.training.precision.dtype, default_of(job, name))
    return value == Layout(data=job.cluster.gpus) if name == "layout" else value in plain


def _settings(job: Job) -> Iterator[str]:
    """Training settings that the script has to follow."""
    training = job.training
    if training.kernels == "liger":
        yield "the kernels are Liger's: the training script applies them to the model"
    if training.method != "full":
        yield f"the method is {training.method}: the training script puts the adapters on the model"
