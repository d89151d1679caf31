"""What the software of a run could do, by the run's date: logs have no columns for versions.

See `catalogs/software.yaml` for what is told apart and for the date of a run that states none.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any, cast

from planner.accuracy.run_log import Run
from planner.effects import Allocate
from planner.reading import read_document
from planner.techniques import RuntimeEntry

FILE = "software.yaml"


def could(run: Run, ability: str) -> bool:
    """Whether training code had this `ability` of the catalog when the run was made."""
    made = _made(run)
    return made is None or made >= _month(_software()["since"][ability]["month"])


def changed(runtime: RuntimeEntry, change: str) -> RuntimeEntry:
    """The runtime with this `change` of the catalog: other quantities, effects beside its own, another margin."""
    told = _software()["runtimes"][change]
    names: Mapping[str, str] = told.get("of", {})
    own = (
        effect.model_copy(update={"of": names.get(effect.of, effect.of)}) if isinstance(effect, Allocate) else effect
        for effect in runtime.effects
    )
    added = (Allocate.model_validate(effect) for effect in told.get("effects", ()))
    margin = told.get("fragmentation", runtime.fragmentation)
    return runtime.model_copy(update={"effects": (*own, *added), "fragmentation": margin})


def _made(run: Run) -> int | None:
    """The month in which the run was made, stated or usual for its GPU; None for today."""
    if run.date is not None:
        return _month(run.date)
    announced = _software()["announced"]["gpus"].get(run.gpu)
    return None if announced is None else _usual_month(_month(announced))


def _usual_month(announced: int) -> int:
    """The middle of the months in which a part announced then is a usual one, as far as they have passed."""
    age, today = _software()["usual_age"], _month(_software()["passed"]["month"])
    first, last = announced + int(age["first"]), min(announced + int(age["last"]), today)
    return (first + max(first, last)) // 2


def _month(text: str) -> int:
    """Months since the year 0 of a month such as 2025-04."""
    year, month = text.split("-")
    return 12 * int(year) + int(month) - 1


@lru_cache(maxsize=1)
def _software() -> Mapping[str, Any]:
    """The content of the catalog."""
    text = files("catalogs").joinpath(FILE).read_text(encoding="utf-8")
    return cast("Mapping[str, Any]", read_document(f"catalogs/{FILE}", text=text).data)
