"""The kinds of input that users give: the corpus that mutations start from, and what reads each of them."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from zlib import crc32

import yaml

from planner.accuracy import accuracy, accuracy_answer, accuracy_text
from planner.accuracy.run_log import read_run_log
from planner.calibrate.calibrating import calibrate
from planner.calibrate.text import calibrate_answer, overlay_text
from planner.check.answer import check_answer, check_text
from planner.check.checking import check
from planner.check.mapping import mapped
from planner.check.subject import Subject
from planner.check.text import read_source
from planner.cli_parts import json_text
from planner.errors import InputError
from planner.evaluate import Evaluation, evaluate
from planner.launch.command import check_hostfile
from planner.resolve import plain_plan, read_job, read_pins
from planner.shipped import names
from tests.architecture.test_overlay import OVERLAY
from tests.fuzz.mutators import STRANGE, as_text, spoiled_bytes, spoiled_data

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
CATALOGS = ROOT / "catalogs"
SIZE: dict[str, Any] = {
    "model": {"parameters": "30M", "layers": 4, "vocabulary": 8000},
    "cluster": {"gpu": "a100-sxm-80gb", "gpus_per_node": 2},
    "training": {"sequence_length": 512, "global_batch": 8},
}


@dataclass(frozen=True)
class Kind:
    """One kind of input: `make` writes an input into a folder and returns its path, `read` does all that is done to it.

    `answers` says that what is accepted can be solved by `planner solve` with the job and options that `words` gives.
    """

    name: str
    make: Callable[[Random, Path], Path]
    read: Callable[[Path], None]
    words: Callable[[Path], list[str]] | None = None


def is_sampled(path: Path) -> bool:
    """Whether an input is one of the few that more is done to than reading; by its content, so always the same."""
    return path.is_file() and crc32(path.read_bytes()) % 6 == 0


def _evaluated(path: Path, catalogs: tuple[Path, ...] = (), spoiled: Path | None = None) -> None:
    """Reads a job, and evaluates its plainest plan now and then, where that is quick."""
    job = read_job(path, catalogs)
    if len(job.layer_kinds) <= 64 and is_sampled(spoiled or path):
        _ = evaluate(job, plain_plan(job)).step_time.seconds


def _written(draw: Random, path: Path, data: Any, form: str) -> Path:
    """An input file: spoiled data, spoiled text, or both."""
    way = draw.random()
    text = as_text(draw, spoiled_data(draw, data) if way < 0.75 else data, form)
    path.write_bytes(spoiled_bytes(draw, text) if way > 0.7 else text.encode("utf-8", "surrogatepass"))
    return path


def _documents(folder: Path, pattern: str) -> tuple[Any, ...]:
    """Every document of a folder."""
    read = json.loads if pattern.endswith("json") else yaml.safe_load
    return tuple(read(path.read_text(encoding="utf-8")) for path in sorted(folder.glob(pattern)))


def _solve(path: Path) -> list[str]:
    return ["solve", str(path.parent / "job.yaml")]


# ── jobs ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

JOBS: tuple[Any, ...] = (
    SIZE,
    *(document for document in _documents(ROOT / "examples", "*.yaml") if "/" not in str(document["model"])),
    {
        "model": {"parameters": "7e9", "layers": 32, "hidden": 4096, "heads": 32, "key_value_heads": 8},
        "cluster": {
            "gpu": "h100-sxm-80gb", "gpus_per_node": 8, "nodes": 4, "host_memory": "1 TiB", "gpu_memory": "79 GiB",
            "host_memory_bandwidth": "400 GB/s", "interconnect": "3200 Gbit/s",
            "nvme": {"capacity": "3.84 TB", "read": "6 GB/s", "write": "3 GB/s"},
        },
        "training": {
            "sequence_length": 4096, "global_batch": {"min": 32, "max": 128}, "precision": "bf16", "optimizer": "adamw",
            "method": {"qlora": {"rank": 16, "targets": ["q", "v"], "train_embeddings": False}}, "runtime": "deepspeed",
            "frozen_models": ["same", "llama-2-7b"], "attention": "sdpa", "loss": "chunked", "kernels": "liger",
            "deterministic": True, "tensor_overlap": False, "gradient_clipping": 0.5,
        },
        "choices": {"zero_stage": [2, 3], "micro_batch": 1, "checkpoint_count": [0, 32], "optimizer_offload": "none"},
        "objective": "memory", "time_limit": "5 s",
    },
    {
        "model": "mixtral-8x7b",
        "cluster": {"node": "dgx-h100", "nodes": 8},
        "training": {"sequence_length": 2048, "global_batch": 512, "runtime": "megatron", "precision": "fp8"},
        "choices": {"tensor_parallel": [1, 8], "pipeline_parallel": 2, "expert_parallel": 2},
        "objective": "cost",
    },
)  # fmt: skip


def _make_job(draw: Random, folder: Path) -> Path:
    form = draw.choice(("yaml", "yaml", "json"))
    return _written(draw, folder / f"job.{form}", draw.choice(JOBS), form)


def _solve_itself(path: Path) -> list[str]:
    return ["solve", str(path)]


# ── catalogs ─────────────────────────────────────────────────────────────────────────────────────────────────────────

CALIBRATION: Any = {
    "calibration": [{
        "gpu": "a100-sxm-80gb", "runtime": "deepspeed", "runs": 5, "error": {"before": 0.12, "after": 0.03},
        "time": {"everything": {"times": 1.1, "error": 0.05}, "step_seconds": {"seconds": 0.5, "error": 0.01}},
        "memory": {"fragmentation": 1.2, "reserve_bytes": 2**29}, "cannot_tell": {"nvme": "no run spends time on it"},
    }]
}  # fmt: skip
CYCLE: Any = {
    "choice": "zero_stage", "summary": "a cycle", "default": 0, "order": 1,
    "values": {
        "0": {"summary": "zero", "needs": {"optimizer_offload": "cpu"}},
        "1": {"summary": "one", "needs": {"zero_stage": 0}}, "2": {"summary": "two"}, "3": {"summary": "three"},
    },
}  # fmt: skip


def _machine() -> Any:
    """The shipped parts of a machine as a user's file, whose GPU the small job runs on."""
    parts: Any = {}
    for file in ("gpus", "nodes", "links"):
        (content,) = _documents(CATALOGS, f"{file}.yaml")
        for group in ("sources", "efficiencies", file):
            wanted = ("a100-sxm-80gb", "dgx-a100-80gb", "pcie4-x16", "nvlink3", "ib-hdr")
            found = {key: entry for key, entry in content.get(group, {}).items() if key in wanted}
            parts.setdefault(group, {}).update(found)
    parts["sources"] = {"x": "an example"}
    shares = parts["gpus"]["a100-sxm-80gb"]["efficiency"]
    parts["efficiencies"] = {shares: _documents(CATALOGS, "gpus.yaml")[0]["efficiencies"][shares]}
    return parts


