"""A file under check: its content by dotted key, the value that each key ends up with, and its number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.check.inventory import Inventory, inventory
from planner.check.kinds import Misfit, fit
from planner.check.text import Source

AUTO = "auto"
OLD_OFFLOADS = {"offload_optimizer": "cpu_offload", "offload_param": "cpu_offload_param"}


@dataclass(frozen=True, eq=False)
class Subject:
    """One file, and the number of ranks that its batch sizes must multiply to."""

    source: Source
    ranks: int

    @property
    def inventory(self) -> Inventory:
        """What DeepSpeed reads."""
        return inventory()

    @cached_property
    def data(self) -> dict[str, Any]:
        """The content; empty where the file holds no mapping."""
        return self.source.data if isinstance(self.source.data, dict) else {}

    @property
    def readable(self) -> bool:
        """Whether there are keys to look at."""
        return isinstance(self.source.data, dict)

    def block(self, dotted: str) -> Mapping[str, Any]:
        """The mapping at a dotted key, empty where there is none."""
        found: Any = self.data
        for name in dotted.split(".") if dotted else ():
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, dict) else {}

    def has(self, dotted: str) -> bool:
        """Whether the key stands in the file."""
        path, _, name = dotted.rpartition(".")
        return name in self.block(path)

    def raw(self, dotted: str) -> Any:
        """The value as written, None where there is none."""
        path, _, name = dotted.rpartition(".")
        return self.block(path).get(name)

    def is_auto(self, dotted: str) -> bool:
        """Whether the trainer is to fill the value in."""
        return bool(self.raw(dotted) == AUTO)

    def value(self, dotted: str) -> Any:
        """The value DeepSpeed works with: what is written where it fits, else the default."""
        key = self.inventory.key(dotted)
        written = self._written(dotted)
        if key is None:
            return written
        if written is None or (written == AUTO and not key.own_auto):
            return key.default
        try:
            return fit(key, written)
        except Misfit:
            return key.default

    def _written(self, dotted: str) -> Any:
        """The value as written, under either name of the key."""
        path, _, name = dotted.rpartition(".")
        key = self.inventory.key(dotted)
        other = f"{path}.{key.other_name}" if key and key.other_name else ""
        return self.raw(other) if other and not self.has(dotted) else self.raw(dotted)

    @property
    def stage(self) -> int:
        """The ZeRO stage in effect."""
        written = self.raw("zero_optimization")
        if isinstance(written, bool):
            return int(written)
        return int(self.value("zero_optimization.stage"))

    def offload(self, which: str) -> str:
        """The device of `offload_optimizer` or `offload_param`: none, cpu or nvme, also from the old spelling."""
        path = f"zero_optimization.{which}"
        if not self.has(path) and self.value(f"zero_optimization.{OLD_OFFLOADS[which]}"):
            return "cpu"
        return str(self.value(f"{path}.device"))

    def offload_key(self, which: str) -> str:
        """The key that asks for an offload, as it is spelled in the file."""
        old = f"zero_optimization.{OLD_OFFLOADS[which]}"
        return old if self.has(old) and not self.has(f"zero_optimization.{which}") else f"zero_optimization.{which}"

    def enabled(self, block: str) -> bool:
        """Whether a precision block is switched on."""
        name = "bfloat16" if block == "bf16" and self.raw("bf16") is None and self.has("bfloat16") else block
        return bool(self.value(f"{name}.enabled"))

    @property
    def precision(self) -> str:
        """The precision of the model in effect; "auto" counts as switched off."""
        return "bf16" if self.enabled("bf16") else "fp16" if self.enabled("fp16") else "fp32"

    @property
    def precision_is_open(self) -> bool:
        """Whether the trainer decides the precision."""
        return any(self.is_auto(f"{block}.enabled") for block in ("bf16", "fp16", "bfloat16"))

    @property
    def optimizer(self) -> str | None:
        """The optimizer's type; DeepSpeed's own names in lower case."""
        written = self.raw("optimizer.type")
        if not isinstance(written, str):
            return None
        return written.lower() if written.lower() in self.inventory.optimizers["deepspeed"] else written

    @property
    def data_parallel(self) -> float:
        """Ranks that the parser multiplies the batch with: all of them over `sequence_parallel_size`."""
        size = self.value("sequence_parallel_size")
        return self.ranks / size if isinstance(size, int) and size > 0 else self.ranks
