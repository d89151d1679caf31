"""Quantities that follow the sizes of buffers, by hand; costs of smaller and larger buffers.

The small job has an embedding, a final norm and a head of 5 120 000, 640 and 5 120 000 elements, a rest of 52 480, and
four layers of 4 x 409 600, 3 x 1 095 680 and 2 x 640: 4 926 720, which is its bucket of either kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from planner.buckets import gathers
from planner.cluster import Group, collective_seconds, cpu_optimizer_seconds
from planner.communication import OUTLOOKS
from planner.evaluate import Evaluation, evaluate
from planner.job import Job
from planner.plan import Layout
from planner.quantities import BY_NAME
from planner.resolve import plain_plan
from planner.share import share
from planner.sizes import SIZES, own_size
from planner.space import job_space
from planner.step_time import microseconds
from planner.time_lines import TimeLine, step_time
from tests.jobs import job, plan

LAYER, MATRIX = 4_926_720, 703_817  # 4 926 720 over seven matrices
TWO = Layout(data=2)


@pytest.fixture(scope="module")
def small() -> Job:
    return job()


def elements(name: str, found: Job, layout: Layout = TWO, **values: int) -> int:
    """The quantity with the job's own sizes but those given."""
    return BY_NAME[name].elements(share(found, layout), {**plain_plan(found), **values})


def evaluated(found: Job, **values: Any) -> Evaluation:
    return evaluate(found, plan(found, **values))


def lines(found: Evaluation, name: str) -> list[TimeLine]:
    return [line for line in found.step_time.lines if line.name == name]


def held(found: Evaluation, moment: str, device: str = "gpu") -> Mapping[str, int]:
    """Bytes of a moment by the name of the line, lines of one name added up."""
    sizes: dict[str, int] = {}
    for line in next(one for one in found.ledger[device].moments if one.name == moment).lines:
        sizes[line.name] = sizes.get(line.name, 0) + line.bytes
    return sizes


# ── what they are ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_quantity_gets_the_choices_that_it_reads_and_no_others(small: Job) -> None:
    part = share(small, TWO)
    assert BY_NAME["reduce_bucket"].scope == ("layout", "reduce_bucket")
    assert BY_NAME["gathered"].scope == ("layout", "prefetch_bucket", "live_parameters")
    assert BY_NAME["stage_output"].scope == ("layout", "micro_batch")
    assert BY_NAME["parameters"].scope == ("layout",)
    with pytest.raises(KeyError, match="reduce_bucket"):
        BY_NAME["reduce_bucket"].body(part, {"sub_group": 1})
    for quantity in BY_NAME.values():
        assert quantity.elements(part, {**plain_plan(small), "micro_batch": 1}) >= 0


def test_the_sizes_of_a_job_that_names_none(small: Job) -> None:
    """A layer, a layer, a layer for the next use with a bucket and the head of 5 120 000, 1e8."""
    expected = {"reduce_bucket": LAYER, "prefetch_bucket": LAYER, "live_parameters": 14_973_440, "sub_group": 10**8}
    assert {name: own_size(small, name) for name in SIZES} == expected
    assert {name: plain_plan(small)[name] for name in SIZES} == expected


@pytest.mark.parametrize(
    ("sizes", "bucket", "calls"),
    [
        ((6, 2, 4), 7, 2),  # 6 and 2, then 4
        ((6, 2, 4), 6, 2),  # 6 are enough, 2 and 4 follow
        ((6, 2, 4), 12, 1),
        ((6, 2, 4), 1, 3),  # each crosses the end
        ((6, 2, 4), 0, 3),  # none ahead: each when it is needed
        ((), 5, 0),
    ],
)
def test_a_call_gathers_tensors_until_it_has_the_bucket(sizes: tuple[int, ...], bucket: int, calls: int) -> None:
    assert gathers(sizes, bucket) == calls


def test_reductions_with_another_bucket(small: Job) -> None:
    """With a bucket of a layer there are 8 reductions, of two matrices and less 36, of the whole model one.

    In the order of backward: three layers of one reduction each would leave 640 over, so that the norms of the next
    layer begin a reduction; the tensors outside come last. A bucket of 100 000 holds the norms of a layer only.
    """
    assert elements("reduced_at_once", small) == LAYER
    assert elements("reduced_at_once", small, reduce_bucket=100_000) == LAYER * 8 // 36
    assert elements("reduced_at_once", small, reduce_bucket=10**8) == LAYER * 8


def test_gathers_with_another_bucket(small: Job) -> None:
    """31 tensors are above 6 400 elements: 6 calls with a bucket of a layer until 14 973 440 of the 30 000 000 elements
    are live, one for each tensor from then on and where the bucket is smaller than any.
    """
    calls = 14_973_440 * 6 + 15_026_560 * 31
    assert elements("gathered_at_once", small) == LAYER
    for values in ({"prefetch_bucket": 1000}, {"prefetch_bucket": 0}, {"live_parameters": LAYER}):
        assert elements("gathered_at_once", small, **values) == LAYER * calls // (30_000_000 * 31)
    farther = elements("gathered_at_once", small, live_parameters=20_000_000)
    assert farther == LAYER * calls // (20_000_000 * 6 + 10_000_000 * 31)
    assert elements("gathered_at_once", small, live_parameters=10**9) == LAYER * calls // (30_000_000 * 6)


