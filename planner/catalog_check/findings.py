"""What the rules find: where, how grave, a sentence, and what would be right."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from planner.document_builder import Path
from planner.errors import InputError
from planner.reading import Document, dotted

SEVERITIES = ("ok", "warn", "error")


@dataclass(frozen=True)
class Finding:
    """One remark on one value. `line` and `column` count from 1, 0 where none is known; `hint` may be empty."""

    severity: str
    file: str
    line: int
    path: str
    message: str
    hint: str = ""
    column: int = 0


@dataclass(frozen=True)
class Place:
    """A value of a document: `place / "peak" / "bf16"` is a value inside it."""

    document: Document
    path: Path = ()

    def __truediv__(self, step: str | int) -> Place:
        return Place(self.document, (*self.path, step))

    def error(self, message: str, hint: str = "") -> Finding:
        """What makes the catalog wrong."""
        return self.finding("error", message, hint)

    def warn(self, message: str, hint: str = "") -> Finding:
        """What is probably not meant."""
        return self.finding("warn", message, hint)

    def finding(self, severity: str, message: str, hint: str = "") -> Finding:
        """A remark on this value."""
        line, column = self.document.mark(self.path)
        return Finding(severity, self.document.file, line, dotted(self.path), message, hint, column)


def refused(error: InputError) -> Finding:
    """What a reader refuses, as a finding."""
    message = error.message + (f"; expected {error.expected}" if error.expected else "")
    return Finding("error", error.file, error.line, error.path, message, error.hint, error.column)


def severity(findings: Iterable[Finding]) -> str:
    """The gravest of the findings; `ok` without any."""
    return SEVERITIES[max((SEVERITIES.index(finding.severity) for finding in findings), default=0)]
