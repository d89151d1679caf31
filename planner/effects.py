"""The closed vocabulary of what a technique or a runtime does to books, time and links.

Each kind is one frozen model; catalogs write it as `{kind: shard, book: gradients, axis: data}`. Sizes are never
bytes in YAML: an effect names a *quantity* of elements (`planner/quantities.py`) and bytes per element, as a number or
as a width that the job's precision and optimizer settle (`compute`, `master`, `optimizer_state`, ...).
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from planner.terms import MOMENTS
from planner.units import parse_ratio

# Bytes for each of a quantity beyond which a figure is a slip; what is held once may be as large as a memory.
LARGEST_BYTES = 2.0**50

Book = Literal["parameters", "gradients", "optimizer_states", "activations", "buffers", "reserve"]
Device = Literal["gpu", "host", "nvme"]
Axis = Literal["data", "node", "nodes"]
Every = Literal["micro_batch", "step"]
Scalar = bool | int | str
Moment = Literal[
    "load", "init", "init_states", "init_end", "forward", "loss", "backward_start", "recompute_start", "reduction",
    "backward_end", "gradient_norm", "optimizer_step",
]  # fmt: skip
Window = Literal["forward", "backward", "last_backward", "serial"]

MOMENT_SETS: dict[str, tuple[str, ...]] = {
    "always": tuple(MOMENTS),
    "from_states": tuple(MOMENTS)[2:],
    "from_init_end": tuple(MOMENTS)[3:],
    "training": tuple(MOMENTS)[4:],
    "passes": ("forward", "loss", "backward_start", "recompute_start", "reduction", "backward_end"),
    "backward": ("backward_start", "recompute_start", "reduction", "backward_end"),
    "step": ("gradient_norm", "optimizer_step"),
}


def _moments(value: Any) -> Any:
    """Spell out named sets of moments; a list stays as it is."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, str) for item in items):
        return value
    return tuple(name for item in items for name in MOMENT_SETS.get(item, (item,)))


def _bytes(value: Any) -> Any:
    """A number of bytes per element as an exact fraction, or the name of a width."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return value
    if isinstance(value, str) and not value[:1].isdigit():
        return value
    return parse_ratio(str(value), largest=LARGEST_BYTES)


def as_tuple(value: Any) -> Any:
    """One value stands for a list of one."""
    return tuple(value) if isinstance(value, list) else (value,)


Moments = Annotated[tuple[Moment, ...], BeforeValidator(_moments)]
Width = Literal[
    "compute", "gather", "accumulation", "communication", "master",
    "storage", "reduce",
    "optimizer_state", "torch_state", "optimizer_temporary", "optimizer_largest", "optimizer_traffic",
]  # fmt: skip
BytesPerElement = Annotated[Width | Fraction, BeforeValidator(_bytes)]


class _Model(BaseModel):
    """A frozen catalog entry that refuses unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)


class AtLeast(_Model):
    """True where the named number is at least this."""

    at_least: int

    def admits(self, value: object) -> bool:
        """Whether `value` passes."""
        return isinstance(value, int) and value >= self.at_least


class AtMost(_Model):
    """True where the named number is at most this."""

    at_most: int

    def admits(self, value: object) -> bool:
        """Whether `value` passes."""
        return isinstance(value, int) and value <= self.at_most


class OneOf(_Model):
    """True where the named value is one of these."""

    values: tuple[Scalar, ...]

    def admits(self, value: object) -> bool:
        """Whether `value` passes."""
        return value in self.values


def _test(value: Any) -> Any:
    """Lists and scalars mean membership; `{at_least: n}` and `{at_most: n}` compare."""
    return value if isinstance(value, (dict, BaseModel)) else {"values": as_tuple(value)}


Test = Annotated[OneOf | AtLeast | AtMost, BeforeValidator(_test)]
When = dict[str, Test]


class Part(_Model):
    """The percentage of sub-groups that a choice names, or with `rest` what is left of them."""

    choice: str
    rest: bool = False


class Effect(_Model):
    """What every kind carries: under which values it applies, for which runtimes, and where the figure is from."""

    when: When = Field(default_factory=dict)
    runtime: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = ()
    source: str = ""


class Shard(Effect):
    """Divide the persistent part of a book over the ranks of an axis."""

    kind: Literal["shard"]
    book: Book
    axis: Axis


class Scale(Effect):
    """Multiply the persistent part of a book by a factor (a quotient such as `1/4`, or a decimal)."""

    kind: Literal["scale"]
    book: Book
    factor: BytesPerElement


