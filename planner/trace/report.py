"""A trace as text for people, as data for programs, and as an overlay file."""

from __future__ import annotations

import json
from typing import Any

from planner.trace.result import Trace, TracedLayer, TracedOutside, TracedTensor

FORMAT = 1
"""Version of overlay files."""


def overlay(trace: Trace) -> dict[str, Any]:
    """What a file beside a job holds: the model as configured, and everything that `trace_answer` has."""
    facts, answer = trace.facts, trace_answer(trace)
    return {
        "overlay": FORMAT,
        "model": answer.pop("model"),
        "family": answer.pop("family"),
        "config": json.loads(json.dumps(facts.config, default=str)),
        "hidden": facts.hidden,
        "vocabulary": facts.vocabulary,
        "positions": facts.positions,
        "tied": facts.tied,
        "in_proportion": trace.in_proportion,
        **answer,
    }


def overlay_text(trace: Trace) -> str:
    """The overlay as YAML."""
    import yaml

    head = "# Bytes and FLOP per token of one layer of each kind, read off the model's own code.\n"
    text: str = yaml.safe_dump(overlay(trace), sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    return head + text


def trace_answer(trace: Trace) -> dict[str, Any]:
    """Everything a trace found, in bytes, FLOP and counts."""
    return {
        "model": trace.model,
        "family": trace.family,
        "parameters": trace.parameters,
        "layers": [_layer(layer) for layer in trace.layers],
        "outside": _outside(trace.outside),
        "forward_peak_bytes": trace.forward_peak,
        "backward_peak_bytes": trace.backward_peak,
        "sequence_lengths": list(trace.sequence_lengths),
        "attention": trace.attention,
        "versions": dict(trace.versions),
        "notes": list(trace.notes),
    }


def _layer(layer: TracedLayer) -> dict[str, Any]:
    return {
        "kind": layer.kind,
        "first": layer.first,
        "count": layer.count,
        "places": list(layer.places),
        "parameters": layer.parameters,
        "stored_bytes_per_token": _number(layer.stored_per_token),
        "stored_bytes_constant": _number(layer.stored_constant),
        "boundary_bytes_per_token": _number(layer.boundary),
        "forward_working_bytes_per_token": _number(layer.forward_working),
        "forward_surplus_bytes_per_token": _number(layer.forward_surplus),
        "backward_surplus_bytes_per_token": _number(layer.backward_surplus),
        "checkpointed_forward_bytes_per_token": _number(layer.checkpointed_forward),
        "recomputed_bytes_per_token": _number(layer.recomputed),
        "matmul_flops_per_token": _number(layer.matmul_flops),
        "attention_flops_per_token": _number(layer.attention_flops),
        "tensors": _tensors(layer.tensors),
    }


def _outside(outside: TracedOutside) -> dict[str, Any]:
    return {
        "parameters": sum(tensor.elements for tensor in outside.tensors),
        "stored_bytes_per_token": _number(outside.stored_per_token),
        "stored_bytes_constant": _number(outside.stored_constant),
        "table_bytes_per_position": _number(outside.tables_per_position),
        "table_bytes_per_token": _number(outside.tables_per_token),
        "named_bytes_per_token": _number(outside.named),
        "final_bytes_per_token": _number(outside.final),
        "final_forward_bytes_per_token": _number(outside.final_forward),
        "final_backward_bytes_per_token": _number(outside.final_backward),
        "loss_forward_bytes_per_token": _number(outside.loss_forward),
        "loss_backward_bytes_per_token": _number(outside.loss_backward),
        "matmul_flops_per_token": _number(outside.matmul_flops),
        "tensors": _tensors(outside.tensors),
    }


def _tensors(tensors: tuple[TracedTensor, ...]) -> list[dict[str, Any]]:
    return [{"name": tensor.name, "shape": list(tensor.shape)} for tensor in tensors]


def _number(value: float) -> int | float:
    """A whole number where it is one, and three decimals where not."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded


def trace_text(trace: Trace) -> str:
    """A summary with one line for each kind of layer."""
    versions = ", ".join(f"{name} {version}" for name, version in trace.versions.items())
    short, long = trace.sequence_lengths
    lines = [
        f"{trace.model}: {trace.parameters:,} parameters in {trace.layer_count} layers ({trace.family})",
        f"traced at {short:,} and {long:,} tokens, bf16, {trace.attention} attention, {versions}",
        "",
        *(_line(layer) for layer in trace.layers),
        f"outside the layers: {trace.outside.stored_per_token:,.0f} bytes stored per token",
        f"activations alive at most at {long:,} tokens, nothing recomputed: "
        f"{trace.forward_peak:,} bytes in forward, {trace.backward_peak:,} in backward",
        *(f"note: {note}" for note in trace.notes),
    ]
    return "\n".join(lines) + "\n"


def _line(layer: TracedLayer) -> str:
    constant = f" and {layer.stored_constant:,.0f} whatever the tokens" if round(layer.stored_constant) else ""
    return (
        f"{layer.count} x {layer.kind}: {layer.parameters:,} parameters; bytes per token: "
        f"{layer.stored_per_token:,.0f} stored{constant}, {layer.boundary:,.0f} at a checkpoint, "
        f"{layer.forward_working:,.0f} at work; {layer.matmul_flops:,.0f} FLOP per token, "
        f"{layer.attention_flops:,.0f} between tokens"
    )
