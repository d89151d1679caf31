"""What DeepSpeed's parser takes as each kind of value, and what it then is."""

from __future__ import annotations

import math
from typing import Any

import pytest

from planner.check.inventory import Key
from planner.check.kinds import Misfit, TooLarge, fit

CHOICE = Key("x", "choice", values=("CPU", "nvme"), any_case=True)
STAGE = Key("x", "choice of integers", values=(0, 1, 2, 3))


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        (Key("x", "boolean"), "Yes", True), (Key("x", "boolean"), 0, False), (Key("x", "boolean"), 1.0, True),
        (Key("x", "integer"), 5e8, 500_000_000), (Key("x", "integer"), " -1_000.0 ", -1000),
        (Key("x", "integer"), True, 1), (Key("x", "integer", optional=True), None, None),
        (Key("x", "number"), "1e-3", 0.001), (Key("x", "number"), float("inf"), math.inf),
        (Key("x", "text"), "", ""), (CHOICE, "cpu", "CPU"), (CHOICE, "NVMe", "nvme"), (STAGE, "2", 2),
        (Key("x", "list"), [1, "a"], [1, "a"]), (Key("x", "list of text"), ["a"], ["a"]),
        (Key("x", "list of text", single=True), "a", ["a"]),
        (Key("x", "list of choices", values=("a", "b")), ["b"], ["b"]), (Key("x", "mapping"), {}, {}),
        (Key("x", "auto or integer"), "auto", "auto"), (Key("x", "auto or integer"), 7, 7), (Key("x", "any"), [], []),
    ],
)  # fmt: skip
def test_what_passes(key: Key, value: Any, found: Any) -> None:
    fitted = fit(key, value)
    assert (fitted, type(fitted)) == (found, type(found))


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (Key("x", "boolean"), "maybe", "true or false"), (Key("x", "boolean"), 2, "true or false"),
        (Key("x", "boolean"), [], "true or false"), (Key("x", "integer"), 1.5, "a whole number"),
        (Key("x", "integer"), math.inf, "a whole number"), (Key("x", "integer"), None, "a whole number"),
        (Key("x", "integer", refuses_booleans=True), True, "a whole number"),
        (Key("x", "integer", at_least=0, below=8), 8, "a whole number at least 0 and below 8"),
        (Key("x", "number", above=0, at_most=1.5), "nan", "a number above 0 and at most 1.5"),
        (Key("x", "number", finite=True), math.inf, "a number"), (Key("x", "number"), "three", "a number"),
        (Key("x", "number"), 10**400, "a number"), (Key("x", "number"), {}, "a number"),
        (Key("x", "text"), 1, "text"), (CHOICE, "disk", "one of CPU, nvme"), (CHOICE, 1, "one of CPU, nvme"),
        (STAGE, 4, "one of 0, 1, 2, 3"), (Key("x", "list"), "a", "a list"),
        (Key("x", "list of text"), "a", "a list of texts"), (Key("x", "list of text"), ["a", 1], "a list of texts"),
        (Key("x", "list of choices", values=("a", "b")), ["c"], "a list of a, b"),
        (Key("x", "list of choices", values=("a", "b")), "a", "a list of a, b"), (Key("x", "block"), [], "a block"),
        (Key("x", "auto or integer"), "7", 'a whole number or "auto"'),
        (Key("x", "nothing"), 1, "no value: leave the key out"),
    ],
)  # fmt: skip
def test_what_does_not(key: Key, value: Any, expected: str) -> None:
    with pytest.raises(Misfit) as caught:
        fit(key, value)
    assert (str(caught.value), type(caught.value)) == (expected, Misfit)


@pytest.mark.parametrize(("value", "passes"), [(2**63 - 1, True), (-(2**63), True), (2**63, False), ("9" * 30, False)])
def test_numbers_that_no_counter_holds(value: Any, passes: bool) -> None:
    if passes:
        assert fit(Key("x", "integer"), value) == value
        return
    with pytest.raises(TooLarge) as caught:
        fit(Key("x", "integer"), value)
    assert str(caught.value) == "a number of at most 63 bits"
