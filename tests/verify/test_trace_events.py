"""A trace as torch's profiler writes it, and files that are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from planner.errors import InputError
from planner.verify.trace_events import Event, read_trace


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.json.gz"
    with gzip.open(path, "wt", encoding="utf-8") as stream:
        stream.write(text)
    return path


def test_records_of_what_ran(tmp_path: Path) -> None:
    """Microseconds become seconds; flows, names of threads and the GPU's copies of annotations are left out."""
    records = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 3_000_000.5, "dur": 1.5,
         "args": {"correlation": 9, "stream": 7}},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 5, "tid": 5, "ts": 2_000_000, "dur": 2,
         "args": {"correlation": 9}},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "planner: step", "pid": 0, "tid": 7, "ts": 1, "dur": 1},
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": 7, "args": {"name": "stream 7"}},
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 1, "pid": 5, "tid": 5, "ts": 1},
    ]  # fmt: skip
    assert read_trace(written(tmp_path, json.dumps({"traceEvents": records}))) == (
        Event("cudaLaunchKernel", "cuda_runtime", 2.0, 2.000002, "5/5", 9),
        Event("gemm", "kernel", 3.0000005, 3.0000005 + 1.5e-6, "0/7", 9),
    )


@pytest.mark.parametrize("text", ["", "{", "[]", '{"events": []}', '{"traceEvents": [{"ph": "X", "cat": "kernel"}]}'])
def test_no_trace(text: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}: no trace of torch's profiler: ")


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        read_trace(tmp_path / "trace.json.gz")
