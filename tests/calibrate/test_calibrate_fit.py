"""Multiples that made the runs are found again where the runs tell them, and refused where they do not."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import pytest

from planner.calibrate.fit import Fit, fit
from planner.calibration import Calibration
from tests.calibrate.calibrate_runs import run, runs

TRUTH = Calibration(products=1.2, attention=1.5)


@lru_cache(maxsize=2)
def fitted(truth: Calibration) -> Fit:
    """The fit of the runs that a calibration makes."""
    return fit(runs(truth))


def test_known_multiples_are_recovered() -> None:
    found = fitted(TRUTH)
    assert found.calibration.products == pytest.approx(1.2, rel=0.03)
    assert found.calibration.attention == pytest.approx(1.5, rel=0.06)
    assert (found.before > 0.1, found.after < 0.01) == (True, True)


def test_runs_as_the_catalogs_say_change_nothing() -> None:
    found = fitted(Calibration())
    assert found.calibration == Calibration()
    assert (found.before, found.after) == (0.0, 0.0)


def test_a_prediction_under_the_fit_is_that_of_the_truth() -> None:
    other = run("other", TRUTH, micro_batch=2, sequence_length=4096)
    assert other.predicted(fitted(TRUTH).calibration) == pytest.approx(other.seconds, rel=0.01)


def test_what_no_run_spends_time_on_cannot_be_told() -> None:
    reasons = fitted(TRUTH).cannot_tell
    assert {name for name, reason in reasons.items() if reason == "no run spends time on it"} == {
        "narrow_products", "launches", "between_nodes", "host_link", "cpu_optimizer", "nvme",
    }  # fmt: skip


def test_what_goes_with_something_else_cannot_be_told() -> None:
    # on two GPUs the collectives of a step and the optimizer's pass both grow with the weights alone
    weights = "passes over weights, gradients and optimizer states"
    assert fitted(TRUTH).cannot_tell["inside_node"] == f"in these runs it goes with {weights}"


def test_one_run_tells_one_thing() -> None:
    found = fit(runs(TRUTH)[3:4])
    assert [item.group.name for item in found.fitted] == ["everything"]
    assert "1 run cannot tell so many groups apart" in found.cannot_tell.values()


def test_an_outlier_counts_for_little() -> None:
    known = runs(TRUTH)
    broken = replace(known[1], seconds=3 * float(known[1].seconds or 0))
    assert fit((*known[:1], broken, *known[2:])).calibration.attention == pytest.approx(1.5, rel=0.1)


def test_no_timed_run_tells_nothing() -> None:
    found = fit([replace(runs(TRUTH)[0], seconds=None)])
    assert found.calibration == Calibration()
    assert set(found.cannot_tell.values()) == {"no run states a step time"}


def test_runs_that_contradict_each_other_change_nothing() -> None:
    # alike but for 30 % more and 30 % less: whichever is left out, the other one leads away from it
    known = runs(Calibration())[3]
    pair = [replace(known, seconds=share * float(known.seconds or 0)) for share in (1.3, 0.7)]
    found = fit(pair)
    assert found.calibration == Calibration()
    reason = "a run left out is predicted worse from the others than from the catalogs: "
    assert found.cannot_tell["everything"].startswith(reason)
