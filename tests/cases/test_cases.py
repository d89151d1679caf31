"""Public reports of training runs, held against the ledger."""

from __future__ import annotations

import pytest

from tests.cases.expected import CHECKS, TOLERANCE, Check
from tests.cases.misses import INSUFFICIENT, KNOWN_MISSES
from tests.cases.reader import cases, setup
from tests.cases.test_arithmetic import ARITHMETIC
from tests.cases.test_configurations import CONFIGURATIONS


def failure(check: Check) -> str:
    """Why what the planner says contradicts the report; empty where it does not."""
    found = setup(check.case, **check.told)
    if check.kind == "measures":
        said = found.gib(check.metric)
        off = said / check.gib - 1
        return "" if abs(off) <= TOLERANCE else f"{said:.1f} GiB for {check.gib:.1f} GiB ({off:+.0%})"
    refused = {"ran": "no", "oom": "fits"}[check.kind]
    verdict = found.verdict(check.device)
    return f"{verdict}: {found.ledger[check.device].peak.total / 2**30:.1f} GiB" if verdict == refused else ""


@pytest.mark.parametrize("check", CHECKS, ids=str)
def test_report(check: Check) -> None:
    assert failure(check) == KNOWN_MISSES.get(str(check), ("",))[0]


def test_every_report_is_evaluated_or_does_not_say_enough() -> None:
    evaluated = {check.case for check in CHECKS} | set(ARITHMETIC) | set(CONFIGURATIONS)
    assert not evaluated & set(INSUFFICIENT)
    assert evaluated | set(INSUFFICIENT) == set(cases())


def test_misses_are_of_checks() -> None:
    assert set(KNOWN_MISSES) <= set(map(str, CHECKS))


# The reports state what they count, the importer counts it from the shape.
@pytest.mark.parametrize("case", sorted(key for key, case in cases().items() if "params" in case["facts"]))
def test_parameters(case: str) -> None:
    facts = cases()[case]["facts"]
    if case == "D01":  # "~6.8B"
        return
    assert setup(case, host_ram_gib=64, **ANY_MACHINE).job.architecture.parameters == int(facts["params"])


ANY_MACHINE = {
    "gpus": 1, "nodes": 1, "gpu": "A100", "gpu_mem_gib": 80, "zero": 0, "optimizer": "adamw", "precision": "bf16",
}  # fmt: skip
