"""Activation terms one by one: when each stands, and the layers of a stage with amounts made up for the purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from planner.architecture.activations import Amount, LayerActivations, ModelActivations
from planner.job import Job
from planner.memory import activation_terms, segment_bytes
from planner.plan import Layout
from planner.share import Share
from planner.space import job_space
from planner.terms import MemoryTerm
from tests.jobs import job, plan

NOTHING = Amount()
TOKENS = 512  # of a micro-batch of one sequence


def terms(one: Job, stage: str = "whole") -> dict[str, list[MemoryTerm]]:
    """The activation terms of a stage by name."""
    found: dict[str, list[MemoryTerm]] = {}
    for term in activation_terms(one, stage):
        found.setdefault(term.name, []).append(term)
    return found


def held(one: Job, name: str, stage: str = "whole", **choices: Any) -> list[int]:
    """Bytes of the terms of a name in a plan with one sequence to a micro-batch."""
    values = job_space(one).complete(plan(one, micro_batch=1, **choices))
    return [term.value(values) for term in terms(one, stage)[name]]


def piped(stages: int = 2, **sections: Any) -> Job:
    """The small job in a pipeline."""
    return job(training={"runtime": "megatron"}, **sections).with_choices({"layout": (Layout(pipeline=stages),)})


def layer(stored: int = 0, **amounts: int) -> LayerActivations:
    """A layer with these bytes whatever the tokens."""
    names = ("boundary", "forward_live", "checkpointed_forward_live", "backward_live", "checkpointed_backward_live")
    given = {name: Amount(amounts.get(name, 0)) for name in (*names, "selective_shared")}
    return LayerActivations(stored=Amount(stored), **given)


# ── when ─────────────────────────────────────────────────────────────────────────────────────────────────────────────

PASSES = ("forward", "loss", "backward_start")
LATER = (*PASSES, "recompute_start", "backward_end")
BATCH = ("layout", "micro_batch")
KEPT = (*BATCH, "mlp_tiles", "recompute_modules")
INTERVAL = (*KEPT, "checkpoint_interval", "recompute_policy")
OFFLOADED = (*KEPT, "activation_offload")
AT_CHECKPOINTS = ((*PASSES, "recompute_start"), (*BATCH, "recompute_policy", "activation_offload"), ("checkpoints",))
# Moments, scope, measures and device of each term of a job without a pipeline.
STANDING = {
    "activations of kept layers": [(PASSES, OFFLOADED, ("recomputed_layers",), "gpu")],
    "activations of kept layers on the host": [(PASSES, OFFLOADED, ("recomputed_layers",), "host")],
    "one layer running forward": [(("forward",), INTERVAL, (), "gpu")],
    "backward of the last layer": [(("backward_start",), KEPT, (), "gpu")],
    "recomputed segment": [(("recompute_start",), INTERVAL, (), "gpu")],
    "backward of the first layers": [(("backward_end",), INTERVAL, (), "gpu")],
    "checkpoints": [(*AT_CHECKPOINTS, "gpu")],
    "checkpoints on the host": [(*AT_CHECKPOINTS, "host")],
    "tables that all layers read": [(LATER, BATCH, (), "gpu")],
    "final norm, labels": [(("loss",), BATCH, (), "gpu")],
    "logits and loss": [(("loss",), (*BATCH, "loss"), (), "gpu")],
    "block of 16-bit logits": [((), (*BATCH, "loss"), (), "gpu")],
}


def test_moments_scopes_and_devices() -> None:
    found = {
        name: [(term.moments, term.scope, term.measures, term.device) for term in same]
        for name, same in terms(job()).items()
    }
    assert found == STANDING
    assert {term.book for same in terms(job()).values() for term in same} == {"activations"}


def test_in_a_pipeline_other_micro_batches_keep_theirs_late() -> None:
    """Kept layers' from the recomputation on, checkpoints' at the end."""
    found = terms(piped(), "first")
    assert [term.moments for term in found["activations of kept layers"]] == [
        PASSES,
        ("recompute_start", "backward_end"),
    ]
    assert [term.moments for term in found["checkpoints"]] == [(*PASSES, "recompute_start"), ("backward_end",)]
    assert found["checkpoints"][0].measures == ("checkpoints@first",)


def test_a_stage_that_is_not_there_holds_nothing() -> None:
    one = piped()
    assert {size for name in terms(one, "inner") for size in held(one, name, "inner")} == {0}


def test_what_is_offloaded_leaves_the_gpu_late_as_well() -> None:
    """Both lines on the GPU are gone, on the host all micro-batches of both ranks of the node stand."""
    one = piped()
    name = "activations of kept layers"
    stored = one.activations_of(one.layer_kinds[0]).stored.at(TOKENS)
    assert held(one, name, "first") == [2 * 2 * stored, 1 * 2 * stored]  # two layers, two micro-batches under way
    assert held(one, name, "first", activation_offload="cpu") == [0, 0]
    assert held(one, f"{name} on the host", "first", activation_offload="cpu") == [2 * 2 * 2 * stored]


def test_relative_positions_stay_where_a_layer_is_made_again() -> None:
    """T5: an input of every layer in forward; of checkpointed ones until their backward."""
    one = job(model="t5-3b")
    size, name = one.activations.biases.constant, "relative positions of checkpointed layers"
    assert size > 0
    (running,), (kept,) = terms(one)["relative positions"], terms(one)[name]
    assert (running.moments, running.scope) == (("forward",), ("layout",))
    assert kept.moments == ("loss", "backward_start", "recompute_start", "backward_end")
    assert kept.scope == ("layout", "checkpoint_interval")
    for interval, count in (0, 0), (1, 2), (2, 1):
        choices = {"checkpoint_interval": interval, "checkpoint_count": count}
        assert held(one, "relative positions", **choices) == [size]
        assert held(one, name, **choices) == [size if interval else 0]


def test_the_widest_checkpoint_counts() -> None:
    """Of several kinds of layers the one with most to keep stands for all."""
    one = job(model="local_and_global/config.json")
    kinds = one.kind_counts
    assert len(kinds) > 1
    widths = [one.activations_of(kind).boundary.at(TOKENS) for kind, _ in kinds]
    assert held(one, "checkpoints", checkpoint_interval=1, checkpoint_count=2) == [2 * max(widths)]


# ── one layer at a time ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Job:
    """The small job with bytes that are easily added: a layer's 100 to 500, the final norm's 10 000 and more."""
    alone = layer(
        100,
        selective_shared=5,
        forward_live=200,
        checkpointed_forward_live=300,
        backward_live=400,
        checkpointed_backward_live=500,
    )
    model = ModelActivations(
        layers=(alone,), outside=Amount(10_000 + 70), loss_forward=NOTHING, loss_backward=NOTHING,
        tied_gradient_extra=0, tables=Amount(70), embedded=Amount(9_900), final_forward=Amount(150),
        final_backward=Amount(2_000),
    )  # fmt: skip
    monkeypatch.setattr(Share, "of", lambda self, kind, tiles=1: alone)
    monkeypatch.setattr(Share, "kept_layers", lambda self, tiles=1: (alone,) * len(self.kinds))
    monkeypatch.setattr(Share, "activations", property(lambda self: model))
    return job()


def test_a_layer_runs_forward_beside_the_embeddings(made_up: Job) -> None:
    """9 900 + 200 or 300 where it is checkpointed, against 10 000 + 150 of the final norm."""
    name = "one layer running forward"
    assert held(made_up, name) == [10_150]
    assert held(made_up, name, checkpoint_interval=1, checkpoint_count=1) == [10_200]
    one = piped()
    assert held(one, name, "first") == [9_900 + 200]
    assert held(one, name, "last") == [10_150]


def test_without_a_final_norm_only_the_layer_runs(made_up: Job) -> None:
    one = piped(4, cluster={"gpu": "a100-sxm-80gb", "gpus_per_node": 4})
    assert held(one, "one layer running forward", "inner") == [200]
    assert held(one, "backward of the last layer", "inner") == [400]
    assert held(one, "final norm, labels", "inner") == [0]


def test_backward_starts_with_the_final_norm(made_up: Job) -> None:
    """10 000 + 2 000 on the last stage; elsewhere the last layer's 400."""
    one = piped()
    assert held(made_up, "backward of the last layer") == [12_000]
    assert held(one, "backward of the last layer", "last") == [12_000]
    assert held(one, "backward of the last layer", "first") == [400]
    assert (held(one, "final norm, labels", "first"), held(one, "final norm, labels", "last")) == ([0], [10_000])
    assert held(made_up, "tables that all layers read") == [70]


