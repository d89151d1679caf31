"""What a layout takes of a GPU at least, whatever the other choices: the least of every term that stands.

A plan's peak is at least what the terms of one moment of one pipeline stage add up to, and each of these at least the
least that any values of the other choices make of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from planner.layouts import stages
from planner.plan import Layout, Value, layout_of
from planner.specification import Specification
from planner.terms import BATCH, MemoryTerm, Values

STATES = ("parameters", "gradients", "optimizer_states")
Place = tuple[str, str]  # a pipeline stage and a moment


class _Least:
    """Terms with the values of the other choices that each may have."""

    def __init__(
        self, terms: Iterable[MemoryTerm], domains: Mapping[str, tuple[Value, ...]], given: tuple[str, ...]
    ) -> None:
        self.terms = [(term, _ways(term, domains, given)) for term in terms]

    def add(self, given: Mapping[str, Value], found: dict[Place, int]) -> None:
        """Adds to every place the least that terms are there under the given values."""
        for term, ways in self.terms:
            least = min((term.body({**way, **given}) for way in ways), default=0)
            if least:
                for moment in term.moments:
                    found[term.stage, moment] = found.get((term.stage, moment), 0) + least


def _ways(
    term: MemoryTerm, domains: Mapping[str, tuple[Value, ...]], given: tuple[str, ...]
) -> list[dict[str, Value]]:
    """Every combination of the choices in a term's scope that are not given."""
    names = [name for name in term.scope if name not in given]
    return [dict(zip(names, values, strict=True)) for values in product(*(domains[name] for name in names))]


class StandingFloors:
    """Bytes of a GPU that no plan under a layout can do without.

    `of_the_runtime`: other choices have only the values that the runtime has.
    """

    def __init__(self, specification: Specification, of_the_runtime: bool = True) -> None:
        known = specification.job.runtime.choices if of_the_runtime else {}
        self.limit = specification.limits.get("gpu")
        self.domains = {choice.name: choice.values for choice in specification.space.choices}
        for name, values in known.items():
            self.domains[name] = tuple(value for value in self.domains[name] if value in values)
        terms = [term for term in specification.memory if term.device == "gpu" and not term.measures]
        stands = [term for term in terms if "micro_batch" not in term.scope]
        first = stages(specification.job)[0]
        states = (term for term in stands if term.book in STATES and term.stage == first)
        self._states = _Least([term for term in states if "forward" in term.moments], self.domains, ("layout",))
        self._standing = _Least(stands, self.domains, ("layout",))
        self._running = _Least([term for term in terms if "micro_batch" in term.scope], self.domains, BATCH)
        self.of_states: dict[Layout, int] = {}
        self.found: dict[Layout, dict[Place, int]] = {}

    def holds(self, layout: Layout) -> bool:
        """Whether there is room for what stands; about the states alone is asked first, of which few terms are."""
        return self.holds_states(layout) and (self.limit is None or self.bytes(layout) <= self.limit.capacity)

    def holds_states(self, layout: Layout) -> bool:
        """Whether there is room for the model's states on the first stage."""
        return self.limit is None or self.states(layout) <= self.limit.capacity

    def states(self, layout: Layout) -> int:
        """What the states of the model take at least on the first stage: a quick lower bound of `bytes`."""
        if layout not in self.of_states:
            found: dict[Place, int] = {}
            self._states.add({"layout": layout}, found)
            self.of_states[layout] = max(found.values(), default=0)
        return self.of_states[layout]

    def places(self, layout: Layout) -> Mapping[Place, int]:
        """What stands at each moment of each stage, whatever the micro-batch."""
        if layout not in self.found:
            self.found[layout] = {}
            self._standing.add({"layout": layout}, self.found[layout])
        return self.found[layout]

    def bytes(self, layout: Layout) -> int:
        """What a plan under the layout takes at least, at the fullest moment of the fullest stage."""
        return max(self.places(layout).values(), default=0)

    def bytes_with(self, values: Values) -> int:
        """As `bytes`, with the micro-batch among `values`; what waits for its backward is left out."""
        layout = layout_of(values)
        found = dict(self.places(layout))
        self._running.add({"layout": layout, "micro_batch": values["micro_batch"]}, found)
        return max(found.values(), default=0)
