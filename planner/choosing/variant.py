"""One combination of what a job allows in place of its own values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Changes = Literal["numerics", "convergence", "installation", "buffer"]
WORDS: Mapping[Changes, str] = {
    "numerics": "changes numerics", "convergence": "changes convergence", "installation": "must be installed",
    "buffer": "changes a buffer",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Allowance:
    """A value that stands in place of the job's own: `value` as a job file has it; `label` and `own` in words.

    `changes` is what it changes, or that it only needs something installed or is only the size of a buffer.
    """

    setting: str
    value: Any
    label: str
    own: str
    changes: Changes

    @property
    def changes_training(self) -> bool:
        """Whether what is trained comes out different, be it in numbers or in steps."""
        return self.changes in ("numerics", "convergence")

    @property
    def text(self) -> str:
        """Such as `adamw-8bit (changes numerics)`."""
        return f"{self.label} ({WORDS[self.changes]})"


@dataclass(frozen=True, eq=False)
class Variant:
    """One combination: the settings of `training` and the choices that differ from the file's, and its allowances.

    `label` is empty for the job's own values.
    """

    training: Mapping[str, Any] = field(default_factory=dict)
    allowances: tuple[Allowance, ...] = ()
    label: str = ""
    choices: Mapping[str, Any] = field(default_factory=dict)
