"""Every row of points at once: values of forms at all values of the inner choices, as arrays of exact integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy

from planner.forms import LARGEST, Form, Reader, time_at
from planner.objective import Coordinate
from planner.plan import Value
from planner.points import Point, Points
from planner.relations import Relation
from planner.terms import TIME

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT_ONCE = 2**22  # values of one array


def least_rows(
    coordinate: Coordinate,
    readers: tuple[Reader, Reader],
    sums: tuple[NDArray[Any], NDArray[Any]],
    relations: Sequence[Relation],
    inner: int,
    capacities: Mapping[str, int],
) -> NDArray[Any]:
    """Array (points): the least of a coordinate among each point's rows that are within `capacities`, or LARGEST.

    Microseconds of the fastest row, or one GPU's bytes at the leanest. `readers` and `sums` (points, places,
    1 + measures) are those of memory and of time; a relation's rows begin with `inner` places.
    """
    found = numpy.full(len(relations), LARGEST, dtype=numpy.int64)
    alike: dict[int, list[int]] = {}
    for index, relation in enumerate(relations):
        alike.setdefault(id(relation), []).append(index)  # pipelines with the same stages share one
    none = numpy.iinfo(numpy.int64).max
    devices = [device for device, _ in readers[0].places]
    bounds = numpy.array([capacities.get(device, none) for device in devices], dtype=numpy.int64)
    on_gpu = [index for index, device in enumerate(devices) if device == "gpu"]
    for same in alike.values():
        rows = numpy.array(relations[same[0]].rows, dtype=numpy.int64)[:, inner:]
        count = max(1, AT_ONCE // (len(rows) * max(1, len(bounds))))
        for start in range(0, len(same), count):
            part = same[start : start + count]
            held, seconds = _at(sums[0][part], rows), time_at(readers[1], _at(sums[1][part], rows))
            holds = (held <= bounds[None, :, None]).all(axis=1) & (seconds <= capacities.get(TIME, none))
            values = seconds if coordinate == "time" else held[:, on_gpu].max(axis=1)
            found[part] = numpy.where(holds, values, LARGEST).min(axis=1)
    return found


def _at(sums: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Array (points, places, rows): the forms of every place at every row's measures."""
    return numpy.asarray(sums[:, :, :1] + sums[:, :, 1:] @ rows.T)


class Rows:
    """The rows of points, each relation's made into arrays once."""

    def __init__(self, points: Points) -> None:
        self.points = points
        self.tables: dict[tuple[Value, ...], tuple[NDArray[Any], NDArray[Any]]] = {}
        self.weights = numpy.array(points.inner_weights, dtype=numpy.int64)

    def best(self, point: Point, bounded: Sequence[tuple[Form, int]], forms: Sequence[Form] | None) -> tuple[int, int]:
        """The least value of all rows within the bounds, and the row; LARGEST where none is.

        A row's value is the largest of the forms, or without forms its rank in the order of the catalog.
        """
        places, measures = self._arrays(point.key)
        holds: NDArray[Any] = numpy.ones(len(places), dtype=bool)
        if bounded:
            limits = numpy.array([bound for _, bound in bounded], dtype=numpy.int64)
            holds = numpy.all(_values([form for form, _ in bounded], measures) <= limits[:, None], axis=0)
        if not holds.any():
            return LARGEST, 0
        if forms is None:
            values = point.rank + places @ self.weights
        else:
            values = _values(forms, measures).max(axis=0) if forms else numpy.zeros(len(places), dtype=numpy.int64)
        row = int(numpy.where(holds, values, LARGEST).argmin())
        return int(values[row]), row

    def _arrays(self, key: tuple[Value, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Arrays (rows, inner choices) of places and (rows, measures) of a relation."""
        if key not in self.tables:
            rows, inner = self.points.relations[key].rows, len(self.points.inner)
            table = numpy.array(rows, dtype=numpy.int64).reshape(len(rows), -1)
            self.tables[key] = table[:, :inner], table[:, inner:]
        return self.tables[key]


def _values(forms: Sequence[Form], measures: NDArray[Any]) -> NDArray[Any]:
    """Array (forms, rows): the value of every form at every row of measures."""
    constants = numpy.array([form.constant for form in forms], dtype=numpy.int64)
    slopes = numpy.array([form.slopes for form in forms], dtype=numpy.int64).reshape(len(forms), -1)
    return numpy.asarray(constants[:, None] + slopes @ measures.T)