MACHINE = _machine()
CATALOG_FILES = (*_documents(CATALOGS / "techniques", "*.yaml"), CALIBRATION, CALIBRATION, CYCLE, MACHINE, MACHINE)


def _make_catalog(draw: Random, folder: Path) -> Path:
    (folder / "job.yaml").write_text(yaml.safe_dump(SIZE), encoding="utf-8")
    return _written(draw, folder / "extra.yaml", draw.choice(CATALOG_FILES), "yaml")


def _read_catalog(path: Path) -> None:
    _evaluated(path.parent / "job.yaml", (path,), path)


def _solve_catalog(path: Path) -> list[str]:
    return [*_solve(path), "--catalog", str(path)]


# ── models ───────────────────────────────────────────────────────────────────────────────────────────────────────────

CONFIGS = tuple(
    json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for folder in (DATA / "dense_then_experts", DATA / "local_and_global", ROOT / "examples" / "tiny")
) + tuple(entry["config"] for entry in yaml.safe_load((DATA / "configurations.yaml").read_text(encoding="utf-8")))


def _make_config(draw: Random, folder: Path) -> Path:
    (folder / "job.yaml").write_text(yaml.safe_dump({**SIZE, "model": "config.json"}), encoding="utf-8")
    return _written(draw, folder / "config.json", draw.choice(CONFIGS), "json")


def _make_overlay(draw: Random, folder: Path) -> Path:
    (folder / "job.yaml").write_text(yaml.safe_dump({**SIZE, "model": "overlay.yaml"}), encoding="utf-8")
    return _written(draw, folder / "overlay.yaml", OVERLAY, "yaml")


def _read_model(path: Path) -> None:
    _evaluated(path.parent / "job.yaml", spoiled=path)


# ── DeepSpeed files ──────────────────────────────────────────────────────────────────────────────────────────────────


def _deepspeed_files() -> tuple[Any, ...]:
    """Those that plain JSON takes."""
    found = []
    for path in sorted((DATA / "ds_configs").glob("*.json")):
        data = read_source(path).data
        found += [data] if isinstance(data, dict) else []
    return tuple(found)


DEEPSPEED = _deepspeed_files()


def _make_deepspeed(draw: Random, folder: Path) -> Path:
    (folder / "job.yaml").write_text(yaml.safe_dump(SIZE), encoding="utf-8")
    return _written(draw, folder / "ds.json", draw.choice(DEEPSPEED), "json")


