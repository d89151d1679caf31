"""Peaks of the activations held against what real model code keeps alive (every row of tests/data/peaks.csv)."""

from __future__ import annotations

from functools import cache

import pytest
from measured import Run, runs

from planner.architecture.activation_peaks import activation_peaks
from planner.architecture.activations import activations
from planner.architecture.importer import architecture_from_config
from planner.architecture.shape import Architecture

LIMIT = 0.05
BEYOND = {
    # Every second matrix product and attention are held in test_selective.py; other policies are not offered.
    "SAC": "selective recomputation",
}
# 1024 tokens of width 1024: the measurement takes the inner gradient (1024 x 16384) for that of a weight of that shape.
WIDER = {("google-t5/t5-3b", "backward_layers"): 0.06}
RUNS = [run for run in runs() if not any(word in run.implementation for word in BEYOND)]


@cache
def architecture(model: str, layers: int, implementation: str) -> Architecture:
    wanted = (model, layers, implementation)
    run = next(run for run in RUNS if (run.model, run.layers, run.implementation) == wanted)
    return architecture_from_config(run.config())


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_activation_peaks_are_those_of_the_model_code(run: Run) -> None:
    shape = architecture(run.model, run.layers, run.implementation)
    found = activation_peaks(shape, activations(shape, run.settings()), run.tokens, run.checkpointed)
    errors = {moment: getattr(found, moment) / peak - 1 for moment, (peak, _) in run.peaks.items()}
    limits = {moment: WIDER.get((run.model, moment), LIMIT) for moment in errors}
    assert {moment: error for moment, error in errors.items() if abs(error) > limits[moment]} == {}


@pytest.mark.parametrize("run", [run for run in RUNS if run.implementation == "flashlike"], ids=lambda run: run.name)
def test_peaks_with_gradients_are_those_of_the_model_code(run: Run) -> None:
    shape = architecture(run.model, run.layers, run.implementation)
    measured = max(total for _, total in run.peaks.values())
    assert abs(with_gradients(run, shape) / measured - 1) <= LIMIT


def with_gradients(run: Run, shape: Architecture) -> int:
    """Peak of activations and gradients in a first micro-batch.

    Candidates: the loss, with no gradient yet; the recomputation of each layer, with the gradients of all later
    layers and the head; the end, with all gradients, the tied table's extra ones and the embedding output's.
    """
    found = activations(shape, run.settings())
    peaks = activation_peaks(shape, found, run.tokens, run.checkpointed)
    layers = [
        (group.kind, layer) for group, layer in zip(shape.layers, found.layers, strict=True)
        for _ in range(group.count)
    ]
    end = 2 * run.parameters + found.tied_gradient_extra + found.layers[0].boundary.at(run.tokens)
    candidates = [peaks.backward_loss, peaks.backward_layers, end]
    gradients = 2 * sum(tensor.elements for tensor in shape.outside if tensor.role == "head")
    if run.checkpointed:
        for index, (kind, layer) in reversed(list(enumerate(layers))):
            standing = layer.boundary.scaled(index + 1) + found.tables + layer.checkpointed_backward_live
            candidates.append(standing.at(run.tokens) + gradients)
            gradients += 2 * kind.parameters
    return max(candidates)
