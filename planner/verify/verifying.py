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
from planner.launch.programs import packages
from planner.output import write_files
from planner.plan import Plan, layout_of, whole
from planner.space import job_space
from planner.trace.source import configuration
from planner.verify.comparison import WARM_STEPS, Comparison, compare
from planner.verify.report import comparison_answer
from planner.verify.time_rows import NO_TIMES, Times, times_of

WORKER = Path(__file__).with_name("worker.py")
CONFIG, MEASURED, TRACE, OUTPUT = "config.json", "measured.json", "trace.json.gz", "output.log"
COMPARISON = "comparison.json"


def model_fields(job_path: Path) -> Mapping[str, Any]:
    """The config.json of the job's model. Raises InputError for a model that is known by its size only."""
    from planner.job_file import read_job_file

    file, document = read_job_file(job_path)
    if not isinstance(file.model, str):
        raise document.error(("model",), "a size cannot be built", "a model of the catalog or a path to a config.json")
    return configuration(str(job_path.parent / file.model) if file.model_path else file.model)


def verify(
    evaluation: Evaluation, fields: Mapping[str, Any], folder: Path, processors: bool = False, anyway: bool = False,
    steps: int = WARM_STEPS + 2, timed: bool = True,
) -> Comparison:  # fmt: skip
    """Measures `steps` steps of the plan here, and where `timed` what one more spends its time on.

    The run folder keeps what the ranks said in output.log, and the answer in comparison.json. Raises InputError for a
    plan that no worker runs, where what it needs is not installed, where the machine is not what the job says, and
    where the ranks fail before they have measured, with the last line of what they said; SystemExit where a signal
    ended them.
    """
    require_runnable(evaluation)
    packages("torch", "deepspeed", "transformers")
    script = [str(WORKER), f"{{run}}/{CONFIG}", f"{{run}}/{MEASURED}", str(steps), *[f"{{run}}/{TRACE}"] * timed]
    launch = prepare(evaluation, script, folder, Where(processors=processors))
    code = start(launch, anyway, {CONFIG: json.dumps(dict(fields), indent=2) + "\n"}, folder / OUTPUT)
    if code and json.loads((folder / STATUS).read_text(encoding="utf-8"))["state"] == "interrupted":
        raise SystemExit(code)
    if code and not (folder / MEASURED).exists():
        raise InputError(f"the ranks left with {code}: {_last_words(folder / OUTPUT)}", str(folder / OUTPUT))
    found = _compared(evaluation, folder, code, timed)
    write_files(folder, {COMPARISON: json.dumps(comparison_answer(found), indent=2) + "\n"}, force=True)
    return found


def _compared(evaluation: Evaluation, folder: Path, code: int, timed: bool) -> Comparison:
    """What the ranks of a run folder measured before they left with `code`, beside the prediction."""
    measured = json.loads((folder / MEASURED).read_text(encoding="utf-8"))
    if code:
        return compare(evaluation, measured, Times(0.0, (), (f"no time by term: {_last_words(folder / OUTPUT)}",)))
    on_gpu = measured["device"] != "cpu"
    return compare(evaluation, measured, times_of(evaluation, folder / TRACE, on_gpu) if timed else NO_TIMES)


def require_runnable(evaluation: Evaluation) -> None:
    """The worker runs full training under DeepSpeed with AdamW, of a model that is whole on every rank."""
    training, runtime = evaluation.job.training, evaluation.job.runtime.runtime
    given = {"runtime": runtime, "method": training.method, "optimizer": training.optimizer.key}
    for name, known in (("runtime", ("deepspeed",)), ("method", ("full",)), ("optimizer", ("adamw", "adam"))):
        if given[name] not in known:
            raise InputError(f"verify does not run {given[name]}", path=f"training.{name}",
                             expected=" or ".join(known))  # fmt: skip
    layout = layout_of(evaluation.plan)
    if layout.data != layout.ranks:
        raise InputError("verify divides batches over the ranks, and the plan divides the model too", path="choices",
                         expected="a plan with data parallelism alone")  # fmt: skip


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
