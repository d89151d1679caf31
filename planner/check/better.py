"""A better file: the best plan's configuration merged over what the file has, as a unified diff."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from planner.check.findings import Finding
from planner.check.inventory import inventory
from planner.check.registry import findings
from planner.check.rules.zero import STAGE_3, ZERO
from planner.check.subject import Subject
from planner.check.text import source

Content = dict[str, Any]
# Written out by the emitter for files of its own; not needed in somebody else's.
INCIDENTAL = ("steps_per_print", "wall_clock_breakdown")
INDENT = re.compile(r"\n([ \t]+)[\"}]")
ROUNDS = 4  # a repair may bring up the next mistake: a type, its arguments, the block


def better_content(subject: Subject, configuration: Mapping[str, Any], optimizer: str | None) -> Content:
    """The file's content with the plan's values; keys that have nothing to do with the plan stay as they are.

    `optimizer` is the type that replaces one that DeepSpeed does not know; None drops the block.
    """
    kept: Content = json.loads(json.dumps(subject.data))
    if not isinstance(kept.get(ZERO), dict):
        kept[ZERO] = {}
    for dotted in _superseded(subject, configuration):
        _drop(kept, dotted)
    found = _merged(kept, _wanted(configuration, kept))
    for _ in range(ROUNDS):
        errors = [item for item in _findings(subject, found) if item.severity == "error"]
        for item in errors:
            _repair(found, item, optimizer)
        if not errors:
            break
    return found


def _wanted(configuration: Mapping[str, Any], kept: Content) -> Content:
    """What the plan says, without defaults that the file does not write either."""
    wanted = {name: value for name, value in configuration.items() if name not in INCIDENTAL or name in kept}
    for block in ("fp16", "bf16"):
        enabled = wanted.get(block, {}).get("enabled")
        if not enabled:
            wanted[block] = {"enabled": False}
            if block not in kept:
                del wanted[block]
    return _told(wanted, kept, "")


def _told(wanted: Mapping[str, Any], kept: Any, path: str) -> Content:
    """`wanted` without keys that the file leaves out and that already have their default."""
    found: Content = {}
    for name, value in wanted.items():
        dotted = f"{path}.{name}".lstrip(".")
        key = inventory().key(dotted)
        written = isinstance(kept, dict) and name in kept
        if isinstance(value, dict):
            found[name] = _told(value, kept.get(name) if written else {}, dotted)
        elif written or key is None or value != key.default or key.deprecated:
            found[name] = value
    return found


def _superseded(subject: Subject, configuration: Mapping[str, Any]) -> Iterator[str]:
    """What the plan replaces: old names, offloads it does not take, keys of another stage, a share left on the GPU."""
    yield from (dotted for dotted, key in inventory().dotted() if key.deprecated and subject.has(dotted))
    wanted = configuration[ZERO]
    yield from (f"{ZERO}.{which}" for which in ("offload_optimizer", "offload_param") if which not in wanted)
    if "ratio" not in wanted.get("offload_optimizer", {}):
        yield f"{ZERO}.offload_optimizer.ratio"
    switches = ("zero_hpz_partition_size", "zero_quantized_weights", "zero_quantized_gradients")
    yield from (f"{ZERO}.{switch}" for switch in switches if switch not in wanted)
    if wanted["stage"] != 3:
        yield from (f"{ZERO}.{name}" for name in STAGE_3)


def _findings(subject: Subject, content: Content) -> tuple[Finding, ...]:
    """What the rules find in a content."""
    return findings(replace(subject, source=source(subject.source.file, json.dumps(content))))


def _repair(content: Content, finding: Finding, optimizer: str | None) -> None:
    """Takes out what is refused; of a block that lacks something, the block; an unknown optimizer is replaced."""
    if finding.key == "optimizer.type" and optimizer is not None:
        params = content["optimizer"].get("params", {})
        taken = inventory().optimizers["arguments_adam"]
        known = {name: value for name, value in params.items() if name in taken} if isinstance(params, dict) else {}
        content["optimizer"] = {"type": optimizer, "params": known}
    elif not _drop(content, finding.key):
        _drop(content, finding.key.rpartition(".")[0])


def _drop(content: Content, dotted: str) -> bool:
    """Takes a key out; whether it was there."""
    *path, name = dotted.split(".")
    block: Any = content
    for part in path:
        block = block.get(part) if isinstance(block, dict) else None
    if isinstance(block, dict) and name in block:
        del block[name]
        return True
    return False


def _merged(below: Content, above: Mapping[str, Any]) -> Content:
    """`above` laid over `below`, block by block."""
    found = dict(below)
    for name, value in above.items():
        under = found.get(name)
        found[name] = _merged(under, value) if isinstance(value, dict) and isinstance(under, dict) else value
    return found


def unified(subject: Subject, content: Content) -> str:
    """The change as a unified diff against the file's own text, indented as it is."""
    written = subject.source
    indent = INDENT.search(written.text)
    after = json.dumps(content, indent=indent.group(1) if indent else 2, ensure_ascii=False) + "\n"
    before = written.text if written.text.endswith("\n") else written.text + "\n"
    lines = difflib.unified_diff(_split(before), _split(after), written.file, f"{written.file} (better)")
    return "".join(lines)


def _split(text: str) -> list[str]:
    """Lines with their ends."""
    return text.splitlines(keepends=True)
