"""A frontier as an answer: plain dictionaries, CSV, and text for a terminal."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from io import StringIO

from planner.answer import Answer, changes, evaluation_answer, plan_answer
from planner.errors import InputError
from planner.evaluate import Evaluation
from planner.frontier import Axis, Frontier
from planner.plan import Value
from planner.plot.picture import Picture, picture
from planner.plot.text import plot_text
from planner.units import format_bytes, format_seconds

MOST_LISTED = 24  # points in the table of the text


def frontier_answer(found: Frontier) -> Answer:
    """The answer of `planner pareto`: every point with all its figures and its place on the axes."""
    return {
        "axes": [axis.name for axis in found.axes],
        "units": {axis.name: axis.unit(found.job) for axis in found.axes},
        "points": [{**evaluation_answer(point, "optimal"), "at": place(found, point)} for point in found.points],
        "proof": frontier_proof_answer(found),
    }


def frontier_proof_answer(found: Frontier) -> Answer:
    """What is proven of a frontier."""
    proof = found.proof
    return {
        "optimal": True,
        "complete": proof.tolerance == 0,
        "tolerance": proof.tolerance,
        "configurations": proof.configurations,
        "confirmed_by_solver": proof.confirmed,
        "solver_seconds": round(proof.solver_seconds, 6),
    }


def place(found: Frontier, point: Evaluation) -> dict[str, float]:
    """Where a point stands, by axis."""
    return {axis.name: axis.value(point) for axis in found.axes}


def frontier_csv(found: Frontier) -> str:
    """A row for each point: its number, its place, its figures, its choices."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    names = list(plan_answer(found.points[0].values))
    figures = ["peak_bytes", "host_bytes", "step_seconds", "tokens_per_second_per_gpu"]
    writer.writerow(["point", *(f"{axis.name} [{axis.unit(found.job)}]" for axis in found.axes), *figures, *names])
    for number, point in enumerate(found.points, 1):
        speed = round(point.tokens_per_second_per_gpu, 3)
        measured = [point.peak_bytes, point.ledger["host"].peak.total, point.step_time.seconds, speed]
        values = plan_answer(point.values)
        writer.writerow([number, *place(found, point).values(), *measured, *(values[name] for name in names)])
    return out.getvalue()


def frontier_picture(found: Frontier) -> Picture:
    """The frontier alone in a picture."""
    job = found.job
    title = f"{job.architecture.name} on {job.cluster.nodes} × {job.cluster.node.key}"
    return picture({job.name: found}, title)


def frontier_text(found: Frontier, _: bool = False) -> str:
    """The plot, the points from lean to fast with what each changes, and what is proven."""
    listed = _listed(found.points)
    lines = [frontier_picture(found).title, "", plot_text(frontier_picture(found))]
    lines += [_row(found.axes, ["point", *(axis.label for axis in found.axes), "what changes from the point before"])]
    before: Evaluation | None = None
    for number, point in listed:
        shown = [axis_text(axis, point) for axis in found.axes]
        lines.append(_row(found.axes, [str(number), *shown, changes_text(before, point)]))
        before = point
    if len(listed) < len(found.points):
        lines.append(f"{len(listed)} of {len(found.points)} points are listed; --format csv lists all")
    return "\n".join([*lines, "", proof_text(found), *_notes(found)]) + "\n"


def _listed(points: Sequence[Evaluation]) -> list[tuple[int, Evaluation]]:
    """Points with their numbers, both ends and evenly between."""
    numbered = list(enumerate(points, 1))
    if len(numbered) <= MOST_LISTED:
        return numbered
    last = len(numbered) - 1
    return [numbered[round(step * last / (MOST_LISTED - 1))] for step in range(MOST_LISTED)]


def _row(axes: Sequence[Axis], cells: Sequence[str]) -> str:
    """One line of the table; costs have long units."""
    number, first, second, change = cells
    widths = [36 if axis.name == "cost" else 12 for axis in axes]
    return f"{number:>5}  {first:>{widths[0]}}  {second:>{widths[1]}}  {change}"


def axis_text(axis: Axis, point: Evaluation) -> str:
    """A point's place on an axis with its unit."""
    unit, value = axis.unit(point.job), axis.value(point)
    if unit == "bytes":
        return format_bytes(value)
    if unit == "seconds":
        return format_seconds(value)
    return f"{value:.0f}" if axis.name == "gpus" else f"{value:,.2f} {unit}"


def changes_text(before: Evaluation | None, point: Evaluation) -> str:
    """The choices that differ from those of the point before, all of the first point's."""
    found = changes(before.values, point.values) if before is not None else _first(point)
    found = {name: value for name, value in found.items() if name != "gradient_accumulation"}
    return ", ".join(f"{name} {value}" for name, value in found.items()) or "nothing"


def _first(point: Evaluation) -> dict[str, Value]:
    """The choices of a plan, without degrees of 1."""
    values = plan_answer(point.values)
    return {name: value for name, value in values.items() if not (name.endswith("_parallel") and value == 1)}


def proof_text(found: Frontier) -> str:
    """What is proven, in a sentence."""
    proof, (first, second) = found.proof, found.axes
    gap = (
        "the frontier is complete" if not proof.tolerance
        else f"every plan left out is within {proof.tolerance:.2%} in {first.label} of one that stands here"
    )  # fmt: skip
    by = "confirmed by the solver" if proof.confirmed else "the solver did not finish its own proof"
    return (
        f"Proven: none of {proof.configurations:,} configurations is below a point in both {first.label} and "
        f"{second.label}; {gap}; {by} (solver {format_seconds(proof.solver_seconds)})"
    )


def _notes(found: Frontier) -> Iterator[str]:
    """What the cost is made of."""
    if any(axis.name == "cost" for axis in found.axes):
        from planner.units import format_price

        price = found.job.cluster.gpu_price_per_hour
        yield (
            "The catalog has no price for this node or GPU: cost is in GPU-hours"
            if price is None
            else f"Cost is at {format_price(price)} for one GPU, the public on-demand price in the catalog"
        )


def point_files(found: Frontier, number: int) -> dict[str, str]:
    """The files of one point (from 1), as `solve --out` writes them. Raises InputError for a number that is none."""
    from planner.report import configuration_text, evaluation_text

    if not 1 <= number <= len(found.points):
        raise InputError(f"there is no point {number}", path="--point", expected=f"1 to {len(found.points)}")
    point = found.points[number - 1]
    answer = {**evaluation_answer(point, "optimal"), "proof": frontier_proof_answer(found)}
    files = {"plan.txt": evaluation_text(point)}
    if point.job.runtime.runtime == "deepspeed":
        text = configuration_text(point)
        answer["deepspeed"] = json.loads(text)
        files["deepspeed.json"] = text + "\n"
    return {"plan.json": json.dumps(answer, indent=2, ensure_ascii=False) + "\n", **files}
