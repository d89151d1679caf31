"""Narrow formats: copies of the weights that are made once a step and kept, and inputs that are kept."""

from __future__ import annotations

from planner.job import Job
from planner.ledger import ledger
from planner.plan import Layout
from planner.speed.memory_bound import memory_seconds
from planner.step_time import microseconds, time_terms
from planner.terms import TimeTerm
from tests.jobs import job, plan

OUTLOOK = "high"  # not the one that is meant where none is named


def found(one: Job) -> list[TimeTerm]:
    return [term for term in time_terms(one, OUTLOOK) if term.name == "narrow copies of the weights"]


def test_narrow_weights_are_made_once_a_step() -> None:
    """Four layers of 4 x 256 x 256 and 3 x 256 x 1,024 on each of two ranks' half: 4 bytes of device memory each."""
    model = {"hidden": 256, "intermediate": 1024, "heads": 4, "layers": 4, "vocabulary": 8192, "parameters": 8_390_912}
    training = {"runtime": "megatron", "precision": "fp8"}
    one = job(model=model, cluster={"gpu": "h100-sxm-80gb"}, training=training)
    (term,) = found(one)
    weights = 4 * (4 * 256 * 256 + 3 * 256 * 1024) // 2
    assert (term.window, term.lane) == ("optimizer_step", "serial")
    assert term.value({"layout": Layout(tensor=2)}) == microseconds(
        memory_seconds(one.cluster.gpu, 4 * weights, 1, OUTLOOK)
    )
    held = {line.name: line.bytes for line in ledger(one, plan(one, layout=Layout(tensor=2)))["gpu"].peak.lines}
    assert held["fp8 copies of the weights"] == 2 * weights
    assert found(job(model=model, training={"runtime": "megatron"})) == []


def test_linear_layers_keep_narrow_inputs() -> None:
    """Bytes for each token of one layer of 256 and 1,024 wide: inputs of attention, of the block and of its last matrix
    in one byte less each; the output projection has a copy of its own beside what attention keeps, of 256.
    """
    model = {"hidden": 256, "intermediate": 1024, "heads": 4, "layers": 4, "vocabulary": 8192, "parameters": 8_390_912}
    wide, narrow = (
        job(model=model, cluster={"gpu": "h100-sxm-80gb"}, training={"runtime": "megatron", "precision": precision})
        for precision in ("bf16", "fp8")
    )
    stored = [one.activations_of(one.layer_kinds[0]).stored.per_token for one in (wide, narrow)]
    assert stored[0] - stored[1] == 256 + 256 + 1024 - 256
    eager = job(model=model, cluster={"gpu": "h100-sxm-80gb"}, training={"precision": "fp8"})
    assert not eager.settings.narrow_inputs
