"""Jobs to solve, each with what it was made from: files, the files of a folder, every combination of a job's lists."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from planner.document_builder import Path as Place
from planner.errors import InputError
from planner.files import job_files
from planner.job_file import JobFile
from planner.many.digest import digest
from planner.reading import Document, nearest, read_document

MOST = 100_000  # jobs of one sweep


@dataclass(frozen=True, eq=False)
class Task:
    """One job: where it was read, its values, and what tells it from others of its file.

    `fields` are the swept values by their path. `error` stands where the file could not be read. `digest` is that of
    everything that the answer depends on.
    """

    name: str
    document: Document
    fields: Mapping[str, Any] = field(default_factory=dict)
    catalogs: tuple[Path, ...] = ()
    time_limit: float | None = None
    error: str = ""

    @property
    def digest(self) -> str:
        """What answers are told apart by."""
        return digest(self.document, self.name, self.catalogs, self.time_limit)


def tasks(paths: Sequence[Path], catalogs: Iterable[Path] = (), time_limit: float | None = None) -> list[Task]:
    """The jobs of files and folders, in the order of the paths, of names in a folder, of a sweep's lists.

    A file of several that cannot be read is a task that says so. Raises InputError where there is no file, and for the
    mistakes of a single file.
    """
    files = _files(paths)
    whole = Task("", Document("", {}, {}, {}), {}, tuple(catalogs), time_limit)
    found: list[Task] = []
    for name, path in _named(files).items():
        try:
            found += _of_file(replace(whole, name=name), path)
        except InputError as error:
            if len(files) == 1 and paths[0] == path:
                raise
            found.append(replace(whole, name=name, document=Document(str(path), {}, {}, {}), error=str(error)))
    return found


def _files(paths: Sequence[Path]) -> list[Path]:
    """The job files that paths stand for: files themselves, and those of a folder by their names."""
    return list(dict.fromkeys(file for path in paths for file in job_files(path)))


def _named(files: Sequence[Path]) -> dict[str, Path]:
    """Files by their stems, by their whole paths where stems repeat."""
    stems = [path.stem for path in files]
    return {(path.stem if stems.count(path.stem) == 1 else str(path)): path for path in files}


def _of_file(whole: Task, path: Path) -> list[Task]:
    """The job of a file, or one for each combination of its lists."""
    document = read_document(path)
    if not isinstance(document.data, dict) or "sweep" not in document.data:
        return [replace(whole, document=document)]
    lists = _lists(document)
    base = {name: value for name, value in document.data.items() if name != "sweep"}
    return [
        _combined(whole, document, base, dict(zip(lists, chosen, strict=True))) for chosen in product(*lists.values())
    ]


def _lists(document: Document) -> dict[str, list[Any]]:
    """The lists of a `sweep` by the path of their field."""
    lists = document.data["sweep"]
    if not isinstance(lists, dict) or not lists:
        raise document.error(("sweep",), "no fields are named", "such as training.sequence_length: [2048, 4096]")
    known = tuple(JobFile.model_fields)
    for name, values in lists.items():
        at = ("sweep", name)
        if name.split(".")[0] not in known:
            expected = "a path that starts with one of " + ", ".join(known)
            hint = nearest(name.split(".")[0], known)
            raise document.error(at, f"a job has no '{name}'", expected, hint, key=True)
        if not isinstance(values, list) or not values:
            raise document.error(at, "no values are listed", "a list of values such as [2048, 4096]")
    count = prod(map(len, lists.values()))
    if count > MOST:
        raise document.error(("sweep",), f"the lists make {count:,} jobs", f"at most {MOST:,}")
    return lists


def _combined(whole: Task, document: Document, base: Mapping[str, Any], fields: Mapping[str, Any]) -> Task:
    """One combination of values, put where they belong."""
    data: dict[str, Any] = deepcopy(dict(base))
    for path, value in fields.items():
        _put(document, data, ("sweep", path), path.split("."), value)
    return replace(whole, document=replace(document, data=data), fields=dict(fields))


def _put(document: Document, data: dict[str, Any], at: Place, path: Sequence[str], value: Any) -> None:
    """Replaces or adds one value."""
    place = data
    for step in path[:-1]:
        place = place.setdefault(step, {})
        if not isinstance(place, dict):
            raise document.error(at, f"{step} holds no fields here, it is {place!r}", "a field of a mapping", key=True)
    place[path[-1]] = deepcopy(value)


def swept(found: Iterable[Task]) -> Iterator[str]:
    """Paths of all fields that are swept, each once."""
    yield from dict.fromkeys(path for task in found for path in task.fields)
