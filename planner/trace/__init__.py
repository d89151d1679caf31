"""Reads a model's activations, parameters and FLOPs off its real code, run on tensors without contents."""

from __future__ import annotations

from planner.trace.report import overlay, overlay_text, trace_answer, trace_text
from planner.trace.result import Trace, TracedLayer, TracedTensor
from planner.trace.tracing import trace_model

__all__ = [
    "Trace", "TracedLayer", "TracedTensor", "overlay", "overlay_text", "trace_answer", "trace_model", "trace_text",
]
