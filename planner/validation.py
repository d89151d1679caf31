"""Turns what pydantic found into one InputError: the mistake that explains most, at its place in the document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from planner.document_builder import Path
from planner.errors import InputError
from planner.units import Mistake, misfit, nearest, shown

if TYPE_CHECKING:
    from planner.reading import Document

_LONGEST_LIST = 12
_EXPECTED_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "decimal": "a number",
    "string": "text",
    "bool": "true or false",
    "dict": "a mapping",
    "mapping": "a mapping",
    "model": "a mapping",
    "dataclass": "a mapping",
    "list": "a list",
    "tuple": "a list",
    "set": "a list",
    "frozen_set": "a list",
    "none": "nothing",
}
_LIMITS = {
    "greater_than": ("gt", "a value above {}"),
    "greater_than_equal": ("ge", "a value of at least {}"),
    "less_than": ("lt", "a value below {}"),
    "less_than_equal": ("le", "a value of at most {}"),
    "multiple_of": ("multiple_of", "a multiple of {}"),
}


def best_mistake(error: ValidationError, model: type[BaseModel], document: Document, at: Path) -> InputError:
    """The InputError for the finding that explains most: unknown keys, then wrong values, then missing keys.

    Among several branches of a union those that fit the shape of the value win over those that do not.
    """
    findings = [_Finding(details, model, document, at) for details in error.errors(include_url=False)]
    findings = _without_misfitting_branches(findings)
    best = min(findings, key=lambda finding: (finding.rank, finding.place))
    return best.as_input_error([other for other in findings if other.path == best.path])


class _Finding:
    """One pydantic error, its location read against the data: `path` exists there, `branches` were union members."""

    def __init__(self, details: Any, model: type[BaseModel], document: Document, at: Path) -> None:
        self.type: str = details["type"]
        self.input: Any = details["input"]
        self.text: str = details["msg"]
        self.context: dict[str, Any] = details.get("ctx", {})
        self.document = document
        self.models: list[type[BaseModel]] = [model]
        self.field: FieldInfo | None = None
        self.path = at
        self._walk(details["loc"], at)

    @property
    def rank(self) -> int:
        return {"extra_forbidden": 0, "missing": 2}.get(self.type, 1)

    @property
    def is_misfit(self) -> bool:
        """Whether the value has another shape than this branch takes."""
        if self.type == "literal_error":
            return isinstance(self.input, (dict, list))
        return self.type.endswith(("_type", "_parsing"))

    @property
    def place(self) -> tuple[int, int]:
        return self.document.key_mark(self.path)

    def _walk(self, location: Sequence[str | int], at: Path) -> None:
        """Follows the location through the data and the models; steps that are not in the data name union branches."""
        data: Any = self.document.data
        for step in at:
            data = data[step]
        for index, step in enumerate(location):
            last = index == len(location) - 1
            present = step in data if isinstance(data, dict) else isinstance(data, list) and step in range(len(data))
            if present or (last and self.type == "missing"):
                data = data[step] if present else None
                self._descend(step, last)
            else:
                self.models = [known for known in self.models if _is_branch(known, step)] or self.models

    def _descend(self, step: str | int, last: bool) -> None:
        self.path = (*self.path, step)
        if self.type == "extra_forbidden" and last:
            return
        field = next((found for known in self.models if (found := _field(known, step))), None)
        self.field = field
        if field is not None:
            self.models = list(_models(field.annotation))

    def as_input_error(self, others: Sequence[_Finding]) -> InputError:
        """The message of this finding; for a value of the wrong shape, what any of the branches expects."""
        if self.type == "extra_forbidden":
            return self._unknown_key()
        if self.type == "missing":
            description = self.field.description if self.field else None
            name = str(self.path[-1])
            return self.document.error(self.path, f"missing key {name!r}", description or "")
        if self.type == "value_error" and isinstance(self.context.get("error"), Mistake):
            return self._given_mistake(self.context["error"])
        if self.is_misfit and self.type != "literal_error":
            kinds = [other.expected_kind for other in others if other.is_misfit]
            return self.document.error(self.path, misfit(self.input), " or ".join(dict.fromkeys(kinds)))
        return self._other()

    @property
    def expected_kind(self) -> str:
        name = self.type.removesuffix("_type").removesuffix("_parsing").removesuffix("_attributes")
        return _EXPECTED_KINDS.get(name, name)

    def _unknown_key(self) -> InputError:
        name = str(self.path[-1])
        names = [field.alias or key for known in self.models for key, field in known.model_fields.items()]
        hint = nearest(name, names)
        expected = "" if len(names) > _LONGEST_LIST and hint else _one_of(names) or "no such key here"
        return self.document.error(self.path, f"unknown key {shown(name)}", expected, hint, key=True)

    def _given_mistake(self, mistake: Mistake) -> InputError:
        path = (*self.path, *mistake.at)
        return self.document.error(path, mistake.message, mistake.expected, mistake.hint)

    def _wrong_choice(self) -> InputError:
        told = str(self.context.get("expected", ""))
        choices = re.findall(r"'((?:[^'\\]|\\.)*)'", told) or [told]
        if not isinstance(self.input, str):
            return self.document.error(self.path, misfit(self.input), _one_of(choices))
        message = f"{shown(self.input)} is not valid"
        return self.document.error(self.path, message, _one_of(choices), nearest(self.input, choices))

    def _wrong_tag(self) -> InputError:
        key = str(self.context["discriminator"]).strip("'")
        if self.type == "union_tag_not_found":
            return self.document.error(self.path, f"missing key '{key}'", f"a mapping with {key}")
        tags = re.findall(r"'([^']*)'", str(self.context["expected_tags"]))
        tag = str(self.context["tag"])
        return self.document.error((*self.path, key), f"{shown(tag)} is not valid", _one_of(tags), nearest(tag, tags))

    def _other(self) -> InputError:
        if self.type in ("literal_error", "enum"):
            return self._wrong_choice()
        if self.type in ("union_tag_invalid", "union_tag_not_found"):
            return self._wrong_tag()
        if self.type in _LIMITS:
            name, expected = _LIMITS[self.type]
            message = f"{shown(self.input)} is out of range"
            return self.document.error(self.path, message, expected.format(self.context[name]))
        if self.type in ("too_short", "too_long"):
            least, most = self.context.get("min_length"), self.context.get("max_length")
            expected = f"at least {least}" if self.type == "too_short" else f"at most {most}"
            return self.document.error(self.path, f"{len(self.input)} items stand here", expected)
        if self.type == "int_parsing_size":
            return self.document.error(self.path, f"{shown(self.input)} is too large", "a smaller number")
        if self.type == "int_from_float":
            return self.document.error(self.path, f"{shown(self.input)} is not a whole number", "a whole number")
        message = self.text.removeprefix("Value error, ")
        return self.document.error(self.path, message[:1].lower() + message[1:])


def _one_of(names: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(names))
    return f"one of {', '.join(distinct)}" if len(distinct) > 1 else "".join(distinct)


def _without_misfitting_branches(findings: list[_Finding]) -> list[_Finding]:
    """Leaves out findings that only say `this value has not the shape of that branch` where another branch fits."""
    kept = [
        finding
        for finding in findings
        if not (finding.is_misfit and any(_is_deeper(other.path, finding.path) for other in findings))
    ]
    return kept or findings


def _is_deeper(path: Path, ancestor: Path) -> bool:
    return len(path) > len(ancestor) and path[: len(ancestor)] == ancestor


def _is_branch(model: type[BaseModel], step: str | int) -> bool:
    """Whether `step` names the model as a member of a union: by its own name or by its tag."""
    tags = (get_args(field.annotation) for field in model.model_fields.values())
    return model.__name__ == step or any(tag == (step,) for tag in tags)


def _field(model: type[BaseModel], step: str | int) -> FieldInfo | None:
    fields = model.model_fields
    return next((field for name, field in fields.items() if step in (name, field.alias)), None)


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Every model that an annotation mentions, through unions, containers and Annotated."""
    inner_annotations = get_args(annotation)
    if not inner_annotations and isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in inner_annotations:
        yield from _models(inner)
