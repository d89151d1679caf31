"""Reads a log of training runs: a CSV file with one run per line, every cell typed, mistakes placed to the character.

An empty cell means that nobody stated the value. Columns may stand in any order and most may be absent.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.files import file_bytes
from planner.units import MIB, nearest, shown

MAXIMUM_BYTES = 16 * MIB
MOST_GPUS = 10**6
_WHOLE = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"[0-9]{0,15}(\.[0-9]{0,30})?([eE][-+]?[0-9]{1,2})?")
_DATE = re.compile(r"[12][0-9]{3}-(0[1-9]|1[0-2])")
_RECOMPUTE = re.compile(r"none|selective|full|every_2|partial:[0-9]{1,5} of [0-9]{1,5}")

Cell = Callable[[str], Any]


@dataclass(frozen=True)
class Run:
    """One training run; None is what the log leaves open. Field names are column names, see COLUMNS.

    Widths and lengths are counts, `gpus` the ranks of the job; `step_seconds` one optimizer step in seconds, peaks in
    GiB as the log prints them. `line` is where the run starts in its file.
    """

    line: int
    id: str
    source: str
    use: str | None = None
    quality: str | None = None
    model: str | None = None
    architecture: str | None = None
    hidden: int | None = None
    layers: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    ffn_hidden: int | None = None
    vocab: int | None = None
    tied_embeddings: bool | None = None
    parameters_billion: float | None = None
    experts: int | None = None
    experts_per_token: int | None = None
    expert_ffn_hidden: int | None = None
    shared_experts: int | None = None
    sequence_length: int | None = None
    gpu: str | None = None
    gpus: int | None = None
    gpus_per_node: int | None = None
    interconnect: str | None = None
    runtime: str | None = None
    zero_stage: int | None = None
    shard_group: int | None = None
    tensor_parallel: int | None = None
    sequence_parallel_activations: bool | None = None
    pipeline_parallel: int | None = None
    virtual_stages: int | None = None
    context_parallel: int | None = None
    expert_parallel: int | None = None
    data_parallel: int | None = None
    micro_batch: int | None = None
    gradient_accumulation: int | None = None
    global_batch: int | None = None
    precision: str | None = None
    parameter_bytes: float | None = None
    gradient_bytes: float | None = None
    master_bytes: float | None = None
    optimizer: str | None = None
    recompute: str | None = None
    offload_optimizer: str | None = None
    offload_parameters: str | None = None
    offload_activations: str | None = None
    attention: str | None = None
    method: str | None = None
    lora_rank: int | None = None
    kernels: tuple[str, ...] = ()
    peak_allocated_gib: float | None = None
    peak_reserved_gib: float | None = None
    peak_device_gib: float | None = None
    memory_ranks: str | None = None
    step_seconds: float | None = None
    tokens_per_second_per_gpu: float | None = None
    tflops_per_gpu_printed: float | None = None
    tflops_convention: str | None = None
    fits: str | None = None
    score_memory: bool | None = None
    score_time: bool | None = None
    assumed: tuple[str, ...] = ()
    date: str | None = None
    notes: str | None = None


class _Wrong(ValueError):
    """What a cell should hold; the text is the expectation."""


def _text(cell: str) -> str:
    """Any text."""
    return cell


def _words(cell: str) -> tuple[str, ...]:
    """A list with semicolons."""
    return tuple(word.strip() for word in cell.split(";") if word.strip())


def _flag(cell: str) -> bool:
    """`yes` or `no`."""
    if cell not in ("yes", "no"):
        raise _Wrong("yes or no")
    return cell == "yes"


def _whole(least: int, most: int = 10**15) -> Cell:
    """A whole number between two bounds, both allowed."""

    def read(cell: str) -> int:
        if not _WHOLE.fullmatch(cell) or not least <= int(cell) <= most:
            raise _Wrong(f"a whole number, {least} or more" if most == 10**15 else f"a whole number, {least} to {most}")
        return int(cell)

    return read


def _number(positive: bool = True) -> Cell:
    """A number above 0, or 0 and above."""

    def read(cell: str) -> float:
        digits = any(character.isdecimal() for character in re.split("[eE]", cell)[0])
        value = float(cell) if digits and _NUMBER.fullmatch(cell) else -1.0
        if value < 0 or (positive and value == 0):
            raise _Wrong("a number above 0" if positive else "a number, 0 or more")
        return value

    return read


def _one_of(*known: str) -> Cell:
    """One of a few words."""

    def read(cell: str) -> str:
        if cell not in known:
            raise _Wrong("one of " + ", ".join(known))
        return cell

    return read


def _recompute(cell: str) -> str:
    """What is recomputed."""
    if not _RECOMPUTE.fullmatch(cell):
        raise _Wrong("one of none, selective, full, every_2, partial:K of L")
    return cell


def _date(cell: str) -> str:
    """The month in which the run was made."""
    if not _DATE.fullmatch(cell):
        raise _Wrong("a month such as 2025-04")
    return cell


_HOME = _one_of("none", "cpu", "nvme")
_COUNT, _MEASURED, _BYTES = _whole(1), _number(), _number(positive=False)

COLUMNS: Mapping[str, Cell] = {
    "id": _text,
    "source": _text,
    "use": _one_of("score", "plausibility", "ignore"),
    "quality": _one_of("A", "B", "C", "D"),
    "model": _text,
    "architecture": _text,
    "hidden": _COUNT,
    "layers": _COUNT,
    "heads": _COUNT,
    "kv_heads": _COUNT,
    "head_dim": _COUNT,
    "ffn_hidden": _COUNT,
    "vocab": _COUNT,
    "tied_embeddings": _flag,
    "parameters_billion": _MEASURED,
    "experts": _COUNT,
    "experts_per_token": _COUNT,
    "expert_ffn_hidden": _COUNT,
    "shared_experts": _whole(0),
    "sequence_length": _COUNT,
    "gpu": _text,
    "gpus": _whole(1, MOST_GPUS),
    "gpus_per_node": _COUNT,
    "interconnect": _text,
    "runtime": _text,
    "zero_stage": _whole(0, 3),
    "shard_group": _COUNT,
    "tensor_parallel": _COUNT,
    "sequence_parallel_activations": _flag,
    "pipeline_parallel": _COUNT,
    "virtual_stages": _COUNT,
    "context_parallel": _COUNT,
    "expert_parallel": _COUNT,
    "data_parallel": _COUNT,
    "micro_batch": _COUNT,
    "gradient_accumulation": _COUNT,
    "global_batch": _COUNT,
    "precision": _text,
    "parameter_bytes": _BYTES,
    "gradient_bytes": _BYTES,
    "master_bytes": _BYTES,
    "optimizer": _text,
    "recompute": _recompute,
    "offload_optimizer": _HOME,
    "offload_parameters": _HOME,
    "offload_activations": _HOME,
    "attention": _text,
    "method": _text,
    "lora_rank": _COUNT,
    "kernels": _words,
    "peak_allocated_gib": _MEASURED,
    "peak_reserved_gib": _MEASURED,
    "peak_device_gib": _MEASURED,
    "memory_ranks": _one_of("all", "rank0", "last-rank", "unknown"),
    "step_seconds": _MEASURED,
    "tokens_per_second_per_gpu": _MEASURED,
    "tflops_per_gpu_printed": _MEASURED,
    "tflops_convention": _one_of("model", "hardware", "model-noncausal", "unknown"),
    "fits": _one_of("yes", "oom", "largest-that-ran"),
    "score_memory": _flag,
    "score_time": _flag,
    "assumed": _words,
    "date": _date,
    "notes": _text,
}
_COLUMN = "columns are such as gpus or step_seconds"
REQUIRED = ("id", "source", "model", "architecture", "hidden", "layers", "heads", "vocab", "gpu", "gpus")
MEASUREMENTS = (
    "peak_allocated_gib", "peak_reserved_gib", "peak_device_gib", "step_seconds", "tokens_per_second_per_gpu", "fits",
)  # fmt: skip


@dataclass(frozen=True)
class _Record:
    """One record of the file: its cells, its raw text, and the line it starts on."""

    cells: Sequence[str]
    text: str
    line: int


def read_run_log(path: Path) -> tuple[Run, ...]:
    """The runs of a log in the order of the file.

    Raises InputError with file, line and column for an unreadable file, an unknown, repeated or missing column, a cell
    of the wrong kind, a row of the wrong length, a row without id or source, and an id that stands twice.
    """
    file = str(path)
    records = _records(file, _content(path))
    header = next(records, None)
    if header is None:
        raise InputError("the file is empty", file, expected="a header line with column names")
    names = [cell.strip() for cell in header.cells]
    _check_header(file, header, names)
    runs = tuple(_run(file, record, names) for record in records if any(cell.strip() for cell in record.cells))
    _check_ids(file, runs)
    return runs


def _content(path: Path) -> str:
    """The text of the file, UTF-8 with or without a byte order mark."""
    raw = file_bytes(path, MAXIMUM_BYTES, "a CSV file")
    try:
        return raw.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise InputError("not UTF-8 text", str(path), line, 1, expected="text in UTF-8") from None


def _records(file: str, content: str) -> Iterator[_Record]:
    """The records of the text, blank lines left out."""
    lines = list(io.StringIO(content, newline=""))
    reader = csv.reader(lines, strict=True)
    start = 0
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise InputError(f"not valid CSV: {error}", file, start + 1, 1, expected="cells with commas") from None
        if cells is None:
            return
        if cells:
            yield _Record(cells, "".join(lines[start : reader.line_num]), start + 1)
        start = reader.line_num


def _place(record: _Record, index: int) -> tuple[int, int]:
    """Line and column, both from 1, of the first character of a cell."""
    line, column, quoted, passed = record.line, 1, False, 0
    for character in record.text:
        if passed == index:
            break
        quoted ^= character == '"'
        passed += character == "," and not quoted
        line, column = (line + 1, 1) if character == "\n" else (line, column + 1)
    return line, column


def _error(file: str, record: _Record, index: int, name: str, message: str, *more: str) -> InputError:
    """The InputError for one cell; `more` are the expectation and the hint."""
    line, column = _place(record, index)
    return InputError(message, file, line, column, name, *more)


def _check_header(file: str, header: _Record, names: Sequence[str]) -> None:
    """Every column is known and stands once; those that nothing can do without are there."""
    for index, name in enumerate(names):
        if name not in COLUMNS:
            hint = nearest(name, COLUMNS) or _COLUMN
            raise _error(file, header, index, "", f"unknown column {shown(name)}", "", hint)
        if name in names[:index]:
            raise _error(file, header, index, "", f"column {shown(name)} stands twice", "each column once")
    for name in REQUIRED:
        if name not in names:
            raise _error(file, header, 0, "", f"column {name!r} is missing", "at least " + ", ".join(REQUIRED))
    if not set(MEASUREMENTS) & set(names):
        raise _error(file, header, 0, "", "no column holds a measurement", "one of " + ", ".join(MEASUREMENTS))


def _run(file: str, record: _Record, names: Sequence[str]) -> Run:
    """One run from its record."""
    if len(record.cells) != len(names):
        place = min(len(record.cells), len(names)) - 1
        message = f"the row has {len(record.cells)} cells"
        raise _error(file, record, place, "", message, f"{len(names)} as in the header")
    values: dict[str, Any] = {}
    for index, (name, raw) in enumerate(zip(names, record.cells, strict=True)):
        cell = raw.strip()
        if not cell and name in ("id", "source"):
            raise _error(file, record, index, name, "the cell is empty", "a name")
        if cell:
            values[name] = _cell(file, record, index, name, cell)
    return Run(line=record.line, **values)


def _cell(file: str, record: _Record, index: int, name: str, cell: str) -> Any:
    """The typed value of one cell that is not empty."""
    try:
        return COLUMNS[name](cell)
    except _Wrong as wrong:
        listed = str(wrong).removeprefix("one of ").split(", ")
        message, hint = f"{shown(cell)} is not valid", nearest(cell, listed)
        raise _error(file, record, index, name, message, str(wrong), hint) from None


def _check_ids(file: str, runs: Sequence[Run]) -> None:
    """No id stands twice."""
    lines: dict[str, int] = {}
    for run in runs:
        if run.id in lines:
            message = f"{shown(run.id)} stands on line {lines[run.id]} already"
            raise InputError(message, file, run.line, 1, "id", "an id for each run")
        lines[run.id] = run.line
