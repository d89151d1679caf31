"""Jobs beyond what anybody trains: up to 10^14 parameters and 10^6 GPUs they are solved or refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.commands import run

CODES = {0: "", 2: "planner: ", 3: "planner: no plan satisfies: ", 4: "planner: stopped without a plan: "}


def written(folder: Path, **changes: Any) -> str:
    """A job file with sections replaced."""
    text: dict[str, Any] = {
        "model": {"parameters": "1T", "layers": 128},
        "cluster": {"node": "dgx-h100", "nodes": 1000},
        "training": {"sequence_length": 4096, "global_batch": 8000},
        "time_limit": 2,
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(text | changes, sort_keys=False))
    return str(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"model": {"parameters": "100T", "layers": 96}, "cluster": {"node": "dgx-h100", "nodes": 125_000},
         "training": {"sequence_length": 4096, "global_batch": 1_000_000}},
        {"model": {"parameters": "100T", "layers": 1}, "cluster": {"node": "dgx-h100", "nodes": 1}},
        {"model": {"parameters": "10000T", "layers": 100}},
        {"cluster": {"gpu": "rtx4090-24gb", "gpus_per_node": 1, "nodes": 1_000_000}},
        {"cluster": {"gpu": "h100-sxm-80gb", "gpus_per_node": 4096, "nodes": 244}},
        {"training": {"sequence_length": 10**9, "global_batch": 8000}},
        {"training": {"sequence_length": 4096, "global_batch": 1}},
        {"training": {"sequence_length": 1, "global_batch": 10**9}},
        {"model": {"parameters": "100T", "layers": 128}, "cluster": {"node": "dgx-h100", "nodes": 2048},
         "training": {"sequence_length": 4096, "global_batch": 16384, "runtime": "megatron"}},
        {"cluster": {"node": "dgx-h100", "nodes": 1000, "gpu_memory": "1 B"}},
        {"cluster": {"gpu": "h100-sxm-80gb", "gpus_per_node": 8, "nodes": 1000, "interconnect": "1 bit/s"}},
        {"cluster": {"node": "dgx-h100", "nodes": 1000, "gpu_memory": "1e17 B", "host_memory": "1e18 B"}},
    ],
)  # fmt: skip
def test_jobs_beyond_reason_are_answered(
    changes: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, _, err = run(capsys, "solve", written(tmp_path, **changes), "--format", "json")
    assert code in CODES and err.startswith(CODES[code]), err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model": {"parameters": 1e17, "layers": 100}},
            "model.parameters: 1e+17 is beyond the largest value taken here, 1e+16; "
            "expected a whole number such as 4096, 7e9 or 7B",
        ),
        (
            {"cluster": {"node": "dgx-h100", "nodes": 1_000_001}},
            "cluster.nodes: 1000001 is beyond the largest value taken here, 1e+06; "
            "expected a whole number such as 4096, 7e9 or 7B",
        ),
        (
            {"model": {"parameters": "1000000", "layers": 100_000}},
            "model: 1,000,000 parameters are too few for 100000 layers of hidden width 64 and a vocabulary "
            "of 32,000; expected at least 1,674,496,064; give fewer layers or a smaller vocabulary",
        ),
    ],
)
def test_what_is_beyond_every_bound_is_refused_by_name(
    changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, out, err = run(capsys, "solve", written(tmp_path, **changes))
    assert (code, out) == (2, "")
    assert err.split(": ", 2)[2] == message + "\n"
