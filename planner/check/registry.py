"""Every rule, in the order in which findings of one severity are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from planner.check.findings import SEVERITIES, Finding
from planner.check.rules import (
    batch,
    checkpointing,
    document,
    features,
    keys,
    offload,
    optimizer,
    precision,
    scheduler,
    sizes,
    zero,
)
from planner.check.subject import Subject

Rule = Callable[[Subject], Iterator[Finding]]
ALL: tuple[Rule, ...] = (
    *document.RULES,
    *keys.RULES,
    *batch.RULES,
    *precision.RULES,
    *zero.RULES,
    *sizes.RULES,
    *offload.RULES,
    *optimizer.RULES,
    *scheduler.RULES,
    *checkpointing.RULES,
    *features.RULES,
)


def findings(subject: Subject) -> tuple[Finding, ...]:
    """What all rules find, the gravest first."""
    found = [finding for rule in ALL for finding in rule(subject)]
    return tuple(sorted(dict.fromkeys(found), key=lambda finding: -SEVERITIES.index(finding.severity)))
