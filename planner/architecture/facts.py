"""Facts of one model: canonical names resolved against a family's traits, a configuration, and the defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from typing import Any

from planner.architecture.families import Family
from planner.errors import InputError
from planner.units import shown

MEANINGS = {
    "hidden": "width of the residual stream",
    "layers": "number of layers",
    "heads": "number of query heads",
    "kv_heads": "number of key and value heads",
    "head_dim": "width of one head",
    "width": "width of the feed-forward block",
    "vocabulary": "rows of the embedding table",
    "experts": "number of experts",
    "experts_per_token": "experts that see one token",
    "expert_width": "width of one expert",
}
MOST = {"layers": 10_000, "decoder_layers": 10_000, "encoder_layers": 10_000, "heads": 100_000, "tiles": 1_000}
MOST_OF_ANYTHING = 10**12
_MISSING = object()
_NULL = object()


class Facts:
    """Typed access to the facts of one model.

    Order of resolution: trait, configuration, default, the `derived` value of the call. An explicit null in the
    configuration skips the default in favour of `derived`. Sizes taken from a default are noted in `assumptions`.
    """

    def __init__(self, family: Family, config: Mapping[str, Any], path: str = "", file: str = "") -> None:
        self.family = family
        self.config = config
        self.path = path
        self.file = file
        self.traits: dict[str, Any] = dict(family.traits)
        self.names: dict[str, Any] = dict(family.names)
        self.assumptions: list[str] = []

    def number(self, fact: str, derived: int | None = None) -> int:
        """A non-negative whole number. Raises InputError when it is absent everywhere, or not such a number."""
        value = self._value(fact, derived)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(fact, value, "a whole number, 0 or more")
        most = MOST.get(fact, MOST_OF_ANYTHING)
        if value > most:
            raise self._wrong(fact, value, f"at most {most:,}")
        return value

    def size(self, fact: str, derived: int | None = None) -> int:
        """As `number`, but at least 1."""
        value = self.number(fact, derived)
        if value < 1:
            raise self._wrong(fact, value, "a whole number, 1 or more")
        return value

    def real(self, fact: str, derived: float | None = None) -> float:
        """A real number. Raises InputError when it is absent everywhere or not a number."""
        value = self._value(fact, derived)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not isfinite(value):
            raise self._wrong(fact, value, "a number")
        return float(value)

    def flag(self, fact: str, derived: bool = False) -> bool:
        """True or false; a number counts as true unless it is 0."""
        value = self._value(fact, derived)
        if not isinstance(value, (bool, int, float)):
            raise self._wrong(fact, value, "true or false")
        return bool(value)

    def word(self, fact: str, derived: str = "") -> str:
        """A word; empty when absent."""
        value = self._value(fact, derived)
        if not isinstance(value, str):
            raise self._wrong(fact, value, "a word")
        return value

    def numbers(self, fact: str) -> tuple[int, ...] | None:
        """A list of whole numbers, or None when absent."""
        value = self._value(fact, _NULL)
        if value is _NULL:
            return None
        if not isinstance(value, Sequence) or not all(isinstance(item, int) and item >= 0 for item in value):
            raise self._wrong(fact, value, "a list of whole numbers")
        return tuple(value)

    def words(self, fact: str) -> tuple[str, ...] | None:
        """A list of words, or None when absent."""
        value = self._value(fact, _NULL)
        if value is _NULL:
            return None
        listed = isinstance(value, Sequence) and not isinstance(value, str)
        if not listed or not all(isinstance(item, str) for item in value):
            raise self._wrong(fact, value, "a list of words")
        return tuple(value)

    def given(self, fact: str) -> bool:
        """Whether the configuration itself states this fact (null does not)."""
        return self._stated(fact) not in (_MISSING, _NULL)

    def key(self, fact: str) -> str:
        """Full path, in the configuration file, of the key that holds this fact."""
        keys = self.family.fields.get(fact, (fact,))
        used = next((key for key in keys if _descend(self.config, key) is not _MISSING), keys[0])
        return f"{self.path}.{used}" if self.path else used

    def wrong(self, fact: str, message: str, expected: str = "", hint: str = "") -> InputError:
        """An InputError that points at the key holding this fact."""
        return InputError(message, file=self.file, path=self.key(fact), expected=expected, hint=hint)

    def _wrong(self, fact: str, value: object, expected: str) -> InputError:
        return self.wrong(fact, f"{_quoted(value)} is not valid", expected)

    def _stated(self, fact: str) -> Any:
        found = [_descend(self.config, key) for key in self.family.fields.get(fact, ())]
        stated = [value for value in found if value is not _MISSING]
        return next((value for value in stated if value is not None), _NULL if stated else _MISSING)

    def _value(self, fact: str, derived: Any) -> Any:
        if fact in self.traits:
            return self.traits[fact]
        stated = self._stated(fact)
        if stated not in (_MISSING, _NULL):
            return stated
        self._reject_misspelling(fact, stated)
        default = self.family.defaults.get(fact)
        if default is not None and (stated is _MISSING or derived is None):
            self._note(fact, default)
            return default
        if derived is None:
            raise self._absent(fact)
        return derived

    def _note(self, fact: str, default: Any) -> None:
        if fact not in MEANINGS:
            return
        note = f"{self.key(fact)} is not given: {default}, the default of model_type {self.family.model_type}"
        if note not in self.assumptions:
            self.assumptions.append(note)

    def _reject_misspelling(self, fact: str, stated: Any) -> None:
        """Raises InputError when a needed key is absent but an unknown one is spelled nearly like it."""
        if stated is not _MISSING or fact not in MEANINGS:
            return
        known = {key for keys in self.family.fields.values() for key in keys}
        strange = [key for key in self.config if isinstance(key, str) and key not in known and key not in _UNUSED_KEYS]
        for key in self.family.fields.get(fact, ()):
            close = get_close_matches(key, strange, n=1, cutoff=0.88)
            if close:
                raise InputError(f"unknown key {shown(close[0])}", self.file, path=self._under(close[0]),
                                 expected=f"{key} ({MEANINGS[fact]})", hint=f"did you mean {key!r}?")

    def _under(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key

    def _absent(self, fact: str) -> InputError:
        keys = " or ".join(self.family.fields.get(fact, (fact,)))
        meaning = MEANINGS.get(fact, fact.replace("_", " "))
        return InputError(
            message=f"{self.key(fact)!r} is missing",
            file=self.file,
            path=self.path,
            expected=f"{keys} ({meaning}), which model_type {self.family.model_type} has no default for",
            hint="add it, or describe the model as {parameters: N, layers: L}",
        )


_UNUSED_KEYS = frozenset({"num_nextn_predict_layers", "num_hidden_groups", "max_window_layers"})


def _quoted(value: object) -> str:
    """The value as Python writes it, cut where it is long."""
    return shown(value) if isinstance(value, str) or len(repr(value)) > 60 else repr(value)


def _descend(config: Mapping[str, Any], dotted: str) -> Any:
    value: Any = config
    for key in dotted.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return _MISSING
        value = value[key]
    return value
