"""The file that rows of results are kept in: a line for each job, whole or not at all, JSON Lines or CSV."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.many.row import COLUMNS, Row
from planner.output import write_files

SUFFIXES = (".jsonl", ".csv")
SWEPT = "sweep."  # before the columns of swept fields: a field may be named as a figure is
NUMBERS = ("gpus", "step_seconds", "tokens_per_second_per_gpu", "peak_bytes", "usd_per_million_tokens", "seconds")


class Results:
    """A file of rows. `fields` are the swept fields, which are columns of their own in CSV."""

    def __init__(self, path: Path, fields: Sequence[str] = ()) -> None:
        if path.suffix not in SUFFIXES:
            raise InputError(f"'{path}' is no file of results", path="--out", expected="FILE.jsonl or FILE.csv")
        self.path, self.fields = path, tuple(fields)

    def read(self) -> list[Row]:
        """The rows that are there; a last line that is not whole, as an interrupted machine leaves it, is none.

        Raises InputError for a file of something else.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, UnicodeDecodeError):
            raise InputError("cannot be read as results", file=str(self.path), path="--out") from None
        whole = text[: text.rfind("\n") + 1]
        return self._csv_rows(whole) if self.path.suffix == ".csv" else self._json_rows(whole)

    def write(self, rows: Iterable[Row]) -> None:
        """The whole file anew, in one step."""
        text = csv_text(rows, self.fields) if self.path.suffix == ".csv" else "".join(map(_json_line, rows))
        write_files(self.path.parent, {self.path.name: text}, force=True)

    def append(self, row: Row) -> None:
        """One more line, in one write."""
        line = _csv_line(row, self.fields) if self.path.suffix == ".csv" else _json_line(row)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line.encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def _json_rows(self, text: str) -> list[Row]:
        """Rows of JSON Lines."""
        rows: list[Row] = []
        for number, line in enumerate(text.splitlines(), 1):
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                row = None
            if not isinstance(row, dict) or "digest" not in row or not isinstance(row.get("fields"), dict):
                raise InputError("this is no row of results", str(self.path), number, 1, "--out")
            rows.append(row)
        return rows

    def _csv_rows(self, text: str) -> list[Row]:
        """Rows of CSV: numbers where they stand, swept fields under `fields`."""
        reader = csv.DictReader(StringIO(text))
        names = reader.fieldnames or ()
        missing = [name for name in COLUMNS if name not in names and name != "fields"]
        if text and missing:
            raise InputError(f"the column {missing[0]} is missing", str(self.path), 1, 1, "--out")
        return [_from_csv(row) for row in reader]


def csv_text(rows: Iterable[Row], fields: Sequence[str]) -> str:
    """Rows as CSV with a line of names."""
    return _line([*_names(fields)]) + "".join(_csv_line(row, fields) for row in rows)


def _names(fields: Sequence[str]) -> list[str]:
    """The columns of CSV: the job, its swept fields (`sweep.training.sequence_length`), then the rest."""
    return ["job", *(f"{SWEPT}{name}" for name in fields), *(name for name in COLUMNS if name not in ("job", "fields"))]


def _csv_line(row: Row, fields: Sequence[str]) -> str:
    """One row of CSV."""
    values = {**row, **{f"{SWEPT}{name}": _shown(value) for name, value in row["fields"].items()}}
    return _line(["" if values.get(name) is None else values[name] for name in _names(fields)])


def _line(cells: Sequence[Any]) -> str:
    """One line of CSV; a line break inside a cell would make two of it."""
    out = StringIO()
    csv.writer(out, lineterminator="\n").writerow([" ".join(str(cell).splitlines()) for cell in cells])
    return out.getvalue()


def _shown(value: Any) -> str:
    """A swept value in a cell: text as it is, all else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _from_csv(cells: Mapping[str, str]) -> Row:
    """A row of CSV as it was."""
    row: Row = {name: _value(name, cells[name]) for name in COLUMNS if name != "fields"}
    swept = {name.removeprefix(SWEPT): text for name, text in cells.items() if name.startswith(SWEPT)}
    fields = {name: _parsed(text) for name, text in swept.items() if text}
    return {"job": row.pop("job"), "fields": fields, **row}


def _value(name: str, text: str) -> Any:
    """A cell's value; an empty one is none."""
    return (json.loads(text) if name in NUMBERS else text) if text else None


def _parsed(text: str) -> Any:
    """A swept value of a cell."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def _json_line(row: Row) -> str:
    """One row of JSON Lines."""
    return json.dumps(row, ensure_ascii=False) + "\n"
