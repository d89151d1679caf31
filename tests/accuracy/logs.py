"""A run log of one small model, with cells replaced."""

from __future__ import annotations

import csv
from pathlib import Path

# Llama of two layers, width 64: embedding and head 2 × 1000 × 64 = 128 000; a layer 4 × 64² + 3 × 64 × 256 + 2 × 64 =
# 65 664, two 131 328; final norm 64. Together 259 392 parameters.
PARAMETERS = 259_392
SMALL = {
    "id": "own-001", "source": "own", "model": "small", "architecture": "llama", "hidden": "64", "layers": "2",
    "heads": "4", "kv_heads": "4", "ffn_hidden": "256", "vocab": "1000", "tied_embeddings": "no",
    "sequence_length": "128", "gpu": "a100-sxm-80gb", "gpus": "2", "gpus_per_node": "2", "runtime": "deepspeed",
    "zero_stage": "2", "data_parallel": "2", "micro_batch": "2", "gradient_accumulation": "2", "global_batch": "8",
    "precision": "bf16", "recompute": "none", "offload_optimizer": "none", "offload_parameters": "none",
    "attention": "flash", "method": "full", "step_seconds": "1",
}  # fmt: skip


def write_log(folder: Path, *rows: dict[str, str]) -> Path:
    """A log with the small run once per row, cells replaced; an empty cell where another row alone has the column."""
    cells = [{**SMALL, **row} for row in rows or ({},)]
    path = folder / "runs.csv"
    with path.open("w", encoding="utf-8", newline="") as stream:
        columns = list(dict.fromkeys(name for row in cells for name in row))
        writer = csv.DictWriter(stream, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(cells)
    return path