@pytest.mark.parametrize(
    ("live", "ahead", "late"),
    [
        (14_973_440, LAYER, 0),  # the layer, the bucket and the head of 5 120 000
        (10_750_537, LAYER, 0),  # the layer, the head and a matrix
        (10_750_536, LAYER, 1),
        (10_046_720, LAYER, MATRIX),  # the layer and the head: nothing is gathered ahead while the loss is made
        (9_853_440, LAYER, MATRIX),  # two layers
        (9_853_439, LAYER - 1, MATRIX),
        (4_926_720, 0, 0),  # the running layer alone: every gather is waited for
        (0, 0, 0),
    ],
)
def test_what_live_parameters_leave_to_gather_ahead(small: Job, live: int, ahead: int, late: int) -> None:
    assert elements("gathered_ahead", small, live_parameters=live) == ahead
    assert elements("gathered_late", small, live_parameters=live) == late


def test_sub_groups_take_on_whole_shards(small: Job) -> None:
    """15 million elements on each of two ranks; a shard of the embedding is 2 560 000.

    In the order of the model code. Of 3 000 000 elements or more there are five in place of one, the largest of them of
    3 216 000. Of 1000 there are 31 of the 40 tensors, since norms of 320 go with what follows.
    """
    assert elements("sub_group", small) == 15_000_000
    assert elements("sub_group", small, sub_group=3_000_000) == 3_216_000
    assert elements("sub_group", small, sub_group=14_000_000) == 14_973_760  # and 26 240
    assert elements("further_sub_groups", small) == 0
    assert elements("further_sub_groups", small, sub_group=3_000_000) == 4
    assert elements("further_sub_groups", small, sub_group=1000) == 30
    assert elements("further_sub_groups", small, sub_group=10**9) == 0


# ── what they hold ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_buckets_of_stage_2_follow_their_size(small: Job) -> None:
    """2 bytes of 200 000 elements each; no reduction of several gradients is larger."""
    found = held(evaluated(small, zero_stage=2, reduce_bucket=200_000), "reduction")
    assert found["reduction buckets"] == found["second bucket of the overlap"] == 400_000
    assert "flat copy of a bucket of several ranks" in held(evaluated(small, zero_stage=2), "reduction")


def test_buffers_of_stage_3_follow_their_sizes(small: Job) -> None:
    """2 bytes of a bucket of 8 000 000, of its copy and a matrix, of 9 000 000 live and one, of 2 000 000 and one."""
    found = evaluated(
        small, zero_stage=3, reduce_bucket=8_000_000, prefetch_bucket=2_000_000, live_parameters=9_000_000
    )
    reduction = held(found, "reduction")
    assert reduction["reduction bucket"] == 16_000_000
    assert reduction["padded copy of the bucket and the next gradient"] == 2 * (8_000_000 + MATRIX)
    assert reduction["parameters gathered"] == 2 * (9_000_000 + MATRIX)
    assert reduction["second copy while gathering"] == 2 * (2_000_000 + MATRIX)
    assert held(evaluated(small, zero_stage=3, prefetch_bucket=0), "reduction")["parameters gathered"] == 2 * LAYER


def test_temporaries_of_the_step_are_of_one_sub_group(small: Job) -> None:
    """6 bytes of 3 216 000 elements; pinned are 4 bytes of five sub-groups of 2 587 200 to that many."""
    found = held(evaluated(small, zero_stage=3, sub_group=3_000_000), "optimizer_step")
    assert found["flat gradients of a sub-group"] == 2 * 3_216_000
    assert found["fp32 gradients of a sub-group"] == 4 * 3_216_000
    offloaded = evaluated(small, zero_stage=3, optimizer_offload="cpu", sub_group=3_000_000)
    pinned = 5 * (1 << 24)
    assert held(offloaded, "forward", "host")["fp32 gradients on the host"] == 2 * pinned


# ── what they cost ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_message_of_a_smaller_bucket_has_its_latency(small: Job) -> None:
    """30 000 000 elements in messages of 8 / 36 of a layer: 28 of them."""
    found = evaluated(small, zero_stage=2, micro_batch=4, reduce_bucket=100_000)
    once = collective_seconds(small.cluster, "all_reduce", 60_000_000 / 28, Group(2))
    assert [line.microseconds for line in lines(found, "gradient all-reduce")] == [microseconds(28 * once)]


def test_the_host_works_for_every_rank_of_every_message(small: Job) -> None:
    """Of two ranks 15 us each, for each of 28 messages of stage 3."""
    found = evaluated(small, zero_stage=3, micro_batch=4, reduce_bucket=100_000)
    once = collective_seconds(small.cluster, "reduce_scatter", 60_000_000 / 28, Group(2)) + 2 * 15e-6
    assert [line.microseconds for line in lines(found, "gradient reduce-scatter")] == [microseconds(28 * once)]


