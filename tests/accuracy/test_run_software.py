"""What software could do when a run was made, by its date or by that of its GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from logs import write_log

from planner import hardware_catalog
from planner.accuracy.run_log import Run, read_run_log
from planner.accuracy.run_software import FILE, _usual_month, could
from planner.errors import InputError
from planner.reading import read_document

SINCE = "2025-04"  # compiled_loss
CATALOG = Path(__file__).parents[2] / "catalogs" / FILE


def run(folder: Path, **cells: str) -> Run:
    (found,) = read_run_log(write_log(folder, cells))
    return found


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ({"date": "2025-03"}, False),
        ({"date": SINCE}, True),
        ({"date": "2026-01"}, True),
        ({"gpu": "h100-sxm-80gb"}, False),  # announced in 2022-03, usual from 2022-09 to 2025-09: 2024-03
        ({"gpu": "mi300x-192gb"}, True),  # 2023-06, from 2023-12 on as far as 2026-08: 2025-04
        ({"gpu": "b300-288gb"}, True),  # 2025-03: from 2025-09 to 2026-08
        ({"gpu": "h100-sxm-80gb", "date": SINCE}, True),  # what is stated counts
        ({"gpu": "a-card-of-ours"}, True),
    ],
)
def test_a_run_has_the_software_of_its_date(tmp_path: Path, cells: dict[str, str], expected: bool) -> None:
    assert could(run(tmp_path, **cells), "compiled_loss") is expected


def test_a_part_that_is_hardly_to_be_had_is_of_its_first_month() -> None:
    # half a year after 2026-06, when 2026-08 is all that has passed
    assert _usual_month(12 * 2026 + 5) == 12 * 2026 + 11


@pytest.mark.parametrize("cell", ["2025", "2025-13", "2025-4", "25-04", "April 2025"])
def test_a_date_is_a_month(tmp_path: Path, cell: str) -> None:
    with pytest.raises(InputError) as error:
        run(tmp_path, date=cell)
    assert error.value.expected == "a month such as 2025-04"


def test_the_catalog_knows_its_gpus_and_says_where_figures_are_from() -> None:
    content = read_document(str(CATALOG), text=CATALOG.read_text(encoding="utf-8")).data
    announced = content["announced"]
    assert set(announced["gpus"]) == set(hardware_catalog.gpus())
    assert all(re.fullmatch(r"20[0-9]{2}-(0[1-9]|1[0-2])", month) for month in announced["gpus"].values())
    assert all(entry["source"] for entry in (content["usual_age"], content["passed"], announced))
    assert all(entry["source"] for entry in content["since"].values())
    told = content["runtimes"].values()
    assert all(effect["source"] for entry in told for effect in entry.get("effects", ()))
    assert all(entry["source"] for entry in told if "fragmentation" in entry)
