"""Which plan is taken: the rule on single cases, and that the search with bounds keeps to it."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from planner.choosing import choosing
from planner.choosing.allowed import CHANGES
from planner.choosing.choice import Candidate, Choice
from planner.choosing.choosing import Outcome, choose
from planner.choosing.preference import preferred, value_of
from planner.choosing.variant import Allowance, Variant

NODE = SimpleNamespace(price_per_hour=8.0)


def allowance(setting: str) -> Allowance:
    return Allowance(setting, "other", "other", "own", CHANGES[setting])


def candidate(name: str, *settings: str) -> Candidate:
    job: Any = SimpleNamespace(training=SimpleNamespace(global_batch=1), cluster=SimpleNamespace(gpus=8, node=NODE))
    found = Candidate(name, {}, job, variant=Variant({}, tuple(map(allowance, settings))))
    found.__dict__["price_per_hour"] = 1.0
    return found


@pytest.mark.parametrize(
    ("other", "value", "expected"),
    [
        # own values take 1010; a hundredth more than 1000 is 1010, so 1000 is equally good and 999 is better.
        (("optimizer",), 1000, "own"),
        (("optimizer",), 999, "other"),
        (("global_batch",), 1000, "own"),
        # what must be installed counts after numerics, and by the same hundredth.
        (("kernels",), 1000, "own"),
        (("kernels",), 999, "other"),
        ((), 1000, "other"),
    ],
)
def test_a_hundredth_is_not_worth_a_change(other: tuple[str, ...], value: int, expected: str) -> None:
    choice = Choice("job", "step_time", 60.0, ())
    plans = [(candidate("own"), (1010.0,)), (candidate("other", *other), (float(value),))]
    assert preferred(choice, plans).name == expected


def test_of_equally_good_plans_the_one_with_fewest_changes_is_taken() -> None:
    """Numerics count before installations: two of these are fewer than one of those."""
    choice = Choice("job", "step_time", 60.0, ())
    plans = [
        (candidate("one", "optimizer"), (1000.0,)),
        (candidate("two", "optimizer", "precision"), (995.0,)),
        (candidate("installed", "kernels", "attention"), (1004.0,)),
    ]
    assert preferred(choice, plans).name == "installed"
    assert preferred(choice, plans[:2]).name == "one"
    # a hundredth more than 994 is 1003.94
    assert preferred(choice, [*plans, (candidate("fast", "optimizer", "precision"), (994.0,))]).name == "one"


def test_numbers_of_gpus_have_no_tolerance() -> None:
    """Of as many GPUs at nearly the price the one without changes, whatever its time; one GPU fewer counts."""
    choice = Choice("job", "smallest", 60.0, ())
    own, changed = (candidate("own"), (200.0, 1.01, 9.0)), (candidate("changed", "optimizer"), (200.0, 1.0, 1.0))
    assert preferred(choice, [own, changed]).name == "own"
    assert preferred(choice, [own, (changed[0], (199.0, 1.0, 1.0))]).name == "changed"


def test_what_is_not_solved_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search with bounds takes what the rule takes of all plans; values near each other, so that it often ties."""
    draw = Random(5)
    solved = 0
    for _ in range(150):
        found = [
            candidate(str(place), *draw.sample(["optimizer", "precision", "method", "kernels"], draw.randint(0, 3)))
            for place in range(8)
        ]
        times = {one.name: draw.choice((0, 0, 1000 + draw.randint(0, 30))) for one in found}
        bounds = {one.name: (times[one.name] or 1020) - draw.randint(0, 30) for one in found}
        by_job = {id(one.job): one.name for one in found}

        def outcome(one: Candidate, _: object, bound: int, __: object, times: dict[str, int] = times) -> Outcome:
            nonlocal solved
            solved += 1
            time = times[one.name]
            best: Any = SimpleNamespace(step_time=SimpleNamespace(microseconds=time)) if time else None
            return Outcome(one, "fits" if time else "no_plan", best, True, bound)

        def bound_of(job: object, bounds: dict[str, int] = bounds, by_job: dict[int, str] = by_job) -> int:
            return bounds[by_job[id(job)]]

        monkeypatch.setattr(choosing, "least_microseconds", bound_of)
        monkeypatch.setattr(choosing, "_solved", outcome)
        monkeypatch.setattr(choosing, "_solution", lambda *_: None)
        choice = Choice("job", "step_time", 60.0, tuple(found))
        plans = [(one, value_of(choice, one, times[one.name])) for one in found if times[one.name]]
        got = choose(choice)
        if not plans:
            assert got.best is None
            continue
        expected = preferred(choice, plans)
        assert got.best is not None and got.proven
        values = dict(plans)
        best = got.best.candidate
        assert (best.changes, values[best]) == (expected.changes, values[expected])
    assert solved < 150 * 8 * 0.9  # bounds spare some
