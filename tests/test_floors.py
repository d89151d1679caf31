"""Floors: below every plan's time, and the rough ones below them."""

from __future__ import annotations

from typing import Any

import pytest

from planner.exchange import messages_seconds
from planner.floors import VERY_MANY, Floors, Seconds
from planner.forms import Reader, least_time
from planner.job import Job
from planner.plan import Layout, layout_of
from planner.points import enumerate_points
from planner.specification import specify
from tests.jobs import job

DENSE = {"parameters": 200_000_000, "layers": 6, "vocabulary": 8000, "heads": 8}
PINS = {"checkpoint_interval": [0, 1], "gradient_accumulation_dtype": "fp32", "loss": "standard"}


def planned(gpu: str, runtime: str, model: Any = DENSE, nodes: int = 2, precision: str = "bf16") -> Job:
    """A job of few points on two nodes of four GPUs."""
    cluster = {"gpu": gpu, "gpus_per_node": 4, "nodes": nodes, "interconnect": "100 Gbit/s"}
    training = {"runtime": runtime, "global_batch": 32, "precision": precision}
    return job(model=model, cluster=cluster, training=training, choices=PINS)


JOBS = [
    ("a100-sxm-80gb", "megatron", DENSE, "bf16"),
    ("h100-sxm-80gb", "megatron", "dense_then_experts/config.json", "fp8"),
    ("rtx4090-24gb", "megatron", DENSE, "bf16"),
    ("v100-sxm2-32gb", "megatron-deepspeed", DENSE, "fp16"),
    ("l40s-48gb", "fsdp2", DENSE, "bf16"),
    ("a100-sxm-40gb", "deepspeed", DENSE, "bf16"),
]


@pytest.mark.parametrize(("gpu", "runtime", "model", "precision"), JOBS)
def test_floors_are_below_every_point(gpu: str, runtime: str, model: Any, precision: str) -> None:
    """The least time over a point's boxes, from all of its terms, is never below the floor of its batch."""
    found = planned(gpu, runtime, model, precision=precision)
    specification = specify(found)
    points, floors = enumerate_points(specification), Floors(found)
    assert points.points
    for point in points.points:
        boxes = points.relations[point.key].boxes
        least = max(form.least(boxes) for form in point.time)
        exact = floors.microseconds(point.values)
        rough, whatever = floors.rough([point.values])[0], floors.of_layouts([layout_of(point.values)])[0]
        assert 0 < whatever <= rough <= exact <= least


def test_floors_tell_losses_apart() -> None:
    """The floor that knows no loss is the lower one of the two, and each is below the points with its loss."""
    cluster = {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}
    choices = {**PINS, "loss": ["standard", "chunked"]}
    found = job(model=DENSE, cluster=cluster, training={"global_batch": 32}, choices=choices)
    points, floors = enumerate_points(specify(found)), Floors(found)
    assert {point.values["loss"] for point in points.points} == {"standard", "chunked"}
    for point in points.points:
        batch = {name: point.values[name] for name in ("layout", "micro_batch")}
        each = [floors.microseconds({**batch, "loss": loss}) for loss in ("standard", "chunked")]
        assert floors.microseconds(batch) == min(each) < max(each)
        boxes = points.relations[point.key].boxes
        assert floors.microseconds(point.values) <= max(form.least(boxes) for form in point.time)


def test_what_sequences_exchange_beside_the_layers_counts_where_it_takes_longer() -> None:
    """Two GPUs that share sequences over a slow network: forward waits for the keys and values of all layers.

    Twice the layers' exchange of one micro-batch where twice as many are made.
    """
    cluster = {"gpu": "h100-sxm-80gb", "gpus_per_node": 1, "nodes": 2, "interconnect": "1 Gbit/s"}
    choices = {**PINS, "sequence_parallel": 2}
    found = job(model=DENSE, cluster=cluster, training={"runtime": "megatron", "global_batch": 2}, choices=choices)
    floors, layout = Floors(found), Layout(sequence=2)
    once = floors._once(layout, found.training.sequence_length // 2)
    each = 6 * (once.beside[0][0] + once.beside[1][0])
    assert once.beside[0][0] > once.forward[0] and once.beside[1][0] > once.backward[0]
    exact = floors.microseconds({"layout": layout, "micro_batch": 1})
    assert 2 * each * 1e6 == pytest.approx(exact, abs=2)


def test_a_floor_is_the_compute_of_the_whole_step_where_nothing_is_exchanged() -> None:
    """One GPU, nothing recomputed: the floor is forward and backward of all micro-batches, to the rounding."""
    found = job(cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 1}, choices=PINS)
    specification = specify(found)
    compute = [term for term in specification.time if term.name == "compute"]
    reader = Reader(compute, [measure.name for measure in specification.space.measures])
    points = enumerate_points(specification).points
    sums = reader.sums([point.values for point in points])
    boxes = sums[:, 0, 1:] * 0
    for point, exact in zip(points, least_time(reader, sums, boxes, boxes), strict=True):
        assert exact - 3 <= Floors(found).microseconds(point.values) <= exact  # three windows, rounded up each


def test_rough_floors_of_many_batches_are_those_of_each() -> None:
    """What is worked out for all batches at once is what `microseconds` makes of the times among very many tokens."""
    found = planned("a100-sxm-80gb", "megatron")
    floors, batches = Floors(found), [point.values for point in enumerate_points(specify(found)).points]
    together = floors.rough(batches)
    for values, many in zip(batches, together.tolist(), strict=True):
        layout = layout_of(values)
        once = floors._once(layout, VERY_MANY)
        message = messages_seconds(found, layout, VERY_MANY, "typical")
        alone = floors._step(floors._stages(layout), once, values, message, {}) * found.tokens(values) / VERY_MANY
        assert abs(many - alone * 1e6 * (1 - 1e-6)) <= 1


def test_no_kernel_takes_longer_per_token_the_more_tokens_there_are() -> None:
    """What the rough floor rests on, over powers of two of tokens and every kind of layer and end."""
    for gpu, runtime, model, precision in JOBS:
        found = planned(gpu, runtime, model, precision=precision)
        floors = Floors(found)
        for layout in {layout_of(point.values) for point in enumerate_points(specify(found)).points}:
            limit = floors._once(layout, VERY_MANY)
            for tokens in (16, 256, 4096, 65536, 2**20):
                once = floors._once(layout, tokens)
                message, most = (messages_seconds(found, layout, n, "typical") for n in (tokens, VERY_MANY))
                assert message / tokens >= (1 - 1e-6) * most / VERY_MANY
                for some, all_ in zip(_layers(once), _layers(limit), strict=True):
                    assert some / tokens >= (1 - 1e-6) * all_ / VERY_MANY
                for end, seconds in once.ends.items():
                    for one, most in zip(seconds, limit.ends[end], strict=True):
                        assert one / tokens >= (1 - 1e-6) * most / VERY_MANY


def _layers(once: Seconds) -> tuple[float, ...]:
    """Seconds of every kind of layer and of what runs beside it."""
    return (*once.forward, *once.backward, *once.beside[0], *once.beside[1])
