"""What no plan of a job is faster than, by the floors of its layouts and micro-batches: cheap, beside solving a job."""

from __future__ import annotations

from planner.batches import Batches
from planner.forms import LARGEST
from planner.job import Job
from planner.points import outer_space
from planner.specification import specify


def least_microseconds(job: Job) -> int:
    """Microseconds that every plan's step takes at least, by the lowest floor; 0 where no layout has room."""
    specification = specify(job)
    lowest = next(Batches(specification, outer_space(specification, None)).below(lambda: LARGEST - 1), None)
    return 0 if lowest is None else lowest.floor
