"""The run log: every cell typed, every mistake placed."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.accuracy.run_log import COLUMNS, MAXIMUM_BYTES, Run, read_run_log
from planner.errors import InputError

HEADER = "id,source,model,architecture,hidden,layers,heads,vocab,gpu,gpus,step_seconds"
ROW = "a-1,a,small,llama,64,2,4,1000,a100-sxm-80gb,2,0.5"


def read(folder: Path, *lines: str) -> tuple[Run, ...]:
    """The runs of a file with these lines."""
    path = folder / "runs.csv"
    path.write_bytes("\n".join(lines).encode("utf-8"))
    return read_run_log(path)


def message(folder: Path, *lines: str) -> str:
    """The whole message without the folder."""
    with pytest.raises(InputError) as caught:
        read(folder, *lines)
    return str(caught.value).replace(f"{folder}/", "")


def test_every_column_is_a_field() -> None:
    assert set(COLUMNS) == set(Run.__dataclass_fields__) - {"line"}


def test_cells_have_their_types_and_empty_ones_are_none(tmp_path: Path) -> None:
    extra = ",tied_embeddings,kernels,shared_experts,notes,recompute,master_bytes,kv_heads"
    (run,) = read(tmp_path, HEADER + extra, ROW + ',no,compile; liger,0,"one, two",partial:1 of 2,0,')
    assert (run.line, run.hidden, run.step_seconds, run.tied_embeddings) == (2, 64, 0.5, False)
    assert (run.kernels, run.shared_experts, run.notes) == (("compile", "liger"), 0, "one, two")
    assert (run.recompute, run.master_bytes, run.kv_heads, run.fits) == ("partial:1 of 2", 0.0, None, None)


def test_byte_order_mark_blank_lines_and_line_ends_of_windows_are_no_matter(tmp_path: Path) -> None:
    runs = read(tmp_path, "\ufeff" + HEADER + "\r", "\r", ROW + "\r", "", ",,,,,,,,,,")
    assert [(run.id, run.line) for run in runs] == [("a-1", 3)]


def test_a_log_without_runs_is_empty(tmp_path: Path) -> None:
    assert read(tmp_path, HEADER) == ()


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([HEADER.replace("step_seconds", "step_second"), ROW],
         "runs.csv:1:65: unknown column 'step_second'; did you mean 'step_seconds'?"),
        ([HEADER + ",id", ROW + ",b"], "runs.csv:1:78: column 'id' stands twice; expected each column once"),
        ([HEADER.replace(",gpus", ""), ROW],
         "runs.csv:1:1: column 'gpus' is missing; expected at least id, source, model, architecture, hidden, layers, "
         "heads, vocab, gpu, gpus"),
        ([HEADER.removesuffix(",step_seconds"), ROW],
         "runs.csv:1:1: no column holds a measurement; expected one of peak_allocated_gib, peak_reserved_gib, "
         "peak_device_gib, step_seconds, tokens_per_second_per_gpu, fits"),
        # a-1,a,small,llama, is 18 characters: the width starts at 19
        ([HEADER, ROW.replace("64", "64.5")],
         "runs.csv:2:19: hidden: '64.5' is not valid; expected a whole number, 1 or more"),
        ([HEADER, ROW.replace("0.5", "nan")],
         "runs.csv:2:47: step_seconds: 'nan' is not valid; expected a number above 0"),
        ([HEADER, ROW.replace("0.5", "0")], "runs.csv:2:47: step_seconds: '0' is not valid; expected a number above 0"),
        ([HEADER + ",zero_stage", ROW + ",4"],
         "runs.csv:2:51: zero_stage: '4' is not valid; expected a whole number, 0 to 3"),
        ([HEADER + ",fits", ROW + ",yess"],
         "runs.csv:2:51: fits: 'yess' is not valid; expected one of yes, oom, largest-that-ran; did you mean 'yes'?"),
        ([HEADER + ",tied_embeddings", ROW + ",true"],
         "runs.csv:2:51: tied_embeddings: 'true' is not valid; expected yes or no"),
        ([HEADER + ",recompute", ROW + ",half"],
         "runs.csv:2:51: recompute: 'half' is not valid; expected one of none, selective, full, every_2, "
         "partial:K of L"),
        # the first note spans two lines, the bad cell stands on the third line of the file after `y",`
        ([HEADER.replace("id,", "notes,id,"), '"x', 'y",' + ROW.replace("64", "-1")],
         "runs.csv:3:22: hidden: '-1' is not valid; expected a whole number, 1 or more"),
        ([HEADER, ROW + ",7"], "runs.csv:2:47: the row has 12 cells; expected 11 as in the header"),
        ([HEADER, ROW.removeprefix("a-1")], "runs.csv:2:1: id: the cell is empty; expected a name"),
        ([HEADER, ROW, ROW], "runs.csv:3:1: id: 'a-1' stands on line 2 already; expected an id for each run"),
        ([HEADER, '"' + ROW], "runs.csv:2:1: not valid CSV: unexpected end of data; expected cells with commas"),
        ([""], "runs.csv: the file is empty; expected a header line with column names"),
    ],
)  # fmt: skip
def test_mistakes_are_placed(tmp_path: Path, lines: list[str], expected: str) -> None:
    assert message(tmp_path, *lines) == expected


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(HEADER.encode() + b"\n\xff")
    with pytest.raises(InputError, match=r"runs.csv:2:1: not UTF-8 text; expected text in UTF-8"):
        read_run_log(path)
    with pytest.raises(InputError, match="nothing.csv: there is no such file; expected a CSV file"):
        read_run_log(tmp_path / "nothing.csv")
    with path.open("wb") as stream:
        stream.truncate(MAXIMUM_BYTES + 1)
    with pytest.raises(InputError, match="runs.csv: the file is too large; expected at most 16777216 bytes"):
        read_run_log(path)
