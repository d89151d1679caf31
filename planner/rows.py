"""Every row of a point at once: its forms' values at all values of the inner choices, as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy

from planner.forms import LARGEST, Form
from planner.plan import Value
from planner.points import Point, Points

if TYPE_CHECKING:
    from numpy.typing import NDArray


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
