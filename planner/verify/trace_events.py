"""What a trace of torch's profiler shows, as plain records.

Source of the format: pytorch/kineto@main libkineto/src/output_json.cpp, which writes Chrome's trace events: `cat` says
what ran, `ts` and `dur` are microseconds, and a GPU's work has the `correlation` of the call that launched it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import InputError

OPERATOR, ANNOTATION = "cpu_op", "user_annotation"
KERNEL, COPY, FILL = "kernel", "gpu_memcpy", "gpu_memset"
LAUNCHES = ("cuda_runtime", "cuda_driver")
KINDS = (OPERATOR, ANNOTATION, KERNEL, COPY, FILL, *LAUNCHES)


@dataclass(frozen=True)
class Event:
    """Something that ran from `start` to `end` (seconds) on a thread of the host or a stream of the GPU.

    `correlation` is that of the call and of the GPU's work that it launched; 0 where there is none.
    """

    name: str
    kind: str
    start: float
    end: float
    thread: str = ""
    correlation: int = 0


def read_trace(path: Path) -> tuple[Event, ...]:
    """The events of a trace in order of their start. Raises InputError for a file that is none."""
    try:
        with gzip.open(path, "rt", encoding="utf-8", errors="replace") as stream:
            records = json.load(stream, strict=False)["traceEvents"]
        return tuple(sorted(_events(records), key=lambda event: event.start))
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"no trace of torch's profiler: {error}", str(path)) from None


def _events(records: Iterable[Mapping[str, Any]]) -> Iterable[Event]:
    """The records of the kinds that are counted."""
    for record in records:
        if record.get("ph") == "X" and record.get("cat") in KINDS:
            start = record["ts"] / 1e6
            given = record.get("args") or {}
            yield Event(
                str(record["name"]), record["cat"], start, start + record["dur"] / 1e6,
                f"{record.get('pid')}/{record.get('tid')}", int(given.get("correlation", 0)),
            )  # fmt: skip
