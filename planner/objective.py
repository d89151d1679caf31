"""What plans are chosen by: the objectives that a job may name, what each one minimises, its value and its unit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from planner.evaluate import Evaluation
    from planner.job import Job

Coordinate = Literal["time", "memory"]
HOUR = 3600.0
# Memory is minimised in whole grains of this many bytes: the solver multiplies coefficients with domains in 64 bits,
# and with bytes on both sides it has denied plans that exist. Limits are exact bytes: no variable there is that wide.
GRAIN = 2**20


@dataclass(frozen=True)
class Objective:
    """One objective. `coordinate` is what the search minimises for it: microseconds of a step, or one GPU's bytes.

    Objectives of one coordinate order the plans of a cluster alike; `value` of an evaluation is in `unit` of its job.
    """

    name: str
    label: str
    coordinate: Coordinate
    value: Callable[[Evaluation], float]
    unit: Callable[[Job], str]


def tokens_per_second(evaluation: Evaluation) -> float:
    """Tokens of the global batch over the step time, on all GPUs together."""
    training = evaluation.job.training
    return training.global_batch * training.sequence_length / evaluation.step_time.seconds


def gpu_hours(evaluation: Evaluation, tokens: float) -> float:
    """GPU-hours that training on so many tokens takes."""
    return evaluation.job.cluster.gpus * tokens / tokens_per_second(evaluation) / HOUR


def cost(evaluation: Evaluation, tokens: float) -> float:
    """US dollars for so many tokens, or GPU-hours where there is no price."""
    return gpu_hours(evaluation, tokens) * (evaluation.job.cluster.gpu_price_per_hour or 1.0)


def cost_unit(job: Job) -> str:
    """What `cost` counts."""
    return "GPU-hours" if job.cluster.gpu_price_per_hour is None else "USD"


def cost_per_token(evaluation: Evaluation) -> float:
    """The cost of 10^6 tokens."""
    return cost(evaluation, 1e6)


def _cost_unit(job: Job) -> str:
    return f"{cost_unit(job)} per 10^6 tokens"


OBJECTIVES: Mapping[str, Objective] = {
    found.name: found
    for found in (
        Objective("step_time", "step time", "time", lambda found: found.step_time.seconds, lambda _: "seconds"),
        Objective("tokens_per_second", "tokens per second", "time", tokens_per_second, lambda _: "tokens per second"),
        Objective("memory", "GPU memory", "memory", lambda found: found.peak_bytes, lambda _: "bytes"),
        Objective("cost_per_token", "cost per token", "time", cost_per_token, _cost_unit),
        Objective("cost", "cost", "time", cost_per_token, _cost_unit),
    )
}


def coordinates(job: Job) -> tuple[Coordinate, Coordinate]:
    """What the search minimises for the job's objective, and what it minimises among plans that are equal there."""
    return ("memory", "time") if OBJECTIVES[job.objective].coordinate == "memory" else ("time", "memory")


def slackened(value: int, within: Fraction) -> int:
    """The most that is still within a tolerance of a least value."""
    return value + int(value * within)