def _read_deepspeed(path: Path) -> None:
    found = check(path)
    json_text(check_answer(found))
    check_text(found)
    if isinstance(found.subject.source.data, dict) and is_sampled(path):
        job = read_job(path.parent / "job.yaml")
        _ = mapped(Subject(found.subject.source, job.cluster.gpus), job).evaluation.step_time.seconds


def _check(path: Path) -> list[str]:
    return ["check", str(path), "--job", str(path.parent / "job.yaml")]


# ── logs of runs ─────────────────────────────────────────────────────────────────────────────────────────────────────

RUNS = list(csv.reader(io.StringIO((ROOT / "docs" / "measured" / "runs.csv").read_text(encoding="utf-8"))))


def _make_runs(draw: Random, folder: Path) -> Path:
    """A header and up to two runs with cells, columns and rows changed."""
    rows = [list(RUNS[0]), *(list(draw.choice(RUNS[1:])) for _ in range(draw.randint(0, 2)))]
    for _ in range(draw.choice((0, 1, 1, 2, 3))):
        row = draw.choice(rows if draw.random() < 0.2 else rows[1:] or rows)
        column = draw.randrange(len(row)) if row else 0
        row[column : column + draw.choice((0, 1, 1, 1, 1, 1))] = [str(draw.choice(STRANGE))]
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    text, path = out.getvalue(), folder / "runs.csv"
    path.write_bytes(spoiled_bytes(draw, text) if draw.random() < 0.3 else text.encode("utf-8", "surrogatepass"))
    return path


def _read_runs(path: Path) -> None:
    read_run_log(path)
    if not is_sampled(path):
        return
    found = accuracy(path)
    json_text(accuracy_answer(found))
    accuracy_text(found, True)
    fitted = calibrate(path, "")
    json_text(calibrate_answer(fitted))
    overlay_text(fitted)


# ── words of the command line, and host files ────────────────────────────────────────────────────────────────────────


def _make_words(draw: Random, folder: Path) -> Path:
    """A file with the words of one command line, one a line."""
    (folder / "job.yaml").write_text(yaml.safe_dump(SIZE), encoding="utf-8")
    words = [str(draw.choice(STRANGE)) for _ in range(3)]
    name = draw.choice(("zero_stage", "micro_batch", "layout", "tensor_parallel", *words))
    pins = [f"{name}{draw.choice('== x')}{words[0]}"]
    path = folder / "words.json"
    path.write_text(json.dumps({"words": words, "pins": pins}), encoding="utf-8")
    return path


def _read_words(path: Path) -> None:
    from planner.frontier import read_axes
    from planner.units import parse_count

    content = json.loads(path.read_text(encoding="utf-8"))
    word = content["words"][0]
    attempts: tuple[Callable[[], Any], ...] = (
        lambda: read_pins(read_job(path.parent / "job.yaml"), content["pins"]),
        lambda: read_axes(word), lambda: names(word), lambda: parse_count(word, positive=True),
    )  # fmt: skip
    for attempt in attempts:
        try:
            attempt()
        except (InputError, ValueError) as error:
            if type(error) is ValueError:
                raise AssertionError("a bare ValueError") from error


def _ledger(path: Path) -> list[str]:
    words = json.loads(path.read_text(encoding="utf-8"))["words"]
    return ["ledger", f"--parameters={words[0]}", f"--layers={words[1]}"]


def _make_hosts(draw: Random, folder: Path) -> Path:
    (folder / "job.yaml").write_text(yaml.safe_dump(SIZE), encoding="utf-8")
    path = folder / "hosts"
    path.write_bytes(spoiled_bytes(draw, "one slots=2 # the first\ntwo slots=8\n\n"))
    return path


def _read_hosts(path: Path) -> None:
    check_hostfile(_small_evaluation(), path)


@cache
def _small_evaluation() -> Evaluation:
    """The small job's plainest plan."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "job.yaml")
        path.write_text(yaml.safe_dump(SIZE), encoding="utf-8")
        job = read_job(path)
    return evaluate(job, plain_plan(job))


KINDS: tuple[Kind, ...] = (
    Kind("job", _make_job, _evaluated, _solve_itself),
    Kind("catalog", _make_catalog, _read_catalog, _solve_catalog),
    Kind("config.json", _make_config, _read_model, _solve),
    Kind("traced overlay", _make_overlay, _read_model, _solve),
    Kind("DeepSpeed file", _make_deepspeed, _read_deepspeed, _check),
    Kind("log of runs", _make_runs, _read_runs),
    Kind("command line", _make_words, _read_words, _ledger),
    Kind("host file", _make_hosts, _read_hosts),
)
