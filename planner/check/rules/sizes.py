"""Buckets and thresholds; every size is a count of elements, not bytes."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import ENGINE, Finding, error, info, warn
from planner.check.subject import Subject
from planner.units import format_bytes

ZERO = "zero_optimization"
# Below the first a bucket launches a kernel for next to nothing, below the second it is a poor one (in elements).
PATHOLOGICAL, SMALL = 1_000, 100_000
LARGE = 1_000_000_000
WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}


def width(subject: Subject) -> int:
    """Bytes of an element in a bucket; 2 where the trainer decides."""
    return 2 if subject.precision_is_open else WIDTHS[subject.precision]


def overlaps(subject: Subject) -> bool:
    """Whether reduction overlaps backward: by default at stage 3 only."""
    written = subject.value(f"{ZERO}.overlap_comm")
    return subject.stage == 3 if written is None else bool(written)


def bucket_bytes(subject: Subject, elements: int) -> int:
    """Bytes of the reduction buckets: two of them where stages 1 and 2 overlap."""
    return elements * width(subject) * (2 if subject.stage in (1, 2) and overlaps(subject) else 1)


def reduce_bucket_is_of_use(subject: Subject) -> Iterator[Finding]:
    """Large buckets cost memory, tiny ones a launch per element."""
    dotted = f"{ZERO}.reduce_bucket_size"
    if not subject.stage or subject.is_auto(dotted):
        return
    size = subject.value(dotted)
    held = format_bytes(bucket_bytes(subject, size))
    if not subject.has(dotted):
        yield info(dotted, f"not given: the default of {size:g} elements holds {held} on each GPU")
    elif size < PATHOLOGICAL:
        yield error(dotted, f"a bucket of {size} elements launches a collective for next to nothing: the run crawls")
    elif size < SMALL:
        yield warn(dotted, f"a bucket of {size} elements is small: many short collectives")
    elif size >= LARGE:
        yield warn(dotted, f"sizes are elements: {size:g} hold {held} on each GPU")


def sub_groups_are_of_use(subject: Subject) -> Iterator[Finding]:
    """The optimizer of stage 3 works on one sub-group at a time and holds 6 bytes per element meanwhile."""
    dotted = f"{ZERO}.sub_group_size"
    if subject.stage != 3 or not subject.has(dotted):
        return
    size = subject.value(dotted)
    if size < PATHOLOGICAL:
        yield error(
            dotted, f"a sub-group of {size} elements runs the optimizer once for next to nothing: the run crawls"
        )
    elif size < SMALL:
        yield warn(dotted, f"a sub-group of {size} elements is small: many short optimizer calls")
    elif size > LARGE:
        yield warn(
            dotted,
            f"{size:g} elements mean no sub-groups: the step holds up to 6 bytes per element of the whole shard at "
            "once",
        )


def prefetch_is_bounded(subject: Subject) -> Iterator[Finding]:
    """What is gathered ahead stands twice for a moment."""
    dotted = f"{ZERO}.stage3_prefetch_bucket_size"
    if subject.stage != 3:
        return
    size = subject.value(dotted)
    if size > 50_000_000:
        say = warn if size >= LARGE else info
        held = format_bytes(2 * size * width(subject))
        yield say(dotted, f"gathers {size:g} elements ahead, up to {held} on each GPU; the default is 5e7")


def few_parameters_stay_whole(subject: Subject) -> Iterator[Finding]:
    """Tensors up to the threshold stay whole on every GPU."""
    dotted = f"{ZERO}.stage3_param_persistence_threshold"
    if subject.stage != 3:
        return
    size = subject.value(dotted)
    if size >= 1_000_000:
        say = warn if size >= 10_000_000 else info
        yield say(dotted, f"tensors of up to {size:g} elements stay whole on every GPU; the default is 1e5")


def little_stays_gathered(subject: Subject) -> Iterator[Finding]:
    """Parameters that are used again soon stay gathered."""
    if subject.stage != 3:
        return
    for name in ("stage3_max_live_parameters", "stage3_max_reuse_distance"):
        size = subject.value(f"{ZERO}.{name}")
        if size > LARGE:
            yield warn(
                f"{ZERO}.{name}",
                f"up to {size:g} gathered elements stay on each GPU, {format_bytes(size * width(subject))}; the "
                "default is 1e9",
            )


def gather_bucket_is_even(subject: Subject) -> Iterator[Finding]:
    """Stages 1 and 2 assert an even size."""
    dotted = f"{ZERO}.allgather_bucket_size"
    size = subject.value(dotted)
    if subject.stage in (1, 2) and size % 2:
        yield error(dotted, f"{size} is odd: the engine refuses it", ENGINE)
    elif subject.stage and subject.has(dotted) and not subject.is_auto(dotted) and size < PATHOLOGICAL:
        yield warn(dotted, f"a bucket of {size} elements gathers next to nothing at once")


RULES = (
    reduce_bucket_is_of_use,
    sub_groups_are_of_use,
    prefetch_is_bounded,
    few_parameters_stay_whole,
    little_stays_gathered,
    gather_bucket_is_even,
)
