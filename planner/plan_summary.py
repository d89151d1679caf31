"""A plan in one short line: what it does beside the plainest way to train."""

from __future__ import annotations

from collections.abc import Iterator

from planner.evaluate import Evaluation
from planner.plan import Layout, Value
from planner.sizes import default_of


def plan_summary(evaluation: Evaluation) -> str:
    """Such as `ZeRO 2, micro-batch 4, 12 checkpoints every 2, tensor 2`; the catalog's defaults are left out."""
    return ", ".join(_parts(evaluation))


def _parts(evaluation: Evaluation) -> Iterator[str]:
    """ZeRO and micro-batch, checkpoints, degrees above one, and what else is not plain."""
    values, told = evaluation.values, {"zero_stage", "micro_batch", "checkpoint_count", "checkpoint_interval"}
    if "zero_stage" not in evaluation.job.settled:
        yield f"ZeRO {values['zero_stage']}"
    yield f"micro-batch {values['micro_batch']}"
    count, interval = values["checkpoint_count"], values["checkpoint_interval"]
    if count:
        yield f"{count} checkpoint{'s' if count != 1 else ''}" + (f" every {interval}" if interval != 1 else "")
    for name, value in values.items():
        if name not in told and name not in evaluation.job.settled and _counts(evaluation, name, value):
            yield f"{name.removesuffix('_parallel').replace('_', ' ')} {value}"


def _counts(evaluation: Evaluation, name: str, value: Value) -> bool:
    """Whether a value says something: a degree beside data parallelism, or a choice that is not at its default."""
    if name.endswith("_parallel"):
        return name != "data_parallel" and value != 1
    default = default_of(evaluation.job, name)
    return default is not None and not isinstance(value, Layout) and value not in (default, 0, "none")
