"""Builds a causal language model from its configuration, with parameters that have shapes and no contents."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import InputError
from planner.reading import nearest
from planner.trace.flash import NAME, register_flash
from planner.trace.libraries import library

ATTENTIONS: Mapping[str, str] = {"flash": NAME, "sdpa": "sdpa", "eager": "eager"}
"""What is tried, best first: name in a trace, and transformers' name for it."""


def configured(fields: Mapping[str, Any], source: str) -> Any:
    """transformers' configuration object. Raises InputError for a model that is no causal language model."""
    transformers = library("transformers")
    family = str(fields["model_type"])
    _require_causal(family, source)
    rest = {name: value for name, value in fields.items() if name not in ("model_type", "auto_map")}
    try:
        config = transformers.AutoConfig.for_model(family, **rest)
    except Exception as error:
        raise InputError(f"transformers refuses this configuration: {first_line(error)}", source) from None
    if _is_encoder(config, family):
        raise _not_causal(family, source)
    return config


def _require_causal(family: str, source: str) -> None:
    auto = library("transformers.models.auto.modeling_auto")
    known = library("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    if family not in known:
        version = library("transformers").__version__
        raise InputError(
            f"transformers {version} has no model code for {family!r}", source, path="model_type",
            expected="a model type that transformers can build", hint=nearest(family, known),
        )
    if family not in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        raise _not_causal(family, source)


def _is_encoder(config: Any, family: str) -> bool:
    """Whether the family's models fill masks unless they are told to be decoders, and this one is not told."""
    masked = library("transformers.models.auto.modeling_auto").MODEL_FOR_MASKED_LM_MAPPING_NAMES
    return family in masked and not getattr(config, "is_decoder", True)


def _not_causal(family: str, source: str) -> InputError:
    return InputError(
        f"a model of type {family!r} is no causal language model", source, path="model_type",
        expected="a model that predicts the next token",
    )


def build(config: Any, source: str) -> tuple[Any, str]:
    """The model in training mode with bf16 weights, and how it runs attention. Call it with fake tensors on.

    Raises InputError where transformers cannot build it.
    """
    register_flash()
    failure: Exception | None = None
    for attention, name in ATTENTIONS.items():
        try:
            model = _from_config(config, name)
        except (ValueError, KeyError, ImportError) as error:
            failure = failure or error
        else:
            if attention != "flash" or _calls_interface(model):
                return model.train(), attention
    raise InputError(f"transformers cannot build this model: {first_line(failure)}", source)


def _from_config(config: Any, attention: str) -> Any:
    bfloat16 = library("torch").bfloat16
    auto = library("transformers").AutoModelForCausalLM
    return auto.from_config(config, dtype=bfloat16, attn_implementation=attention)


def _calls_interface(model: Any) -> bool:
    """Whether the model code looks its attention up, rather than writing it out whatever it is told."""
    return hasattr(library(type(model).__module__), "ALL_ATTENTION_FUNCTIONS")


def first_line(error: Exception | None) -> str:
    """The first line of a library's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