@pytest.mark.parametrize("values", [{"prefetch_bucket": 0}, {"live_parameters": LAYER}])
def test_layers_wait_for_what_is_not_gathered_ahead(small: Job, values: dict[str, int]) -> None:
    """30 000 000 elements in messages of 2 943 656, 18.5 of 31 times a layer, are 11."""
    found = evaluated(small, zero_stage=3, micro_batch=4, **values)
    once = collective_seconds(small.cluster, "all_gather", 60_000_000 / 11, Group(2)) + 2 * 15e-6
    paid = {(line.window, line.lane): line.microseconds for line in lines(found, "parameter gather in forward")}
    assert paid == {("forward", "serial"): microseconds(11 * once)}
    assert {line.lane for line in lines(evaluated(small, zero_stage=3), "parameter gather in forward")} == {
        "communication"
    }


def test_what_finds_no_room_beside_the_head_is_waited_for(small: Job) -> None:
    """500 000 elements in one message, for each of four micro-batches of a step."""
    found = evaluated(small, zero_stage=3, micro_batch=1, live_parameters=10_250_537)
    once = collective_seconds(small.cluster, "all_gather", 1_000_000, Group(2)) + 2 * 15e-6
    (line,) = lines(found, "parameter gather at the loss")
    assert (line.window, line.lane, line.microseconds) == ("optimizer_step", "serial", microseconds(4 * once))
    assert not lines(evaluated(small, zero_stage=3), "parameter gather at the loss")


def test_the_host_launches_the_kernels_of_every_further_sub_group(small: Job) -> None:
    """30 sub-groups more: 30 x 10 kernels of 20 us are 6 ms, far above what the GPU takes; the CPU adds them."""
    (line,) = lines(evaluated(small, zero_stage=3, sub_group=1000), "optimizer")
    assert line.microseconds == 6000
    plain, cut = (
        lines(evaluated(small, zero_stage=3, optimizer_offload="cpu", **values), "optimizer on the host")
        for values in ({}, {"sub_group": 1000})
    )
    assert sum(line.microseconds for line in cut) - sum(line.microseconds for line in plain) == pytest.approx(
        6000, abs=1
    )


def test_a_part_of_the_calls_goes_with_a_part_of_the_sub_groups(small: Job) -> None:
    """Two of five sub-groups stay on the GPU: the host updates 9 000 000 elements, in 0.6 of the four calls more."""
    values = {"optimizer_offload": "cpu", "optimizer_on_gpu": 50, "sub_group": 3_000_000}
    (line,) = lines(evaluated(small, zero_stage=3, **values), "optimizer on the host")
    assert line.microseconds == microseconds(cpu_optimizer_seconds(small.cluster, 9_000_000, 2) + 3 * 10 * 20e-6)


# Sizes of which each larger one makes fewer messages or calls, or lets more be gathered ahead; and that no more.
STEPS: Mapping[str, tuple[int, ...]] = {
    "reduce_bucket": (1000, 100_000, 2_000_000, LAYER, 10**7, 10**8),
    "prefetch_bucket": (0, 1000, 500_000, LAYER, 10**7),
    "live_parameters": (LAYER, LAYER + 1, 7_000_000, 10_046_720, 10_750_537, 14_973_440, 2 * 10**7, 30_000_000),
    "sub_group": (1000, 500_000, 1_000_000, 10**8),  # the GPU hides the calls of 5e6
}
LARGER = {"reduce_bucket": 10**9, "prefetch_bucket": 10**8, "live_parameters": 10**9, "sub_group": 10**9}


@pytest.mark.parametrize("stage", [1, 2, 3])
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("offload", ["none", "cpu"])
def test_a_smaller_buffer_is_never_free_and_a_larger_never_slower(
    small: Job, name: str, stage: int, offload: str
) -> None:
    """With every smaller size the step takes longer, or work that is hidden does; with larger ones as long."""
    acts = stage == 3 or name == "reduce_bucket"
    for outlook in OUTLOOKS:
        values = {"zero_stage": stage, "optimizer_offload": offload}
        found = [_work(small, outlook, **values, **{name: size}) for size in (*STEPS[name], LARGER[name])]
        for (slower, more), (faster, less) in pairwise(found[:-1]):
            assert faster < slower or (faster == slower and (less < more or not acts))
        assert found[-1] == found[-2]


def _work(found: Job, outlook: str, **values: Any) -> tuple[int, int]:
    """Microseconds of a step, and those of all its lines."""
    time = step_time(found, job_space(found).complete(plan(found, **values)), outlook)
    return time.microseconds, sum(line.microseconds for line in time.lines)


def test_the_jobs_own_sizes_change_nothing(small: Job) -> None:
    """A job that names its own sizes has the figures of one that names none."""
    named = small.with_choices({name: (own_size(small, name),) for name in SIZES})
    for stage in range(4):
        one, other = evaluated(small, zero_stage=stage), evaluated(named, zero_stage=stage)
        assert (one.peak_bytes, one.step_time.lines) == (other.peak_bytes, other.step_time.lines)
