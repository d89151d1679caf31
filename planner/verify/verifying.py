"""Runs a plan's few steps through the launcher and compares; neighbours of the plan too where asked."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from planner.errors import InputError, PlannerError
from planner.evaluate import Evaluation, evaluate
from planner.launch.command import Where
from planner.launch.folder import STATUS
from planner.launch.launching import prepare, start
from planner.plan import Plan, whole
from planner.space import job_space
from planner.trace.source import configuration
from planner.verify.comparison import WARM_STEPS, Comparison, compare

WORKER = Path(__file__).with_name("worker.py")
CONFIG, MEASURED, OUTPUT = "config.json", "measured.json", "output.log"


def model_fields(job_path: Path) -> Mapping[str, Any]:
    """The config.json of the job's model. Raises InputError for a model that is known by its size only."""
    from planner.job_file import read_job_file

    file, document = read_job_file(job_path)
    if not isinstance(file.model, str):
        raise document.error(("model",), "a size cannot be built", "a model of the catalog or a path to a config.json")
    return configuration(str(job_path.parent / file.model) if file.model_path else file.model)


def verify(
    evaluation: Evaluation, fields: Mapping[str, Any], folder: Path, processors: bool = False, anyway: bool = False,
    steps: int = WARM_STEPS + 2,
) -> Comparison:  # fmt: skip
    """Measures `steps` steps of the plan here; the run folder keeps what the ranks said in output.log.

    Raises InputError for a plan that no worker runs, where the machine is not what the job says, and where the ranks
    fail, with the last line of what they said; SystemExit where a signal ended them.
    """
    _require_runnable(evaluation)
    script = [str(WORKER), f"{{run}}/{CONFIG}", f"{{run}}/{MEASURED}", str(steps)]
    launch = prepare(evaluation, script, folder, Where(processors=processors))
    code = start(launch, anyway, {CONFIG: json.dumps(dict(fields), indent=2) + "\n"}, folder / OUTPUT)
    if code and json.loads((folder / STATUS).read_text(encoding="utf-8"))["state"] == "interrupted":
        raise SystemExit(code)
    if code:
        raise InputError(f"the ranks left with {code}: {_last_words(folder / OUTPUT)}", str(folder / OUTPUT))
    return compare(evaluation, json.loads((folder / MEASURED).read_text(encoding="utf-8")))


def _require_runnable(evaluation: Evaluation) -> None:
    """The worker runs full training under DeepSpeed with AdamW."""
    training, runtime = evaluation.job.training, evaluation.job.runtime.runtime
    given = {"runtime": runtime, "method": training.method, "optimizer": training.optimizer.key}
    for name, known in (("runtime", ("deepspeed",)), ("method", ("full",)), ("optimizer", ("adamw", "adam"))):
        if given[name] not in known:
            raise InputError(f"verify does not run {given[name]}", path=f"training.{name}",
                             expected=" or ".join(known))  # fmt: skip


def _last_words(path: Path) -> str:
    """The last line that names an error, else the last line."""
    lines = [line for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line and "ChildFailedError" not in line]
    return (errors or lines or ["nothing was said"])[-1].strip()


def neighbours(evaluation: Evaluation) -> Iterator[Evaluation]:
    """Plans beside the plan that the job allows and that fit.

    A layer more or less checkpointed, micro-batch twice or half.
    """
    seen = {evaluation.plan}
    for plan in _beside(evaluation.plan):
        if plan in seen or not _allowed(evaluation, plan):
            continue
        seen.add(plan)
        try:
            found = evaluate(evaluation.job, plan)
        except PlannerError:
            continue
        if not found.violations:
            yield found


def _allowed(evaluation: Evaluation, plan: Plan) -> bool:
    """Whether the job leaves every value of the plan open."""
    choices = job_space(evaluation.job).by_name
    return all(value in choices[name].values for name, value in plan.items())


def _beside(plan: Plan) -> Iterator[Plan]:
    """The plans, legal or not."""
    count, interval, micro_batch = (
        whole(plan, name) for name in ("checkpoint_count", "checkpoint_interval", "micro_batch")
    )
    yield plan.changed(checkpoint_count=count + 1, checkpoint_interval=max(1, interval))
    if count:
        yield plan.changed(checkpoint_count=count - 1, checkpoint_interval=interval if count > 1 else 0)
    yield plan.changed(micro_batch=micro_batch * 2)
    if micro_batch % 2 == 0:
        yield plan.changed(micro_batch=micro_batch // 2)


def sweep_plans(evaluation: Evaluation) -> list[Evaluation]:
    """The plan and its neighbours that fit."""
    return [evaluation, *neighbours(evaluation)]
