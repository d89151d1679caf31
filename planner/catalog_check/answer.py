"""The answer of `planner catalog check`, for machines and for people."""

from __future__ import annotations

from collections.abc import Iterator

from planner.answer import Answer
from planner.catalog_check.checking import CheckedCatalog
from planner.catalog_check.findings import Finding
from planner.check.answer import COLOURS


def catalog_answer(checked: CheckedCatalog) -> Answer:
    """Severity, findings and the number of files, with stable keys."""
    return {
        "severity": checked.severity,
        "findings": [vars(finding) for finding in checked.findings],
        "files": checked.files,
    }


def catalog_text(checked: CheckedCatalog, colour: bool = False) -> str:
    """The same for a terminal."""
    return "\n".join(_lines(checked, colour)) + "\n"


def _lines(checked: CheckedCatalog, colour: bool) -> Iterator[str]:
    """What was read, then a finding and its hint on each line or two."""
    errors, warnings = (sum(item.severity == kind for item in checked.findings) for kind in ("error", "warn"))
    yield f"{checked.files} files: {checked.severity} ({errors} errors, {warnings} warnings)"
    for finding in checked.findings:
        yield _line(finding, colour)
        if finding.hint:
            yield f"       {finding.hint}"


def _line(finding: Finding, colour: bool) -> str:
    """One finding."""
    word = f"{finding.severity:5}"
    place = f"{finding.file}:{finding.line}" if finding.line else finding.file
    told = f"{COLOURS[finding.severity]}{word}\033[0m" if colour else word
    return f"{told}  {place}: {finding.path}: {finding.message}"
