"""Files under check, made from dictionaries and texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from planner.check.findings import Finding
from planner.check.registry import findings
from planner.check.subject import Subject
from planner.check.text import source

FOLDER = Path(__file__).parents[1] / "data" / "ds_configs"
INDEX = FOLDER / "INDEX.yaml"


def configuration(**changes: Any) -> dict[str, Any]:
    """A file that no rule has more than a note on: ZeRO stage 2 in bf16."""
    return {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 2,
        "gradient_clipping": 1.0,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 2, "reduce_bucket_size": 50_000_000},
        **changes,
    }


def zero(stage: int, **changes: Any) -> dict[str, Any]:
    """The same file with another ZeRO block."""
    return configuration(zero_optimization={"stage": stage, "reduce_bucket_size": 50_000_000, **changes})


def subject(content: dict[str, Any] | str, ranks: int = 8) -> Subject:
    """A content or a text as a file under check."""
    text = content if isinstance(content, str) else json.dumps(content, indent=2)
    return Subject(source("ds.json", text), ranks)


def found(content: dict[str, Any] | str, key: str, ranks: int = 8) -> list[Finding]:
    """What the rules find on a key."""
    return [finding for finding in findings(subject(content, ranks)) if finding.key == key]


def grave(content: dict[str, Any] | str, ranks: int = 8) -> list[str]:
    """Severity, key and message of everything that is more than a note."""
    return [
        f"{finding.severity} {finding.key}: {finding.message}"
        for finding in findings(subject(content, ranks))
        if finding.severity != "info"
    ]
