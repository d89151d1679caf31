"""A constraint-solving configuration planner for training large models.

    from planner import read_job, solve, evaluate, frontier, deepspeed_config

    job = read_job("job.yaml")                             # a Job; InputError with file, line and column
    solution = solve(job)                                  # a Solution; NoPlan with its proof
    evaluation = evaluate(job, solution.best.plan)         # an Evaluation: ledger, step time, violations
    points = frontier(job)                                 # a Frontier: memory against step time
    settings = deepspeed_config(job, solution.best.plan)   # the dictionary of DeepSpeed's JSON file

Nothing is loaded before it is asked for.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.emit.deepspeed import configuration as deepspeed_config
    from planner.evaluate import evaluate
    from planner.frontier import frontier
    from planner.job import Job
    from planner.resolve import read_job
    from planner.search import solve

__version__ = "0.1.0"
__all__ = ["Job", "deepspeed_config", "evaluate", "frontier", "read_job", "solve"]

# Name here: module and name there.
_HOMES = {
    "Job": ("planner.job", "Job"),
    "read_job": ("planner.resolve", "read_job"),
    "solve": ("planner.search", "solve"),
    "evaluate": ("planner.evaluate", "evaluate"),
    "frontier": ("planner.frontier", "frontier"),
    "deepspeed_config": ("planner.emit.deepspeed", "configuration"),
}


def __getattr__(name: str) -> Any:
    """The public names, loaded when first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, there = _HOMES[name]
    return getattr(import_module(module), there)


def _function(name: str) -> Any:
    """An attribute that stays the function of that name when the module of the same name is imported."""
    return property(lambda _: __getattr__(name), lambda _, module: None)


class _Package(ModuleType):
    """The package: two of its functions are named as their modules are, and loading a module would hide them."""

    evaluate = _function("evaluate")
    frontier = _function("frontier")


sys.modules[__name__].__class__ = _Package
