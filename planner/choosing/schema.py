"""What a job file may say about its cluster beside a cluster, for its JSON Schema."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

Schema = dict[str, Any]
_COUNT: Schema = {"type": "integer", "minimum": 1}
_RANGE: Schema = {
    "type": "object", "properties": {"min": _COUNT, "max": _COUNT}, "required": ["min", "max"],
    "additionalProperties": False,
}  # fmt: skip
_COUNTS: Schema = {"anyOf": [_COUNT, {"type": "array", "items": _COUNT, "minItems": 1}, _RANGE]}


def with_open_clusters(schema: Schema) -> Schema:
    """The schema of job files with `choose`, `gpu: any` and the objective `smallest` beside what it has."""
    found = deepcopy(schema)
    cluster = found["$defs"]["ClusterSettings"]
    found["$defs"]["OpenCluster"] = _open(cluster)
    choose: Schema = {
        "type": "object",
        "properties": {"choose": {"type": "array", "items": {"$ref": "#/$defs/OpenCluster"}, "minItems": 1}},
        "required": ["choose"],
        "additionalProperties": False,
    }
    properties = found["properties"]
    text = properties["cluster"].get("description", "")
    properties["cluster"] = {
        "anyOf": [{"$ref": "#/$defs/ClusterSettings"}, choose, {"$ref": "#/$defs/OpenCluster"}],
        "description": f"{text}; or {{choose: [...]}} or {{gpu: any, gpus: [8, 16]}} to leave it to planner solve",
    }
    objective = properties["objective"]
    described = {key: objective.pop(key) for key in ("default", "description") if key in objective}
    smallest = {"const": "smallest", "description": "the smallest cluster on which the job fits"}
    properties["objective"] = {"anyOf": [objective, smallest], **described}
    return found


def _open(cluster: Schema) -> Schema:
    """A cluster with several counts."""
    properties = {
        **cluster["properties"],
        "nodes": {**_COUNTS, "description": "numbers of nodes"},
        "gpus": {**_COUNTS, "description": "numbers of GPUs, in place of nodes"},
    }
    return {**cluster, "properties": properties, "description": "Clusters of one kind, one for each count."}
