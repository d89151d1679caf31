"""A job file with some of its values replaced, read as the file would be: other lengths, methods, machines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.errors import InputError
from planner.job import Job
from planner.job_file import read_job_file
from planner.plan import Value
from planner.reading import read_document
from planner.resolve import read_job, resolve
from planner.units import shown

Changes = Mapping[str, object]


@dataclass(frozen=True)
class Source:
    """Where a job comes from: its file, catalogs beside the shipped one, and choices pinned on top."""

    path: Path
    catalogs: tuple[Path, ...] = ()
    pins: tuple[tuple[str, Value], ...] = ()

    def job(self) -> Job:
        """The job as it stands."""
        return self._pinned(read_job(self.path, self.catalogs))

    def data(self) -> dict[str, Any]:
        """The file's values."""
        data: dict[str, Any] = deepcopy(read_document(self.path).data)
        return data

    def varied(self, changes: Changes, name: str = "") -> Job:
        """The job with values replaced by their path (`training.sequence_length`), None takes one away.

        Raises InputError as the file with these values would.
        """
        data = self.data()
        for path, value in changes.items():
            _set(data, path.split("."), value)
        text = json.dumps(data)  # JSON is YAML, and keeps every value as it is
        job_file, document = read_job_file(self.path, text=text)
        return self._pinned(resolve(job_file, document, name or self.path.stem, self.catalogs))

    def without(self, choice: str) -> Job:
        """The job with one choice left to the planner again."""
        free = replace(self, pins=tuple(pin for pin in self.pins if pin[0] != choice))
        pinned = self.data().get("choices", {})
        return free.varied({f"choices.{choice}": None}) if choice in pinned else free.job()

    def _pinned(self, job: Job) -> Job:
        """The job with the pins on top."""
        return job.with_choices({name: (value,) for name, value in self.pins}) if self.pins else job


def _set(data: dict[str, Any], path: list[str], value: object) -> None:
    """Replaces, adds or removes one value."""
    place = data
    for key in path[:-1]:
        place = place.setdefault(key, {})
    if value is None:
        place.pop(path[-1], None)
    else:
        place[path[-1]] = value


def machine(source: Source, name: str) -> Changes:
    """Changes that put the job on another GPU, or on another node, of the catalog; as many of them stay.

    Raises InputError for a name that is neither.
    """
    from planner.hardware_files import read_hardware

    cluster, hardware = source.job().cluster, read_hardware(source.catalogs)
    if name in hardware.nodes:
        return {"cluster.node": name, "cluster.gpu": None, "cluster.gpus_per_node": None}
    found = hardware.gpu(name)  # raises for an unknown name
    if cluster.gpu.key == found.key:
        return {}
    node = next(
        (key for key, node in hardware.nodes.items()
         if node.gpu == name and node.gpus == cluster.node.gpus and (node.nics or cluster.nodes == 1)),
        None,
    )  # fmt: skip
    if node is not None and "node" in source.data()["cluster"]:
        return {"cluster.node": node, "cluster.gpu": None, "cluster.gpus_per_node": None}
    return {"cluster.node": None, "cluster.gpu": name, "cluster.gpus_per_node": cluster.node.gpus}


def method(text: str) -> object:
    """`full`, `lora16` or `qlora16` as a value of `training.method`. Raises InputError."""
    name, rank = text.rstrip("0123456789"), text[len(text.rstrip("0123456789")) :]
    if name == "full" and not rank:
        return "full"
    if name in ("lora", "qlora"):
        return {name: {"rank": int(rank or 16)}}
    expected = "full, lora16 or qlora16 (with any rank)"
    raise InputError(f"unknown method {shown(text)}", path="--method", expected=expected)
