"""An answer read once more, from its own figures alone and with plain arithmetic: sums, products and comparisons.

Knows neither terms nor formulas nor the search: what it finds wrong is a bug of ours, before anyone reads the answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isclose
from typing import Any

from planner.errors import InternalError

Answer = dict[str, Any]
MICROSECOND = 1e-6
ROUNDING = 1e-6  # of figures that are told with few digits, as a share
GRAIN = 2**20  # bytes to which a proof of memory counts


def read_again(answer: Answer) -> Answer:
    """The answer, where its figures agree with each other. Raises InternalError with the first one that does not."""
    wrong = next(disagreements(answer), None)
    if wrong is not None:
        raise InternalError(f"the answer contradicts itself: {wrong}")
    return answer


def disagreements(answer: Mapping[str, Any]) -> Iterator[str]:
    """What does not add up in an answer, each in a sentence; nothing where all is well."""
    if answer["status"] == "infeasible":
        yield from _of_a_conflict(answer)
        return
    for check in CHECKS:
        yield from check(answer)
    if answer["status"] in ("optimal", "feasible"):
        yield from _of_a_solution(answer)


def _of_a_conflict(answer: Mapping[str, Any]) -> Iterator[str]:
    """A conflict names constraints, and its nearest miss breaks one."""
    if not answer["conflict"]:
        yield "no plan exists, and no constraint is named"
    miss = answer.get("nearest_miss")
    if miss is not None:
        yield from disagreements(miss)
        if not miss["violations"]:
            yield "no plan exists, and the nearest miss breaks nothing"


def _broken(answer: Mapping[str, Any], *names: str) -> bool:
    """Whether the answer says that one of these constraints is broken."""
    return any(item["constraint"] in names for item in answer["violations"])


def _books(answer: Mapping[str, Any]) -> Iterator[str]:
    """Lines add up to books, books to the peak, and the peak is the most of all phases."""
    for device, found in answer["memory"].items():
        peak, books = found["peak_bytes"], found["books"]
        if sum(books.values()) != peak:
            yield f"the books on {device} add up to {sum(books.values())}, not to the peak {peak}"
        for book, size in books.items():
            lines = sum(line["bytes"] for line in found["lines"] if line["book"] == book)
            if lines != size:
                yield f"the lines of {book} on {device} add up to {lines}, not to {size}"
        for name, phase in found["phases"].items():
            if sum(phase["books"].values()) != phase["peak_bytes"]:
                yield f"the books of {name} on {device} do not add up to its {phase['peak_bytes']}"
        most = max((phase["peak_bytes"] for phase in found["phases"].values()), default=0)
        if most != peak or found["phases"][found["peak_phase"]]["peak_bytes"] != peak:
            yield f"the peak {peak} on {device} is not that of {found['peak_phase']}, where phases reach {most}"
        if min([peak, *books.values(), *(line["bytes"] for line in found["lines"])]) < 0:
            yield f"something on {device} is less than nothing"


def _verdicts(answer: Mapping[str, Any]) -> Iterator[str]:
    """A verdict says where the peak lies between what can be planned with and what can be used."""
    for device, found in answer["memory"].items():
        peak, planned, usable = found["peak_bytes"], found["planned_bytes"], found["usable_bytes"]
        verdict = "fits" if peak <= planned else "risky" if peak <= usable else "no"
        if planned > usable or verdict != found["verdict"]:
            yield f"{device} is said to be {found['verdict']}: {peak} of {planned} planned and {usable} usable bytes"


def _time(answer: Mapping[str, Any]) -> Iterator[str]:
    """Terms add up to the step time, which lies in its range, and gives the tokens per second."""
    found = answer["step_time"]
    seconds, terms = found["seconds"], sum(found["terms"].values())
    if abs(terms - seconds) > MICROSECOND:
        yield f"the terms add up to {terms:.6f} s, not to the step time of {seconds:.6f} s"
    if not 0 < found["low"] <= seconds <= found["high"]:
        yield f"a step time of {seconds} s is outside its range of {found['low']} to {found['high']} s"
    training, gpus = answer["training"], answer["cluster"]["gpus"]
    tokens = training["global_batch"] * training["sequence_length"] / seconds / gpus
    told = answer["throughput"]["tokens_per_second_per_gpu"]
    if not isclose(tokens, told, rel_tol=ROUNDING, abs_tol=1e-3):
        yield f"{told} tokens/s per GPU are told, {tokens:.3f} follow from the step time"


def _bounds(answer: Mapping[str, Any]) -> Iterator[str]:
    """A limit is broken exactly where the answer says so."""
    for bound in answer["bounds"]:
        name, what = bound["constraint"], bound["of"]
        if what == "step_time":
            value, most = answer["step_time"]["seconds"], bound["seconds_at_most"] + MICROSECOND / 2
        else:
            value, most = answer["memory"][what]["peak_bytes"], bound["bytes_at_most"]
        if (value > most) != _broken(answer, name):
            yield f"{name}: {value} of at most {most} is {'' if _broken(answer, name) else 'not '}said to break it"


def _batch(answer: Mapping[str, Any]) -> Iterator[str]:
    """Micro-batch × accumulation × data-parallel ranks is the global batch."""
    plan, batch = answer["plan"], answer["training"]["global_batch"]
    product = plan["micro_batch"] * plan["gradient_accumulation"] * plan["data_parallel"]
    if product != batch and not _broken(answer, "batch_divides_over_ranks"):
        yield f"micro-batch × accumulation × data is {product}, not the global batch of {batch}"


def _degrees(answer: Mapping[str, Any]) -> Iterator[str]:
    """The degrees multiply to the GPUs; expert parallelism lies inside the ranks of data and sequence."""
    plan, gpus = answer["plan"], answer["cluster"]["gpus"]
    ranks = plan["data_parallel"] * plan["sequence_parallel"]
    product = plan["tensor_parallel"] * plan["pipeline_parallel"] * ranks
    if product != gpus and not _broken(answer, "layout_fills_the_cluster"):
        yield f"the degrees multiply to {product}, the cluster has {gpus} GPUs"
    if ranks % plan["expert_parallel"]:
        yield f"expert parallelism {plan['expert_parallel']} does not divide {ranks} ranks"


def _layers(answer: Mapping[str, Any]) -> Iterator[str]:
    """The stages' layers add up to the model's, and the checkpoints lie inside the longest stage."""
    plan, stages, layers = answer["plan"], answer["model"]["layers_of_stages"], answer["model"]["layers"]
    if sum(stages) != layers or len(stages) != plan["pipeline_parallel"] or min(stages) < 0:
        yield f"stages of {stages} layers are no {plan['pipeline_parallel']} stages of {layers} layers"
    count, interval = plan["checkpoint_count"], plan["checkpoint_interval"]
    fits = (count == 0) == (interval == 0) and count * interval <= max(stages)
    if fits == _broken(answer, "checkpoints_fit_the_layers"):
        yield f"{count} checkpoints of {interval} layers in {max(stages)} layers are judged wrongly"


# Keys of the configuration that say what choices of the plan say.
CONFIGURED: Mapping[str, str] = {
    "stage": "zero_stage", "reduce_bucket_size": "reduce_bucket", "stage3_prefetch_bucket_size": "prefetch_bucket",
    "stage3_max_live_parameters": "live_parameters", "sub_group_size": "sub_group",
}  # fmt: skip


def _configuration(answer: Mapping[str, Any]) -> Iterator[str]:
    """The configuration that goes with a plan says the same."""
    plan, written = answer["plan"], (answer.get("deepspeed") or {}).get("zero_optimization", {})
    for key, choice in CONFIGURED.items():
        if key in written and written[key] != plan[choice]:
            yield f"{key} is configured as {written[key]}, the plan has {choice} {plan[choice]}"


def _of_a_solution(answer: Mapping[str, Any]) -> Iterator[str]:
    """A plan that was searched for breaks nothing, and the proof is about its own values."""
    if answer["violations"]:
        yield f"the best plan breaks {answer['violations'][0]['constraint']}"
    for proof, exact in _proofs(answer):
        value, bound, grain = _proven(answer, proof)
        if bound > value + grain / 2:
            yield f"a bound of {bound} is above the plan's own {value}"
        if exact and proof["optimal"] and abs(value - bound) > grain:
            yield f"a bound of {bound} is told as proof for {value}"
        gap = proof.get("gap", 0.0)
        if not exact:
            continue
        if not isclose(gap, 0.0 if proof["optimal"] else max(0.0, 1 - bound / value), abs_tol=1e-4 + grain / value):
            yield f"a gap of {gap} does not lie between {bound} and {value}"
    yield from _objective(answer)


def _proofs(answer: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Each proof, and whether the plan's value has to be its bound: a tolerance leaves the first one room."""
    proof, objective = answer.get("proof"), answer.get("objective", {})
    if proof is not None and ("bound_seconds" in proof or "bound_bytes" in proof):
        yield proof, not objective.get("within")
        if "then" in proof:
            yield proof["then"], True


