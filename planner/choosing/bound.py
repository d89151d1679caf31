"""What no plan of a job is faster than, by the floors of its layouts and micro-batches: cheap, beside solving a job."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy

from planner.floors import Floors, StandingFloors
from planner.forms import LARGEST
from planner.job import Job
from planner.plan import Layout
from planner.space import job_space
from planner.specification import specify
from planner.terms import Values

MOST = 500_000  # layouts with micro-batches that are looked at
CLOSER = 2_000  # of them that are looked at closely, those with the least rough floors


def least_microseconds(job: Job) -> int:
    """Microseconds that every plan's step takes at least: the products and exchanges of the fastest layout.

    Every other term adds to a lane or to the serial part of a window, so none makes a step shorter. Layouts that leave
    no room for the model's states do not count, unless all are such. 0 where the job leaves too much open to be read
    quickly.
    """
    values = {choice.name: choice.values for choice in job_space(job).choices}
    layouts, sizes = values["layout"], values["micro_batch"]
    if not layouts or not sizes or len(layouts) * len(sizes) > MOST:
        return 0
    standing = StandingFloors(specify(job))
    roomy = [layout for layout in layouts if isinstance(layout, Layout) and standing.holds(layout)]
    batches = [{"layout": layout, "micro_batch": size} for layout, size in product(roomy or layouts, sizes)]
    return _least(Floors(job), batches)


def _least(floors: Floors, batches: Sequence[Values]) -> int:
    """The least floor of several layouts with micro-batches, by rough floors first."""
    rough = floors.rough(batches)
    order = numpy.argsort(rough, kind="stable").tolist()
    least = int(rough[order[CLOSER]]) if len(order) > CLOSER else LARGEST
    for index in order[:CLOSER]:
        if rough[index] >= least:
            break
        least = min(least, floors.microseconds(batches[index]))
    return least
