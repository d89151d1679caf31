"""Activation checkpointing: the block serves models that call DeepSpeed's own checkpointing."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import Finding, warn
from planner.check.subject import Subject

BLOCK = "activation_checkpointing"
SWITCHES = ("partition_activations", "contiguous_memory_optimization", "cpu_checkpointing", "number_checkpoints")


def contiguous_memory_has_what_it_needs(subject: Subject) -> Iterator[Finding]:
    """DeepSpeed's checkpointing asserts two more keys once the model uses it."""
    dotted = f"{BLOCK}.contiguous_memory_optimization"
    if not subject.value(dotted):
        return
    if not subject.value(f"{BLOCK}.partition_activations"):
        yield warn(
            dotted,
            "asserts partition_activations true once a model uses DeepSpeed's checkpointing; the parser lets it pass",
        )
    if not subject.value(f"{BLOCK}.number_checkpoints"):
        yield warn(
            f"{BLOCK}.number_checkpoints",
            "contiguous_memory_optimization asserts the number of layers; the parser lets it pass",
        )


def hugging_face_models_skip_the_block(subject: Subject) -> Iterator[Finding]:
    """The block switches nothing on by itself."""
    if any(subject.value(f"{BLOCK}.{name}") for name in SWITCHES):
        yield warn(
            BLOCK,
            "has no effect on Hugging Face models: only gradient_checkpointing=True of the trainer recomputes "
            "activations",
        )


RULES = (contiguous_memory_has_what_it_needs, hugging_face_models_skip_the_block)
