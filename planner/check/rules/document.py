"""The text itself: plain JSON, no key twice, a mapping at the top."""

from __future__ import annotations

from collections.abc import Iterator

from planner.check.findings import PARSER, READER, TRAINER, Finding, error
from planner.check.subject import Subject
from planner.check.text import DUPLICATE

KEY = "json"


def text_is_json(subject: Subject) -> Iterator[Finding]:
    """Hugging Face reads plain JSON only; DeepSpeed's own reader is Hjson and forgives."""
    source = subject.source
    if not source.broken:
        return
    if source.data is None:
        yield error(KEY, f"not JSON: line {source.line}, {source.broken}; nothing can read this file", READER)
        return
    first = {note.kind: note.line for note in reversed(source.notes) if note.kind != DUPLICATE}
    kinds = " and ".join(
        f"{kind} (line {first[kind]})" for kind in dict.fromkeys(note.kind for note in source.notes) if kind in first
    )
    yield error(
        KEY,
        f"not JSON: the file has {kinds}, which DeepSpeed's own reader (Hjson) takes and Hugging Face's json.load "
        "refuses",
        TRAINER,
    )


def top_is_a_mapping(subject: Subject) -> Iterator[Finding]:
    """DeepSpeed looks keys up in the top of the file."""
    if subject.source.data is not None and not isinstance(subject.source.data, dict):
        yield error(KEY, "the top of the file is no mapping of keys to values", PARSER)


def no_key_stands_twice(subject: Subject) -> Iterator[Finding]:
    """DeepSpeed's reader raises; json.load keeps the last value without a word."""
    for note in subject.source.notes:
        if note.kind == DUPLICATE:
            yield error(
                note.key,
                f"stands twice, again in line {note.line}: DeepSpeed refuses the file, and a reader that does not "
                "keeps "
                "the last value without a word",
                READER,
            )


RULES = (text_is_json, top_is_a_mapping, no_key_stands_twice)