class Format(Effect):
    """Let a named width stand for other bytes per element: what goes by it is held or sent in another format."""

    kind: Literal["format"]
    width: Width
    bytes: BytesPerElement


class Move(Effect):
    """Keep the persistent part of a book in host memory or on NVMe instead of on the GPU; with `part` not all of it."""

    kind: Literal["move"]
    book: Book
    to: Literal["host", "nvme"]
    part: Part | None = None


class Allocate(Effect):
    """Hold `bytes` per element of quantity `of` in `book` during `moments`.

    `over` divides by the shards of that book; `device: home` follows where `book` was moved to. `pinned` rounds each
    host buffer up to a power of two bytes: `whole` as one buffer, `sub_groups` as one buffer per optimizer sub-group.
    Host and NVMe amounts are per rank and counted once for each rank of a node, unless `per: node`. `apart` marks
    what never shares the allocator's free blocks with other tensors: a buffer larger than any of them, or one that
    belongs to another stream; at no moment (`moments: []`) it is a block that outlives its tensor, and what stands
    apart under the same name goes into it.
    """

    kind: Literal["allocate"]
    name: str
    book: Book
    bytes: BytesPerElement = Fraction(1)
    of: str
    over: Book | None = None
    device: Literal["gpu", "host", "nvme", "home"] = "gpu"
    moments: Moments
    pinned: Literal["no", "whole", "sub_groups"] = "no"
    per: Literal["rank", "node"] = "rank"
    apart: bool = False
    part: Part | None = None


class Collective(Effect):
    """Send `bytes` per element of quantity `of` through a collective over `axis`, hidden behind `during` or serial.

    Over `data` it runs among the ranks that share one copy of the states, over `node` among those of them in one node,
    over `nodes` among those at the same place of every node, each with its part of what its node has.

    `message` names the quantity of elements that one call carries (empty: all at once); it only decides latency.
    `copied`: bytes of device memory traffic per element of copies into and out of its buffers, beside it. `per_rank`:
    microseconds of the host for each rank of the group and each call. `awaited_above`: elements of a layer above which
    nothing runs beside it, and a recomputed layer is gathered once more. `ahead` names the quantity of elements that a
    call sends before they are needed (empty: as many as it likes); with none the layers wait for it.
    """

    kind: Literal["collective"]
    name: str
    operation: Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
    bytes: BytesPerElement
    of: str
    axis: Axis
    every: Every
    during: Window = "serial"
    message: str = ""
    copied: float = 0.0
    per_rank: float = 0.0
    awaited_above: float = 0.0
    ahead: str = ""


class Convert(Effect):
    """Read and write `bytes` of GPU memory per element of quantity `of`, in kernels of their own before or after it."""

    kind: Literal["convert"]
    name: str
    bytes: BytesPerElement
    of: str
    every: Every
    during: Window = "serial"


class Transfer(Effect):
    """Copy `bytes` per element of quantity `of` over the host link or NVMe, per rank."""

    kind: Literal["transfer"]
    name: str
    link: Literal["host_link", "nvme"]
    direction: Literal["to_gpu", "from_gpu", "read", "write"]
    bytes: BytesPerElement
    of: str
    over: Book | None = None
    every: Every
    during: Window = "serial"
    part: Part | None = None


class Update(Effect):
    """Run the optimizer: `gpu` moves `bytes` per element through GPU memory, `cpu` through host memory.

    With a window other than `serial` the host's cores do so beside the layers. `calls` names the quantity of calls that
    come on top of those in the rates of the catalogs; each launches `kernels` kernels.
    """

    kind: Literal["update"]
    name: str
    unit: Literal["gpu", "cpu"]
    bytes: BytesPerElement
    of: str
    over: Book | None = None
    part: Part | None = None
    during: Window = "serial"
    calls: str = ""
    kernels: float = 0.0


class Recompute(Effect):
    """Drop the activations inside checkpointed layers and pay their forward pass once more in backward."""

    kind: Literal["recompute"]
    layers: Literal["checkpointed"]
    keeps: Literal["layer_input"]


class UpdateFrequency(Effect):
    """Run forward and backward `times` per optimizer step: what is paid every micro-batch is paid that often."""

    kind: Literal["update_frequency"]
    times: Literal["gradient_accumulation"]


AnyEffect = Annotated[
    Shard | Scale | Format | Move | Allocate | Collective | Convert | Transfer | Update | Recompute | UpdateFrequency,
    Field(discriminator="kind"),
]
EFFECT_KINDS = (
    Shard, Scale, Format, Move, Allocate, Collective, Convert, Transfer, Update, Recompute, UpdateFrequency,
)  # fmt: skip
