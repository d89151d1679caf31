"""Reads effects into terms: resolves quantities, widths, shards and homes, and keeps each term's scope minimal."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil
from operator import itemgetter

from planner.buckets import partition as partition_of
from planner.buckets import sub_groups
from planner.effects import Allocate, AnyEffect, Book, Effect, Format, Move, OneOf, Part, Scale, Shard, When
from planner.errors import InputError
from planner.job import Job
from planner.layouts import WHOLE, layouts
from planner.plan import LAYOUT_FACTS, Value, whole
from planner.quantities import BY_NAME, Quantity, shard_ranks
from planner.share import Share, share, share_of
from planner.terms import MemoryTerm, Values

LAYOUT = ("layout",)
# Values that follow from choices and that `when` may test as if they were choices.
DERIVED_SCOPES: Mapping[str, tuple[str, ...]] = {
    "gradient_accumulation": ("layout", "micro_batch"),
    **dict.fromkeys(LAYOUT_FACTS, LAYOUT),
}


@lru_cache(maxsize=64)
def job_effects(job: Job) -> tuple[AnyEffect, ...]:
    """All effects that can act in this job: the runtime's, then each choice's and each technique's.

    A technique's effects carry `when: {its choice: its value}`; those of other runtimes, of techniques that are not
    there, and those that a fact of the job rules out are left out.
    """
    found: list[AnyEffect] = list(job.runtime.effects)
    for choice, entry in job.techniques.choices.items():
        found += entry.effects
        for value, technique in entry.values.items():
            if job.unmet(technique.where) is not None:
                continue
            found += (
                effect.model_copy(update={"when": {**effect.when, choice: OneOf(values=(value,))}})
                for effect in technique.effects
            )
    return tuple(effect for effect in found if _acts(job, effect))


def _acts(job: Job, effect: Effect) -> bool:
    """Whether the effect's runtime and its conditions on facts of the job hold."""
    if effect.runtime and job.runtime.runtime not in effect.runtime:
        return False
    return all(test.admits(job.facts[name]) for name, test in effect.when.items() if name in job.facts)


