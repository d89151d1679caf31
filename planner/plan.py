"""A plan: one value for every choice, frozen. The only thing the solver hands back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cached_property

from planner.errors import InternalError

# Values that follow from the layout, by the name that conditions use.
LAYOUT_FACTS: Mapping[str, str] = {
    "tensor_parallel": "tensor", "pipeline_parallel": "pipeline", "sequence_parallel": "sequence",
    "expert_parallel": "expert", "data_parallel": "data", "shards": "shards", "replicas": "replicas",
}  # fmt: skip


@dataclass(frozen=True, order=True)
class Layout:
    """How the ranks of the cluster are split: the product of the degrees is the number of GPUs.

    `sequence` counts context-parallel ranks, which each hold a part of every sequence. `virtual_stages` is the number
    of model chunks per pipeline rank. `shard` is the number of ranks that share one copy of the states where that is
    not data × sequence (0: it is). `whole_stream`: tensor-parallel ranks keep the residual stream whole, where
    otherwise each has its part of the sequence (Korthikanti et al. 2022, arXiv:2205.05198). `spared`: by how many
    layers the first and the last stage fall behind the fullest one (empty: as `stage_layers` has it).
    """

    tensor: int = 1
    pipeline: int = 1
    sequence: int = 1
    expert: int = 1
    data: int = 1
    virtual_stages: int = 1
    shard: int = 0
    whole_stream: bool = False
    spared: tuple[int, ...] = ()

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Worked out once: layouts are keys wherever terms are read."""
        return hash(tuple(getattr(self, field.name) for field in fields(self)))

    @property
    def ranks(self) -> int:
        """Number of GPUs; expert parallelism lies inside the data-parallel ranks and adds none."""
        return self.tensor * self.pipeline * self.sequence * self.data

    @property
    def shards(self) -> int:
        """Ranks that share one copy of the dense states of a rank's part of the model."""
        return self.shard or self.data * self.sequence

    @property
    def replicas(self) -> int:
        """Copies of the dense states of a rank's part of the model; more than one under hybrid sharding."""
        return self.data * self.sequence // self.shards

    def __str__(self) -> str:
        return f"tensor {self.tensor} · pipeline {self.pipeline} · sequence {self.sequence} · data {self.data}"


Value = int | str | Layout


def whole(values: Mapping[str, Value], name: str) -> int:
    """The whole number that `name` stands for; InternalError where it is none."""
    value = values[name]
    if isinstance(value, int):
        return value
    raise InternalError(f"{name} is {value!r}, no whole number")


def read_from(name: str) -> str:
    """The choice that a name is read from: the layout for its degrees, else the choice of that name."""
    return "layout" if name in LAYOUT_FACTS else name


def layout_of(values: Mapping[str, Value]) -> Layout:
    """The layout among `values`; InternalError where it is none."""
    value = values["layout"]
    if isinstance(value, Layout):
        return value
    raise InternalError(f"layout is {value!r}")


class Plan(Mapping[str, Value]):
    """Choice name to value; hashable, ordered as the space orders its choices."""

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(values)

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(tuple(sorted((name, str(value)) for name, value in self._values.items())))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self._values == other._values

    def __repr__(self) -> str:
        return f"Plan({self._values!r})"

    def changed(self, **values: Value) -> Plan:
        """The same plan with some values replaced."""
        return Plan({**self._values, **values})
