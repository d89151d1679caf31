"""What the software of a run could do, by the run's date: logs have no columns for versions.

See `catalogs/software.yaml` for what is told apart and for the date of a run that states none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from planner.accuracy.run_log import Run
from planner.reading import read_document

FILE = "software.yaml"


def could(run: Run, ability: str) -> bool:
    """Whether training code had this `ability` of the catalog when the run was made."""
    made = _made(run)
    return made is None or made >= _month(_software()["since"][ability]["month"])


def _made(run: Run) -> int | None:
    """The month in which the run was made, stated or usual for its GPU; None for today."""
    if run.date is not None:
        return _month(run.date)
    announced = _software()["announced"]["gpus"].get(run.gpu)
    return None if announced is None else _month(announced) + int(_software()["usual_age"]["months"])


def _month(text: str) -> int:
    """Months since the year 0 of a month such as 2025-04."""
    year, month = text.split("-")
    return 12 * int(year) + int(month) - 1


@lru_cache(maxsize=1)
def _software() -> Mapping[str, Any]:
    """The content of the catalog."""
    text = files("catalogs").joinpath(FILE).read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", read_document(f"catalogs/{FILE}", text=text).data)