def test_backward_ends_with_the_first_layer_or_segment(made_up: Job) -> None:
    """Kept: 100 stored and 400 live. Two layers made again: 2 x 100 and one's surplus of 500 - 100."""
    name = "backward of the first layers"
    assert held(made_up, name) == [500]
    for policy in "full", "selective":
        assert held(made_up, "recomputed segment", recompute_policy=policy) == [0]
    choices = {"checkpoint_interval": 2, "checkpoint_count": 1}
    assert held(made_up, name, **choices) == held(made_up, "recomputed segment", **choices) == [600]


def test_backward_ends_with_the_layer_that_is_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dense layer before one of experts, which stores more."""
    one = job(model="dense_then_experts/config.json")
    dense, experts = one.layer_kinds[0], one.layer_kinds[-1]
    monkeypatch.setattr(Share, "kinds", property(lambda self: (dense, experts)))
    first, second = one.activations_of(dense), one.activations_of(experts)
    assert first.stored.at(TOKENS) < second.stored.at(TOKENS)
    assert held(one, "backward of the first layers") == [(first.stored + first.backward_live).at(TOKENS)]


@pytest.mark.parametrize(
    ("layers", "expected"),
    [
        ([(10, 3), (20, 7)], 7),  # the last one, before anything is gone
        ([(10, 50), (20, 7)], 30),  # the first one, when 20 of the second are gone
        ([(10, 90), (20, 7), (30, 8)], 40),  # 90 - 20 - 30
        ([(10, 3), (20, -7)], 0),
    ],
)
def test_a_kept_layers_backward_when_later_layers_are_gone(
    monkeypatch: pytest.MonkeyPatch, layers: list[tuple[int, int]], expected: int
) -> None:
    """(stored, live in backward) of each layer of a stage without a final norm."""
    kept = tuple(layer(stored, backward_live=live) for stored, live in layers)
    monkeypatch.setattr(Share, "kept_layers", lambda self, tiles=1: kept)
    assert held(piped(), "backward of the last layer", "first") == [expected]


@dataclass(frozen=True, eq=False)
class Layers:
    """A stage of which only the layers are asked for."""

    layers: tuple[LayerActivations, ...]

    def kept_layers(self, tiles: int = 1) -> tuple[LayerActivations, ...]:
        return self.layers


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (0, 0),
        (1, 100),  # the third layer with its surplus: 40 + 60
        (2, 110),  # second and third: 10 + 40 + 60
        (3, 130),  # the first three: 20 + 10 + 40 + 60
        (4, 135),
    ],
)
def test_a_segment_is_the_worst_run_of_layers(interval: int, expected: int) -> None:
    """Layers that store 20, 10, 40, 5 bytes, the third with a surplus of 60, the last with one of 1."""
    sizes = [(20, 25), (10, 10), (40, 100), (5, 6)]
    stage = Layers(tuple(layer(stored, checkpointed_backward_live=live) for stored, live in sizes))
    assert segment_bytes(stage, interval, TOKENS, False) == expected  # type: ignore[arg-type]


def test_a_segment_less_what_selective_recomputation_kept() -> None:
    """The least that any layer's is, once: 50 - 3."""
    stage = Layers((layer(50, checkpointed_backward_live=50, selective_shared=3), layer(20, selective_shared=8)))
    assert segment_bytes(stage, 1, TOKENS, True) == 47  # type: ignore[arg-type]
