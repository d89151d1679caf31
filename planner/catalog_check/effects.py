"""Effects: conditions over values that exist, quantities that are known, costs above zero, none that undoes another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from math import prod

from planner.catalog_check.catalog import Catalog
from planner.catalog_check.envelope import Envelope, judged
from planner.catalog_check.findings import Finding, Place
from planner.catalog_check.names import known
from planner.effect_terms import DERIVED_SCOPES
from planner.effects import (
    Allocate,
    AnyEffect,
    AtLeast,
    Collective,
    Convert,
    Effect,
    Move,
    OneOf,
    Scale,
    Shard,
    Transfer,
    Update,
    When,
)
from planner.quantities import BY_NAME
from planner.units import format_bytes

# Facts of a job that conditions may test, and the catalog that lists their values (empty: numbers or few words).
FACTS: Mapping[str, str] = {
    "runtime": "runtime", "precision": "", "optimizer": "optimizers", "method": "", "gpus": "", "nodes": "",
    "paged": "", "clipping": "", "feed_forward": "", "sequence_length": "", "kernels": "", "products": "",
    "experts": "", "shared_experts": "", "latent_attention": "",
}  # fmt: skip
_WORDS: Mapping[str, tuple[str, ...]] = {
    "precision": ("fp32", "fp16", "bf16"),
    "method": ("full", "lora", "qlora"),
    "paged": ("yes", "no"),
    "clipping": ("norm", "none"),
    "feed_forward": ("gated", "other"),
    "kernels": ("huggingface", "liger", "megatron", "compiled"),
    "products": ("fp32", "fp16", "bf16", "fp8"),
    "experts": ("yes", "no"),
    "shared_experts": ("yes", "no"),
    "latent_attention": ("yes", "no"),
    "gradient_accumulation_dtype": ("fp32", "fp16", "bf16"),
}


def effect_findings(catalog: Catalog, envelope: Envelope) -> Iterator[Finding]:
    """Every effect of every runtime, choice and technique."""
    for place, effects in _groups(catalog):
        for index, effect in enumerate(effects):
            at = place / index
            yield from _condition(catalog, envelope, at, effect)
            yield from _figures(envelope, at, effect)
            if not effect.source:
                yield at.error("an effect without source", "source: where its figure is from")
        yield from _together(place, effects)
    for part in catalog.of("choice"):
        yield from tested(catalog, envelope, part.place / "where", part.content.where, tuple(FACTS))
        for value, technique in part.content.values.items():
            at = part.place / "values" / str(value) / "where"
            yield from tested(catalog, envelope, at, technique.where, tuple(FACTS))


def _groups(catalog: Catalog) -> Iterator[tuple[Place, Sequence[AnyEffect]]]:
    """(place, effects that act together)."""
    for part in catalog.of("runtime"):
        yield part.place / "effects", part.content.effects
    for part in catalog.of("choice"):
        yield part.place / "effects", part.content.effects
        for value, technique in part.content.values.items():
            yield part.place / "values" / str(value) / "effects", technique.effects


def _condition(catalog: Catalog, envelope: Envelope, place: Place, effect: Effect) -> Iterator[Finding]:
    """`when` and `runtime` name what there is."""
    choices = catalog.entries("choice")
    yield from tested(catalog, envelope, place / "when", effect.when, (*choices, *DERIVED_SCOPES, *FACTS))
    part = getattr(effect, "part", None)
    if part is not None:
        yield from known(place / "part" / "choice", part.choice, choices, "choice")
    for runtime in effect.runtime:
        yield from known(place / "runtime", runtime, catalog.names("runtime"), "runtime")


def tested(
    catalog: Catalog, envelope: Envelope, place: Place, condition: When, names: Sequence[str]
) -> Iterator[Finding]:
    """The names of a condition are among `names`, and what they are compared with can be."""
    choices = catalog.entries("choice")
    for name, test in condition.items():
        at = place / name
        yield from known(at, name, names, "name in a condition")
        values = tuple(choices[name].values) if name in choices else ()
        values = values or _WORDS.get(name, ()) or (catalog.names(FACTS[name]) if FACTS.get(name) else ())
        for value in test.values if isinstance(test, OneOf) and values else ():
            yield from known(at, value, values, f"value of {name}:")
        if not isinstance(test, OneOf):
            limit = test.at_least if isinstance(test, AtLeast) else test.at_most
            yield from judged(at, limit, envelope.effects["compared"], f"the limit of {name}")


def _figures(envelope: Envelope, place: Place, effect: AnyEffect) -> Iterator[Finding]:
    """Amounts above zero and of a size that can be."""
    ranges = envelope.effects
    if isinstance(effect, Scale) and isinstance(effect.factor, Fraction):
        yield from judged(place / "factor", float(effect.factor), ranges["factor"], "the factor")
        if effect.factor == 1:
            yield (place / "factor").warn("a factor of 1 changes nothing")
    if isinstance(effect, (Allocate, Collective, Convert, Transfer, Update)):
        yield from known(place / "of", effect.of, BY_NAME, "quantity")
        if isinstance(effect.bytes, Fraction):
            yield from _amount(envelope, place / "bytes", effect, float(effect.bytes))
    if isinstance(effect, Collective):
        for name in ("message", "ahead"):
            if getattr(effect, name):
                yield from known(place / name, getattr(effect, name), BY_NAME, "quantity")
        for name in ("copied", "per_rank", "awaited_above"):
            yield from judged(place / name, getattr(effect, name), ranges[name], name)
    if isinstance(effect, Update):
        if effect.calls:
            yield from known(place / "calls", effect.calls, BY_NAME, "quantity")
        yield from judged(place / "kernels", effect.kernels, ranges["kernels"], "kernels")


def _amount(
    envelope: Envelope, place: Place, effect: Allocate | Collective | Convert | Transfer | Update, value: float
) -> Iterator[Finding]:
    """Bytes of each element, or of the whole where the quantity is `one`."""
    if value <= 0:
        yield place.error(f"a cost of {value:g} bytes", "bytes above zero; a saving is a scale, move or shard effect")
    elif effect.of != "one" or not isinstance(effect, Allocate):
        yield from judged(place, value, envelope.effects["bytes"], "the cost")
    else:
        kind = f"reserve_on_{effect.device}" if effect.book == "reserve" else "buffer"
        bounds = envelope.effects.get(kind, envelope.effects["buffer"])
        yield from judged(place, value, bounds, "the amount", format_bytes)


def _together(place: Place, effects: Sequence[AnyEffect]) -> Iterator[Finding]:
    """Of effects that act at once none undoes another: factors, homes, shards of one book."""
    for (_, first), (index, second) in combinations(enumerate(effects), 2):
        if not _may_meet(first, second) or getattr(first, "book", "") != getattr(second, "book", None):
            continue
        at = place / index
        if isinstance(first, Move) and isinstance(second, Move) and first.to != second.to:
            yield at.error(f"moves {second.book} to {second.to}, an effect before it to {first.to}")
        if isinstance(first, Move) and isinstance(second, Move) and first.to == second.to:
            yield at.warn(f"moves {second.book} to {second.to} once more")
        if isinstance(first, Shard) and isinstance(second, Shard):
            yield at.warn(f"divides {second.book} once more")
    for index, effect in enumerate(effects):
        if isinstance(effect, Scale):
            yield from _cancelled(place / index, effect, effects[:index])


def _cancelled(place: Place, effect: Scale, before: Sequence[AnyEffect]) -> Iterator[Finding]:
    """A factor that takes back what factors of the same book before it gave."""
    factors = [item.factor for item in before if isinstance(item, Scale) and item.book == effect.book
               and _may_meet(item, effect)]  # fmt: skip
    if factors and prod(Fraction(item) for item in (*factors, effect.factor)) == 1:
        yield place.error(f"scales {effect.book} by {effect.factor}, which takes back what the effects before it save")


def _may_meet(first: Effect, second: Effect) -> bool:
    """Whether two effects can act in the same plan, as far as their conditions are lists of values."""
    if first.runtime and second.runtime and not set(first.runtime) & set(second.runtime):
        return False
    for name in first.when.keys() & second.when.keys():
        mine, other = first.when[name], second.when[name]
        if isinstance(mine, OneOf) and isinstance(other, OneOf) and not set(mine.values) & set(other.values):
            return False
    return True