@dataclass(frozen=True)
class Reader:
    """Turns an effect's `when`, `of`, `bytes` and `over` into one exact body with its scope, for a pipeline stage."""

    job: Job
    effects: tuple[AnyEffect, ...]
    stage: str = WHOLE

    def condition(self, when: When) -> tuple[tuple[str, ...], Callable[[Values], bool]]:
        """(scope, predicate) of the conditions on choices and derived values; those on job facts are settled."""
        tests = {name: test for name, test in when.items() if name not in self.job.facts}
        for name in tests:
            if name not in DERIVED_SCOPES and name not in self.job.techniques.choices:
                raise InputError(f"unknown name '{name}' in a condition", path=f"when.{name}")
        scope = unique(part for name in tests for part in DERIVED_SCOPES.get(name, (name,)))
        asked = [(self._getter(name), test.admits) for name, test in tests.items()]
        if not asked:
            return scope, lambda _: True
        return scope, lambda values: all(admits(get(values)) for get, admits in asked)

    def _getter(self, name: str) -> Callable[[Values], Value]:
        """What reads a choice, or a value that follows from choices."""
        job = self.job
        return (lambda values: job.derived(name, values)) if name in DERIVED_SCOPES else itemgetter(name)

    def divisor(self, book: Book | None) -> tuple[tuple[str, ...], Callable[[Values], int]]:
        """(scope, ranks) over which the persistent part of `book` is divided, from the shard effects that act."""
        if book is None:
            return (), lambda _: 1
        shards = [effect for effect in self.effects if isinstance(effect, Shard) and effect.book == book]
        conditions = [self.condition(effect.when) for effect in shards]
        scope = unique([*(name for part, _ in conditions for name in part), *(["layout"] if shards else [])])
        return scope, lambda values: shard_ranks(values) if any(holds(values) for _, holds in conditions) else 1

    def factor(self, book: Book | None) -> tuple[tuple[str, ...], Callable[[Values], Fraction]]:
        """(scope, factor) by which the scale effects that act multiply the persistent part of `book`."""
        scales = [effect for effect in self.effects if isinstance(effect, Scale) and effect.book == book]
        factors = [(effect.factor, *self.condition(effect.when)) for effect in scales]

        def body(values: Values) -> Fraction:
            result = Fraction(1)
            for factor, _, holds in factors:
                if holds(values):
                    result *= Fraction(factor)
            return result

        return unique(name for _, scope, _ in factors for name in scope), body

    def home(self, book: Book) -> tuple[tuple[str, ...], Callable[[Values], Mapping[str, Fraction]]]:
        """(scope, share on each device) where the persistent part of `book` lives."""
        moves = [effect for effect in self.effects if isinstance(effect, Move) and effect.book == book]
        homes = [(effect.to, *self.condition(effect.when), *self.part(effect.part)) for effect in moves]
        scope = unique(name for _, first, _, second, _ in homes for name in (*first, *second))

        def body(values: Values) -> Mapping[str, Fraction]:
            for to, _, holds, _, part in homes:
                if holds(values):
                    return {to: part(values), "gpu": 1 - part(values)}
            return {"gpu": Fraction(1)}

        return scope, body

    def part(self, part: Part | None) -> tuple[tuple[str, ...], Callable[[Values], Fraction]]:
        """(scope, share of the sub-groups of a rank's partition) that an effect is about; all without a part.

        Of k sub-groups as many whole ones count as are in the percentage of them (deepspeed 0.19.8
        runtime/zero/stage3.py:1105), so that the share is in steps of one sub-group.
        """
        if part is None:
            return (), lambda _: Fraction(1)
        job, stage, name, rest = self.job, self.stage, part.choice, part.rest

        def body(values: Values) -> Fraction:
            partition, size = partition_of(share_of(job, values, stage)), max(1, whole(values, "sub_group"))
            groups = -(-partition // size)
            counted = int((1 - (100 - whole(values, name)) / 100) * groups)  # of binary fractions, as there
            share = min(Fraction(1), Fraction(counted * size, max(1, partition)))
            return 1 - share if rest else share

        return (*LAYOUT, "sub_group", name), body

    def width(self, width: str | Fraction) -> tuple[tuple[str, ...], Callable[[Values], Fraction]]:
        """(scope, bytes per element) of a number or a named width, in the format that the effects give it."""
        if isinstance(width, Fraction):
            return (), lambda _: width
        if width == "accumulation":
            job = self.job
            return ("gradient_accumulation_dtype",), lambda values: job.dtype_bytes(
                str(values["gradient_accumulation_dtype"])
            )
        fixed = self.job.widths[width]
        formats = [effect for effect in self.effects if isinstance(effect, Format) and effect.width == width]
        if not formats:
            return (), lambda _: fixed
        others = [(*self.width(effect.bytes), *self.condition(effect.when)) for effect in formats]

        def body(values: Values) -> Fraction:
            return next((size(values) for _, size, _, holds in others if holds(values)), fixed)

        return unique(name for first, _, second, _ in others for name in (*first, *second)), body

    def amount(
        self,
        of: str,
        width: str | Fraction,
        over: Book | None,
        when: When,
        scaled: Book | None = None,
        part: Part | None = None,
    ) -> tuple[tuple[str, ...], tuple[str, ...], Callable[[Values], int]]:
        """(scope, measures, bytes on one rank): whole bytes, rounded up once for the constant and for each slope."""
        if of not in BY_NAME:
            raise InputError(f"unknown quantity '{of}'", expected="one of " + ", ".join(BY_NAME))
        quantity: Quantity = BY_NAME[of]
        (when_scope, holds), (over_scope, ranks) = self.condition(when), self.divisor(over)
        (width_scope, size), (factor_scope, factor) = self.width(width), self.factor(scaled)
        part_scope, portion = self.part(part)
        scope = unique([*quantity.scope, *when_scope, *over_scope, *width_scope, *factor_scope, *part_scope])
        job, stage = self.job, self.stage

        scales = any(isinstance(effect, Scale) and effect.book == scaled for effect in self.effects)
        plainly = part is None and not scales

        def times(share: Share, values: Values) -> int:
            count = job.tokens(values) if quantity.per_token else 1
            return share.under_way(count, job.micro_batches(values)) if quantity.under_way else count

        def body(values: Values) -> int:
            if not holds(values):
                return 0
            share = share_of(job, values, stage)
            if not share.exists:
                return 0
            divisor, each = ranks(values), size(values)
            if not plainly:
                each *= factor(values) * portion(values)
            upper, lower = each.numerator, each.denominator * divisor  # bytes per element
            elements = quantity.per_copy(share, values) if divisor > 1 else quantity.elements(share, values)
            total = -(-elements * upper // lower) * times(share, values)
            slopes = quantity.slopes(share)
            return total + sum(-(-slope * upper // lower) * whole(values, name) for name, slope in slopes.items())

        return scope, self.measures(quantity), body

    def measures(self, quantity: Quantity) -> tuple[str, ...]:
        """The measures that a quantity has a slope in, at the stage."""
        return tuple(quantity.slopes(share(self.job, layouts(self.job)[0], self.stage)))


def unique(names: Iterable[str]) -> tuple[str, ...]:
    """The names in order of first appearance."""
    return tuple(dict.fromkeys(names))


def allocation_terms(reader: Reader) -> tuple[MemoryTerm, ...]:
    """The memory terms of every allocate effect; one with `device: home` gives a term for each device it may be on."""
    return tuple(
        term for effect in reader.effects if isinstance(effect, Allocate) for term in _allocation(reader, effect)
    )


def _allocation(reader: Reader, effect: Allocate) -> Iterable[MemoryTerm]:
    """The terms of one allocate effect."""
    persistent = effect.book if effect.over or effect.device == "home" else None
    scope, measures, amount = reader.amount(effect.of, effect.bytes, effect.over, effect.when, persistent, effect.part)
    home_scope, home = reader.home(effect.book) if effect.device == "home" else ((), None)
    moves = {effect_.to for effect_ in reader.effects if isinstance(effect_, Move) and effect_.book == effect.book}
    devices = ("gpu", *sorted(moves)) if home else (effect.device,)
    pieces = BY_NAME["sub_group"].scope if effect.pinned == "sub_groups" else ()
    for device in devices:
        body = _on_device(reader, effect, device, home, amount)
        yield MemoryTerm(
            effect.name, unique([*scope, *home_scope, *pieces]), measures, body, device, effect.book, effect.moments,
            effect.source, reader.stage, effect.apart,
        )  # fmt: skip


def _on_device(
    reader: Reader,
    effect: Allocate,
    device: str,
    home: Callable[[Values], Mapping[str, Fraction]] | None,
    amount: Callable[[Values], int],
) -> Callable[[Values], int]:
    """The amount that is on `device`, rounded as pinned host memory is, for every rank of a node."""
    job = reader.job

    def body(values: Values) -> int:
        share = Fraction(1) if home is None else home(values).get(device, Fraction(0))
        size = ceil(share * amount(values)) if share else 0
        if device == "gpu" or size == 0:
            return size
        if effect.pinned != "no" and device == "host":
            cut = effect.pinned == "sub_groups"
            size = pinned_bytes(size, (sub_groups(share_of(job, values, reader.stage), values) if cut else ()) or (1,))
        return size if effect.per == "node" else size * job.ranks_per_node(values)

    return body


@lru_cache(maxsize=4096)
def pinned_bytes(size: int, pieces: tuple[int, ...]) -> int:
    """Host bytes that torch pins for `size` bytes cut in pieces of these proportions: each takes a power of two.

    Source: torch 2.13 ATen/core/CachingHostAllocator.h, default thresholds.
    Example: 5 bytes in pieces of 3 and 2: 4 + 2; 14 bytes in pieces that are as 3, 3 and 1: 8 + 8 + 2.
    """
    total = sum(pieces)
    return sum(power_of_two(ceil(Fraction(size * piece, total))) for piece in pieces)


def power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()
