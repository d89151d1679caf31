"""What a job file may say about several jobs, for its JSON Schema."""

from __future__ import annotations

from copy import deepcopy
from typing import Any


def with_sweep(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema of job files with `sweep` beside what it has."""
    found = deepcopy(schema)
    found["properties"]["sweep"] = {
        "type": "object",
        "additionalProperties": {"type": "array", "minItems": 1},
        "minProperties": 1,
        "description": "values by the path of a field, such as training.sequence_length: [2048, 4096]; a job for each "
        "combination, which planner sweep solves",
    }
    return found
