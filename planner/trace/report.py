"""A trace as text for people, as data for programs, and as an overlay file."""

from __future__ import annotations

from typing import Any

from planner.trace.result import Trace, TracedLayer, TracedTensor


def overlay(trace: Trace) -> dict[str, Any]:
    """The model's measured figures, as `trace_answer` without the tensors: what a file beside a job holds."""
    answer = trace_answer(trace)
    for part in (answer["outside"], *answer["layers"]):
        del part["tensors"]
    return answer


def overlay_text(trace: Trace) -> str:
    """The overlay as YAML."""
    import yaml

    head = "# Bytes and FLOP per token of one layer of each kind, read off the model's own code.\n"
    text: str = yaml.safe_dump(overlay(trace), sort_keys=False, allow_unicode=True, width=110)
    return head + text


def trace_answer(trace: Trace) -> dict[str, Any]:
    """Everything a trace found, in bytes, FLOP and counts."""
    return {
        "model": trace.model,
        "family": trace.family,
        "parameters": trace.parameters,
        "layers": [_layer(layer) for layer in trace.layers],
        "outside": {
            "parameters": sum(tensor.elements for tensor in trace.outside.tensors),
            "stored_bytes_per_token": _number(trace.outside.stored_per_token),
            "stored_bytes_constant": _number(trace.outside.stored_constant),
            "matmul_flops_per_token": _number(trace.outside.matmul_flops),
            "tensors": _tensors(trace.outside.tensors),
        },
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
        "parameters": layer.parameters,
        "stored_bytes_per_token": _number(layer.stored_per_token),
        "stored_bytes_constant": _number(layer.stored_constant),
        "boundary_bytes_per_token": _number(layer.boundary),
        "forward_working_bytes_per_token": _number(layer.forward_working),
        "matmul_flops_per_token": _number(layer.matmul_flops),
        "attention_flops_per_token": _number(layer.attention_flops),
        "tensors": _tensors(layer.tensors),
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