def _proven(answer: Mapping[str, Any], proof: Mapping[str, Any]) -> tuple[float, float, float]:
    """(the plan's value, what is proven, what both are counted in)."""
    if "bound_bytes" in proof:
        return answer["memory"]["gpu"]["peak_bytes"], proof["bound_bytes"], GRAIN
    return answer["step_time"]["seconds"], proof["bound_seconds"], 2 * MICROSECOND


def _objective(answer: Mapping[str, Any]) -> Iterator[str]:
    """The value of the objective follows from the figures, and a tolerance is kept."""
    found = answer.get("objective")
    if found is None:
        return
    for one in (found, *([found["then"]] if "then" in found else [])):
        expected = _value(answer, one)
        if expected is not None and not isclose(expected, one["value"], rel_tol=ROUNDING):
            yield f"{one['name']} is told to be {one['value']}, {expected} follows from the figures"
    proof = answer["proof"]
    if found.get("within") and proof["optimal"]:
        value, bound, grain = _proven(answer, proof)
        if value > (bound + grain) * (1 + found["within"]) + grain:
            yield f"{value} is not within {found['within']} of {bound}"


def _value(answer: Mapping[str, Any], objective: Mapping[str, Any]) -> float | None:
    """An objective's value from the figures; None for a cost, whose price is not among them."""
    seconds, training = answer["step_time"]["seconds"], answer["training"]
    values: Mapping[str, float] = {
        "step_time": seconds,
        "memory": answer["memory"]["gpu"]["peak_bytes"],
        "tokens_per_second": training["global_batch"] * training["sequence_length"] / seconds,
    }
    return values.get(objective["name"])


Check = Callable[[Mapping[str, Any]], Iterator[str]]
CHECKS: tuple[Check, ...] = (_books, _verdicts, _time, _bounds, _batch, _degrees, _layers, _configuration)
