"""Machines in files of the user: beside the shipped ones, in their place, and every way in which they do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import run

from planner.calibrate.measured import read_runs
from planner.choosing.choice import read_choice
from planner.errors import InputError
from planner.hardware_catalog import shipped
from planner.hardware_files import read_hardware
from planner.resolve import read_job
from planner.units import GIB
from planner.variants import Source, machine
from tests.machines import GPU, LINK, RANGE, document

ROOT = Path(__file__).parents[1]


def written(folder: Path, data: Any, name: str = "lab.yaml") -> Path:
    """A catalog file."""
    path = folder / name
    path.write_text(yaml.safe_dump(data, sort_keys=False), encoding="utf-8")
    return path


def job_file(folder: Path, cluster: dict[str, Any], **more: Any) -> Path:
    """A small job on a cluster."""
    job = {
        "model": {"parameters": "30M", "layers": 4, "vocabulary": 8000}, "cluster": cluster,
        "training": {"sequence_length": 512, "global_batch": 8}, **more,
    }  # fmt: skip
    return written(folder, job, "job.yaml")


def test_without_files_of_machines_it_is_what_ships(tmp_path: Path) -> None:
    assert read_hardware() is shipped()
    assert read_hardware([ROOT / "catalogs" / "techniques"]) is shipped()


def test_a_machine_of_new_parts(tmp_path: Path) -> None:
    found = read_hardware([written(tmp_path, document())])
    assert list(found.gpus) == [*shipped().gpus, "lab-40gb"]
    assert list(found.links)[-2:] == ["lab-link", "lab-bus"]
    gpu, node = found.gpu("lab-40gb"), found.node("lab-box")
    assert (gpu.usable_memory, gpu.peak["bf16"], gpu.matrix_efficiency["bf16"].typical) == (39 * GIB, 100e12, 0.6)
    assert gpu.assumptions == ("matrix and memory efficiency follow a rule (lab-rule), not a measurement",)
    assert (node.gpus, node.host_memory, node.nic_bandwidth) == (4, 256 * GIB, 12.5e9)  # 100 Gbit/s / 8


def test_parts_may_stand_in_several_files_of_a_folder(tmp_path: Path) -> None:
    parts = document()
    for name in ("nodes", "gpus", "links", "efficiencies"):
        written(tmp_path, {"sources": parts["sources"], name: parts[name]}, f"{name}.yaml")
    assert read_hardware([tmp_path]).node("lab-box").gpu == "lab-40gb"


def test_an_entry_takes_the_place_of_its_namesake_and_keeps_its_place(tmp_path: Path) -> None:
    one, two = document(), document()
    one["gpus"] = {"a100-sxm-80gb": {**GPU, "usable_memory": "70 GiB", "nominal_memory": "80 GiB"}}
    two["gpus"] = {"a100-sxm-80gb": {**GPU, "usable_memory": "71 GiB", "nominal_memory": "80 GiB"}}
    for data in (one, two):  # nodes of the shipped key keep its links
        data["gpus"]["a100-sxm-80gb"] |= {"host_link": "pcie4-x16", "scale_up_link": "nvlink3", "scale_up_gpus": 8}
        del data["nodes"]
    found = read_hardware([written(tmp_path, one, "1.yaml"), written(tmp_path, two, "2.yaml")])
    assert list(found.gpus) == list(shipped().gpus)
    assert found.gpu("a100-sxm-80gb").usable_memory == 71 * GIB  # the last file counts
    assert shipped().gpu("a100-sxm-80gb").usable_memory != 71 * GIB


def test_a_job_runs_on_it(tmp_path: Path) -> None:
    catalog = written(tmp_path, document())
    job = read_job(job_file(tmp_path, {"node": "lab-box", "nodes": 2}), [catalog])
    assert (job.cluster.gpu.key, job.cluster.gpus, job.cluster.links["lab-bus"].bandwidth) == ("lab-40gb", 8, 20e9)
    plain = read_job(job_file(tmp_path, {"gpu": "lab-40gb", "gpus_per_node": 2}), [catalog])
    # the node of the same file with that GPU: 256 GiB / 4 for each GPU
    assert plain.cluster.node.host_memory == 128 * GIB
    note = "host memory of a node is assumed to be 128.0 GiB, as lab-box has per GPU; state cluster.host_memory"
    assert note in plain.assumptions


def test_a_choice_of_clusters_takes_it_in(tmp_path: Path) -> None:
    catalog = written(tmp_path, document())
    path = job_file(tmp_path, {"choose": [{"gpu": "lab-40gb", "gpus": [4, 8]}]})
    candidates = read_choice(path, [catalog]).candidates
    assert [candidate.name for candidate in candidates] == ["1 × lab-box", "2 × lab-box"]
    assert [candidate.price_per_hour for candidate in candidates] == [4.0, 8.0]


def test_batches_that_are_allowed_follow_its_gpus(tmp_path: Path) -> None:
    path = job_file(tmp_path, {"node": "lab-box"}, allow={"global_batch": {"min": 3, "max": 12}})
    labels = [item.label for item in read_choice(path, [written(tmp_path, document())]).offered]
    # shared evenly by 4, 2 or 1 of its four GPUs: powers of two, and the end of the range; 8 is the job's own
    assert labels == ["batch 4", "batch 12"]


def test_a_variant_moves_to_it(tmp_path: Path) -> None:
    path, catalog = job_file(tmp_path, {"gpu": "a100-sxm-80gb", "gpus_per_node": 4}), written(tmp_path, document())
    node = {"cluster.node": "lab-box", "cluster.gpu": None, "cluster.gpus_per_node": None}
    assert machine(Source(path, (catalog,)), "lab-box") == node
    with pytest.raises(InputError) as caught:
        machine(Source(path), "lab-box")
    assert str(caught.value).startswith("unknown GPU 'lab-box'")


def test_a_calibration_may_be_of_it(tmp_path: Path) -> None:
    overlay = {"calibration": [{"gpu": "lab-40gb", "time": {"everything": {"times": 1.1}}}]}
    calibration = written(tmp_path, overlay, "calibration.yaml")
    path = job_file(tmp_path, {"gpu": "lab-40gb", "gpus_per_node": 2})
    job = read_job(path, [calibration, written(tmp_path, document())])
    what = "all of the GPU, its host and its collectives alike × 1.10"
    assert job.assumptions[-1] == f"calibrated by calibration.yaml from sweeps on lab-40gb: {what}"
    with pytest.raises(InputError) as caught:
        read_job(path, [calibration])
    assert caught.value.message == "unknown GPU 'lab-40gb'"


def test_runs_on_it_are_scored_and_calibrate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_log, catalog = _log(tmp_path), written(tmp_path, document())
    code, output, _ = run(capsys, "accuracy", str(run_log), "--catalog", str(catalog), "--format", "json")
    assert (code, json.loads(output)["overall"]["rows"]) == (0, 1)
    assert [item.job.cluster.gpu.key for item in read_runs(run_log, "", [catalog]).measured] == ["lab-40gb"]
    code, output, error = run(capsys, "calibrate", str(run_log))
    assert (code, output) == (2, "")
    assert error == (
        f"planner: {run_log}: no run to calibrate from: 1 × unknown GPU lab-40gb; expected runs that state a step time "
        "or a peak, on GPUs of the catalog\n"
    )


def _log(folder: Path) -> Path:
    """One run on two of the GPUs."""
    cells = {
        "id": "lab-001", "source": "lab", "model": "small", "architecture": "llama", "hidden": "64", "layers": "2",
        "heads": "4", "kv_heads": "4", "ffn_hidden": "256", "vocab": "1000", "tied_embeddings": "no",
        "sequence_length": "128", "gpu": "lab-40gb", "gpus": "2", "gpus_per_node": "2", "runtime": "deepspeed",
        "zero_stage": "2", "data_parallel": "2", "micro_batch": "2", "gradient_accumulation": "2", "global_batch": "8",
        "precision": "bf16", "recompute": "none", "offload_optimizer": "none", "offload_parameters": "none",
        "method": "full", "step_seconds": "1",
    }  # fmt: skip
    path = folder / "runs.csv"
    path.write_text(",".join(cells) + "\n" + ",".join(cells.values()) + "\n", encoding="utf-8")
    return path


def test_the_envelope_is_held_against_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("ledger", "--parameters", "1e9", "--layers", "16", "--gpu", "lab-40gb")
    code, output, _ = run(capsys, *words, "--catalog", str(written(tmp_path, document())))
    assert (code, "Lab GPU 40 GB" in output) == (0, True)
    assert run(capsys, *words)[0] == 2


# ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────────────

MISTAKES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "an unknown link": (
        ("gpus", "lab-40gb", "host_link"), "lab-buss",
        "gpus.lab-40gb.host_link: unknown link 'lab-buss'; did you mean 'lab-bus'?",
    ),
    "an unknown efficiency": (
        ("gpus", "lab-40gb", "efficiency"), "lab-rul",
        "gpus.lab-40gb.efficiency: unknown efficiency 'lab-rul'; did you mean 'lab-rule'?",
    ),
    "a host link without copies": (
        ("gpus", "lab-40gb", "host_link"), "lab-link",
        "gpus.lab-40gb.host_link: lab-link is no link to a host: it has no efficiency host_copy; "
        "name a link that has one",
    ),
    "a peak without efficiency": (
        ("gpus", "lab-40gb", "peak", "fp16"), "100 TFLOP/s",
        "gpus.lab-40gb.peak.fp16: efficiency 'lab-rule' says nothing about fp16; it knows fp32, bf16",
    ),
    "half a link between GPUs": (
        ("gpus", "lab-40gb", "scale_up_gpus"), None,
        "gpus.lab-40gb: scale_up_gpus missing beside the rest of the link between GPUs; state all three or none",
    ),
    "an unknown GPU": (
        ("nodes", "lab-box", "gpu"), "lab-80gb", "nodes.lab-box.gpu: unknown GPU 'lab-80gb'; did you mean 'lab-40gb'?",
    ),
    "ports that lead nowhere": (
        ("nodes", "lab-box", "nic_link"), None,
        "nodes.lab-box.nics: ports without nic_link or nic_bandwidth; state both",
    ),
    "one of several": (
        ("nodes", "lab-box", "topology"), "single",
        "nodes.lab-box.topology: 'single' with 4 GPUs; one GPU is 'single', several are not",
    ),
    "a switch of nothing": (
        ("nodes", "lab-box", "scale_up_link"), None,
        "nodes.lab-box.topology: 'switch' without scale_up_link; name the link between the GPUs",
    ),
    "uneven host links": (
        ("nodes", "lab-box", "gpus_per_host_link"), 3,
        "nodes.lab-box.gpus_per_host_link: 3 does not divide 4 GPUs; each host link serves as many GPUs",
    ),
    "a switch of bridges": (
        ("gpus", "lab-40gb", "scale_up_gpus"), 2,
        "nodes.lab-box.topology: 'switch' of 4 GPUs, lab-40gb joins 2; "
        "'pairs' has bridges between two, 'pcie' no link between GPUs",
    ),
    "another link than the GPU's": (
        ("nodes", "lab-box", "host_link"), "pcie4-x16",
        "nodes.lab-box.host_link: pcie4-x16, but lab-40gb has lab-bus; the GPU's own",
    ),
    "an unknown use of a link": (
        ("links", "lab-link", "efficiency", "all_gatherr"), RANGE,
        "links.lab-link.efficiency.all_gatherr: unknown use of a link 'all_gatherr'; did you mean 'all_gather'?",
    ),
    "shares out of order": (
        ("links", "lab-link", "efficiency", "others"), {"low": 0.9, "typical": 0.5, "high": 0.7},
        "links.lab-link.efficiency.others: 0.9, 0.5, 0.7 are not in order; expected low <= typical <= high",
    ),
    "a unit of something else": (
        ("gpus", "lab-40gb", "usable_memory"), "39 GB/s",
        "gpus.lab-40gb.usable_memory: '39 GB/s' is a bandwidth; expected a memory size such as 80 GiB",
    ),
    "characters that do not print": (
        ("nodes", "lab-box", "assumptions"), ["a\x1b[31m"],
        "nodes.lab-box.assumptions[0]: 'a\\x1b[31m' has characters that do not print; expected one line of text",
    ),
    "a key that does not print": (("gpus", "lab\x1b"), GPU, "is not a name; expected one line of 1 to 200 characters"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_refused_where_it_stands(tmp_path: Path, what: str) -> None:
    (*outer, last), value, told = MISTAKES[what]
    data = document()
    inner = data
    for step in outer:
        inner = inner[step]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    path = written(tmp_path, data)
    with pytest.raises(InputError) as caught:
        read_hardware([path])
    assert (caught.value.file, caught.value.line > 0) == (str(path), True)
    assert told in str(caught.value)


def test_an_entry_that_breaks_a_shipped_one_is_refused(tmp_path: Path) -> None:
    """Every shipped GPU on that bus copies to its host over it."""
    path = written(tmp_path, {"sources": {"lab": "measured"}, "links": {"pcie4-x16": LINK}})
    with pytest.raises(InputError) as caught:
        read_hardware([path])
    assert caught.value.file == "catalogs/gpus.yaml"
    assert caught.value.message == "pcie4-x16 is no link to a host: it has no efficiency host_copy"


def test_the_check_reads_them_as_solve_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also under the name of a shipped file, which keeps its own entries."""
    data = document()
    data["gpus"]["lab-40gb"]["architecture"] = "lab"
    code, output, _ = run(capsys, "catalog", "check", str(written(tmp_path, data, "gpus.yaml")))
    assert code == 0, output
    assert "(0 errors, 1 warnings)" in output
    assert "gpus.lab-40gb.architecture: no range is known for architecture 'lab'" in output
    data["gpus"]["lab-40gb"]["memory_bandwidth"] = "1 GB/s"
    code, output, _ = run(capsys, "catalog", "check", str(written(tmp_path, data, "gpus.yaml")))
    assert code == 2
    assert "gpus.lab-40gb.memory_bandwidth: " in output
