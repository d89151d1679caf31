"""What the rules find: a key, how grave it is, a sentence, and who refuses the file for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SEVERITIES = ("ok", "info", "warn", "error")
# Who ends the run: the reader of the file, DeepSpeedConfig, the engine that starts with it, or the trainer around it.
READER, PARSER, ENGINE, TRAINER = "reader", "parser", "engine", "trainer"


@dataclass(frozen=True)
class Finding:
    """One remark on one key; `key` is its dotted name in the file, `refused_by` empty where nobody ends the run."""

    key: str
    severity: str
    message: str
    refused_by: str = ""


def error(key: str, message: str, refused_by: str = "") -> Finding:
    """The run ends, or does something else than the file asks for."""
    return Finding(key, "error", message, refused_by)


def warn(key: str, message: str) -> Finding:
    """Accepted without a word, and probably not what was meant."""
    return Finding(key, "warn", message)


def info(key: str, message: str) -> Finding:
    """Worth knowing; nothing is wrong."""
    return Finding(key, "info", message)


def severity(findings: Iterable[Finding]) -> str:
    """`error`, `warn` or `ok`: the gravest of the findings, notes aside."""
    worst = max((SEVERITIES.index(finding.severity) for finding in findings), default=0)
    return "ok" if SEVERITIES[worst] == "info" else SEVERITIES[worst]
