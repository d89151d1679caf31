"""From a Hugging Face config.json to an Architecture with exact parameter tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.architecture.decoder import Layout, decoder_layout
from planner.architecture.encoder import bert_layout, t5_layout
from planner.architecture.facts import Facts
from planner.architecture.families import Family, family_of
from planner.architecture.quirks import apply_quirk
from planner.architecture.sequence_pair import sequence_pair_layout
from planner.architecture.shape import Architecture
from planner.architecture.vision import around_tower, join, projector, tower_groups
from planner.errors import InputError
from planner.units import shown

BUILDERS: Mapping[str, Callable[[Facts], Layout]] = {
    "decoder": decoder_layout, "bert": bert_layout, "t5": t5_layout,
    "sequence_pair": sequence_pair_layout,
}


def architecture_from_config(config: Mapping[str, Any], name: str = "", file: str = "") -> Architecture:
    """Architecture of the model a configuration describes.

    `config` is the content of a config.json. Absent fields take the defaults of their `model_type`; every size taken
    that way is listed in `assumptions`. Raises InputError for an unknown `model_type`, a missing field without a
    default, and values that contradict each other.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"{type(config).__name__} is not a configuration", file, expected="an object with model_type")
    family = family_of(_model_type(config, file), file=file)
    if family.builder == "multimodal":
        return _multimodal(family, config, name, file)
    _require_text(family, "model_type", file)
    facts = _facts(family, config, "", file)
    return _architecture(family, facts, BUILDERS[family.builder](facts), name)


def _require_text(family: Family, path: str, file: str) -> None:
    if family.builder not in BUILDERS:
        raise InputError(f"model_type {family.model_type!r} is no language model", file, path=path,
                         expected="the configuration of a language model, or of the whole model around it")


def _model_type(config: Mapping[str, Any], file: str) -> str:
    value = config.get("model_type")
    if isinstance(value, str) and value:
        return value
    raise InputError("'model_type' is missing" if value is None else f"{shown(value)} is not a model_type", file,
                     path="model_type", expected="the name of a model family, such as 'llama'",
                     hint="add it, or describe the model as {parameters: N, layers: L}")


def _facts(family: Family, config: Mapping[str, Any], path: str, file: str) -> Facts:
    facts = Facts(family, config, path, file)
    apply_quirk(facts)
    return facts


def _architecture(family: Family, text: Facts, layout: Layout, name: str, notes: tuple[str, ...] = ()) -> Architecture:
    return Architecture(
        name=name or family.model_type,
        family=family.model_type,
        hidden=text.size("hidden"),
        vocabulary=text.size("vocabulary"),
        layers=layout.layers,
        outside=layout.outside,
        tied=layout.tied,
        maximum_positions=text.number("positions", 0),
        logit_softcap=bool(text.real("logit_softcap", 0.0)),
        logit_scale=text.flag("logit_scale"),
        embedding_scale=text.flag("embedding_scale"),
        assumptions=tuple(dict.fromkeys([*text.assumptions, *notes])),
    )


def _multimodal(family: Family, config: Mapping[str, Any], name: str, file: str) -> Architecture:
    facts = _facts(family, config, "", file)
    text = _text_facts(facts, config, file)
    vision = _vision_facts(facts, config, file)
    layout = BUILDERS[text.family.builder](text)
    outside = [*around_tower(vision), *projector(facts, vision, text)]
    whole = join(tower_groups(vision), outside, layout)
    return _architecture(family, text, whole, name, tuple(vision.assumptions))


def _text_facts(facts: Facts, config: Mapping[str, Any], file: str) -> Facts:
    """Facts of the text model; older files hold its fields at the top. The outer tie, when given, decides."""
    inner = _nested(facts, config, "text", file)
    nested = inner is not None
    family = family_of(_inner_type(facts, inner, "text"), "text_config.model_type", file)
    _require_text(family, "text_config.model_type", file)
    text = _facts(family, inner if inner is not None else config, "text_config" if nested else "", file)
    text.traits["tied"] = _outer_tie(facts, text)
    return text


def _outer_tie(facts: Facts, text: Facts) -> bool:
    if "tied" in facts.traits or facts.given("tied"):
        return facts.flag("tied")
    if text.given("tied") or "tied" not in facts.family.defaults:
        return text.flag("tied")
    return facts.flag("tied")


def _vision_facts(facts: Facts, config: Mapping[str, Any], file: str) -> Facts:
    inner = _nested(facts, config, "vision", file)
    family = family_of(_inner_type(facts, inner, "vision"), "vision_config.model_type", file)
    if family.builder != "vision":
        raise InputError(f"model_type {family.model_type!r} is no vision tower", file, path="vision_config.model_type",
                         expected=f"such as {facts.word('vision')!r}")
    return _facts(family, inner if inner is not None else {}, "vision_config", file)


def _inner_type(facts: Facts, inner: Mapping[str, Any] | None, part: str) -> str:
    stated = (inner or {}).get("model_type")
    own = facts.family.model_type
    return stated if isinstance(stated, str) and stated and stated != own else facts.word(part)


def _nested(facts: Facts, config: Mapping[str, Any], part: str, file: str) -> Mapping[str, Any] | None:
    """The nested configuration of a part; when absent, what the family puts in its place, or None."""
    inner = config.get(f"{part}_config")
    if inner is None:
        absent: Mapping[str, Any] | None = facts.traits.get(f"{part}_absent")
        return absent
    if isinstance(inner, Mapping):
        return inner
    raise InputError(f"{shown(inner)} is not valid", file, path=f"{part}_config",
                     expected="an object with the fields of that part")
