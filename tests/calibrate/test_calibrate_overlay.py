"""Overlays: written and read again, applied to jobs on the same GPU only, refused where they are wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.calibrate.calibrating import Calibrated
from planner.calibrate.overlay import calibrated, calibration_of
from planner.calibrate.overlay_file import Entry, Errors, Figure, Margin, Overlay, read_overlays
from planner.calibrate.text import calibrate_text, overlay_text
from planner.calibration import Calibration
from planner.errors import InputError
from planner.evaluate import evaluate
from planner.forms import affine
from planner.search import solve
from planner.space import job_space
from planner.step_time import time_terms
from planner.techniques import read_techniques
from tests.jobs import job, plan

ENTRY = Entry(
    gpu="a100-sxm-80gb",
    runtime="deepspeed",
    runs=5,
    error=Errors(before=0.12, after=0.03),
    time={
        "everything": Figure(times=1.1, error=0.05),
        "products": Figure(times=1.2, error=0.02),
        "step_seconds": Figure(seconds=0.5, error=0.01),
    },
    memory=Margin(fragmentation=1.2, reserve_bytes=2**29),
    cannot_tell={"nvme": "no run spends time on it"},
)
FOUND = Calibrated((ENTRY,), {"no measurement": 2})


def written(folder: Path, text: str = "") -> Path:
    """An overlay file."""
    path = folder / "overlay.yaml"
    path.write_text(text or overlay_text(FOUND), encoding="utf-8")
    return path


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert read_overlays([path]) == (Overlay(str(path), (ENTRY,)),)
    assert read_overlays([tmp_path]) == (Overlay(str(path), (ENTRY,)),)


def test_overlays_are_no_techniques(tmp_path: Path) -> None:
    assert read_techniques([written(tmp_path)]).choices == read_techniques().choices


def test_everything_multiplies_what_it_holds() -> None:
    # 1.1 × 1.2 = 1.32; NVMe is not among the groups that are alike
    found = calibration_of(ENTRY)
    assert found.products == pytest.approx(1.32)
    assert (found.attention, found.nvme, found.step_seconds) == (1.1, 1.0, 0.5)


def test_a_job_on_the_gpu_takes_times_and_margins(tmp_path: Path) -> None:
    bare, found = job(), job(catalogs=[written(tmp_path)])
    # half a second of each step that no other term holds, and everything else a little slower
    assert evaluate(found, plan(found)).step_time.terms["rest, as measured"] == 0.5
    assert evaluate(found, plan(found)).step_time.seconds > 0.5 + evaluate(bare, plan(bare)).step_time.seconds
    assert found.runtime.fragmentation == 1.2
    reserve = [evaluate(one, plan(one)).ledger["gpu"].peak.books["reserve"] for one in (bare, found)]
    assert reserve[1] - reserve[0] == 2**29


def test_the_assumptions_say_so(tmp_path: Path) -> None:
    assert job(catalogs=[written(tmp_path)]).assumptions[-1] == (
        "calibrated by overlay.yaml from 5 runs of a100-sxm-80gb under deepspeed: all of the GPU, its host and its "
        "collectives alike × 1.10, matrix products × 1.20, constant of each step 0.5 s, fragmentation 1.200, "
        "reserve + 512 MiB"
    )


def test_a_job_on_another_gpu_keeps_the_catalogs(tmp_path: Path) -> None:
    found = job(catalogs=[written(tmp_path)], cluster={"gpu": "h100-sxm-80gb"})
    assert found.cluster.gpu.calibration == Calibration()
    assert found.assumptions[-1] == "overlay.yaml has no calibration of h100-sxm-80gb: its times are the catalogs'"


def test_under_another_runtime_the_margins_stay(tmp_path: Path) -> None:
    found = job(catalogs=[written(tmp_path)], training={"runtime": "fsdp2"})
    assert found.cluster.gpu.calibration.products == pytest.approx(1.32)
    assert found.runtime.fragmentation == job(training={"runtime": "fsdp2"}).runtime.fragmentation


def test_the_runtimes_own_entry_comes_first() -> None:
    other = ENTRY.model_copy(update={"runtime": "fsdp2", "time": {"products": Figure(times=2.0)}})
    found = calibrated(job(), [Overlay("one.yaml", (other, ENTRY))])
    assert found.cluster.gpu.calibration.products == pytest.approx(1.32)


def test_both_readers_agree_under_a_calibration() -> None:
    found = calibrated(job(), [Overlay("one.yaml", (ENTRY,))])
    measures = tuple(measure.name for measure in job_space(found).measures)
    values = job_space(found).complete(plan(found, zero_stage=2, checkpoint_count=2))
    for term in time_terms(found, "typical"):
        form = affine(term, {name: values[name] for name in term.scope}, measures)
        read = form.constant + sum(s * int(str(values[m])) for s, m in zip(form.slopes, measures, strict=True))
        assert read == term.value(values), term.name
    best = solve(found)  # raises InternalError where the solver's objective is not the evaluator's
    assert best.best.step_time.terms["rest, as measured"] == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "calibration:\n- gpu: a100-sxm-80g\n",
            ":2:8: calibration[0].gpu: unknown GPU 'a100-sxm-80g'; did you mean 'a100-sxm-80gb'?",
        ),
        (
            "calibration:\n- gpu: a100-sxm-80gb\n  time: {product: {times: 1.1}}\n",
            ":3:10: calibration[0].time.product: unknown group 'product'; did you mean 'products'?",
        ),
        (
            "calibration:\n- gpu: a100-sxm-80gb\n  time: {products: {seconds: 1.1}}\n",
            ":3:20: calibration[0].time.products: products is a number of times; expected {times: NUMBER}",
        ),
    ],
)
def test_mistakes_name_their_place(tmp_path: Path, text: str, message: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as raised:
        read_overlays([path])
    assert str(raised.value) == f"{path}{message}"


def test_the_summary_says_what_cannot_be_told() -> None:
    assert calibrate_text(FOUND) == (
        "a100-sxm-80gb, deepspeed: 5 runs\n"
        "  step time off by 12.0 % before and 3.0 % after, on these runs themselves\n"
        "  all of the GPU, its host and its collectives alike   × 1.100 ± 5 %\n"
        "  matrix products                                      × 1.200 ± 2 %\n"
        "  constant of each step                                + 0.5 ± 0.01 s\n"
        "  reserved over allocated                              1.200\n"
        "  device beside the ledger                             + 512 MiB\n"
        "  cannot tell\n"
        "    reads and writes of NVMe: no run spends time on it\n"
        "\n"
        "skipped\n"
        "  2  no measurement\n"
    )
